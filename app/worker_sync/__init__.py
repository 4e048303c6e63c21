"""Keeps worker processes in sync: change notifications for policies, keys and secrets, and worker heartbeats."""
