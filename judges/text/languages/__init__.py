"""Languages: their rules as data, one table (``<language>.toml``) each, and language detection."""
