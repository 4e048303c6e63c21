"""Compares judges on labelled cases."""
