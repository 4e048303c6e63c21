"""How worker processes keep in sync: change notifications for policies, keys and secrets, and worker heartbeats."""
