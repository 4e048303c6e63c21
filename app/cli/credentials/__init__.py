"""Commands for gateway keys, secrets and admin tokens."""
