"""The gateway: HTTP in, upstream out, decisions into SQL."""
