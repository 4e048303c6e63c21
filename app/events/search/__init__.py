"""Full-text search in the event log."""
