"""The encoder: its base models, its architecture and its training loop."""
