"""The documents that a reply cites."""
