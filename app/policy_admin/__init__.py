"""Managing policies: documents, the store, versions, bootstrap."""
