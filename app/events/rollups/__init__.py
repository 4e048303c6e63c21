"""Rollups: hourly and daily statistics, updated as events are stored."""
