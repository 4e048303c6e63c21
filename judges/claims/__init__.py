"""Finds the claims in a sentence."""
