"""Policy management: documents, the store, versions, and bootstrapping from a file."""
