"""What to do about a verdict: rules in, decisions out. Pure and synchronous."""
