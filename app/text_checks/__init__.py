"""Checks a given text without a request to a model."""
