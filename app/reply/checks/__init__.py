"""Checks of a whole reply at its end, and checks that run beside it."""
