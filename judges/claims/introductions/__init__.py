"""Labels, and the text that they introduce."""
