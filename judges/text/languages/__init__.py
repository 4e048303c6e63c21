"""Languages: their rules, stored as one table (``<language>.toml``) per language, and language detection."""
