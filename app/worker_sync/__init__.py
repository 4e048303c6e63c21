"""Keeps worker processes in sync, with change notifications for policies, keys and secrets, and with worker
heartbeats."""
