"""Finds the documents that a reply cites."""
