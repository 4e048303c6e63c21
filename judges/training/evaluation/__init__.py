"""Evaluates the judge: metrics and data sets."""
