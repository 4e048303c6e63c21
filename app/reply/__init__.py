"""Reads an upstream's reply, and holds, judges, edits and delivers it."""
