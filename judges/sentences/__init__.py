"""Splits text into sentences as it arrives."""
