"""Evidence: windows of documents, selected for a claim."""
