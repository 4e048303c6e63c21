"""The category ``retrieval``, which checks that the documents are good enough to answer from."""
