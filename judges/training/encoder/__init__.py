"""The encoder: base models, the model, the training loop."""
