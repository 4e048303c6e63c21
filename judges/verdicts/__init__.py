"""Derives verdicts from claims and evidence."""
