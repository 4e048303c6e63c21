"""Claims: what a sentence states."""
