"""Runs, which consist of several steps of an agent that the policies evaluate together."""
