"""Sentences of text that is still arriving."""
