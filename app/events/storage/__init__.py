"""Stores events: the writer, the journal, inserts and retention."""
