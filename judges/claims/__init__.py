"""Finds the claims of a sentence."""
