"""Runs: the steps of an agent, judged together."""
