"""One module for each client library: how its users attach documents, and how they read the verdict."""
