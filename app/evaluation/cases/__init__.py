"""Cases, the files they are read from, and their results."""
