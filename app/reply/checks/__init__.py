"""Checks that run at the end of a reply, and checks that run while it is delivered."""
