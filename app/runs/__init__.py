"""Runs: several steps of an agent, which the policies evaluate together."""
