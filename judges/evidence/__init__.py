"""Evidence: documents cut into windows, and the best windows for a claim."""
