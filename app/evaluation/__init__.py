"""Evaluation of answers against their documents: ``groundlane eval``, and ``groundlane.evaluation`` in Python."""
