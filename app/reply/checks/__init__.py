"""Checks of a reply, some of which run at its end and others while it is delivered."""
