"""Reads the reply of an upstream, and holds, judges, edits and delivers it."""
