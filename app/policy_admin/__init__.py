"""Policy management: policy documents, storage, versions, and bootstrapping from a file."""
