"""Statistics added up as events are stored."""
