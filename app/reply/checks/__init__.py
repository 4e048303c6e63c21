"""Checks on a reply. Some run at its end, others while it is delivered."""
