"""Policies as operators manage them: documents, the store, bootstrap."""
