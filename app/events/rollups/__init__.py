"""Rollups: statistics by hour and day, updated as events are stored."""
