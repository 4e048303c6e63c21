"""One module for each client library: how its users attach documents, and where they find the verdict."""
