"""Finds instructions to a model or a judge in documents. The grammar is stored as data (``grammar.toml``)."""
