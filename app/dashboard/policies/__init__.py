"""Helpers for the policy pages: the form's fields, the editor's state, and version diffs."""
