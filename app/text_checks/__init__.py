"""Checks of a text on demand, without a call to an LLM."""
