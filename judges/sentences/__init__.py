"""Splits text into sentences while it arrives."""
