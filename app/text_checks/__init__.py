"""Checks of a given text, without a request to a model."""
