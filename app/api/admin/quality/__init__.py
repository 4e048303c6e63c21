"""Human judgements: feedback on decisions and replies, and labels for claims."""
