"""Runs: the steps of an agent, evaluated together."""
