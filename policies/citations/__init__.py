"""Which documents a reply cites."""
