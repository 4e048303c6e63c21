"""Derives decisions from verdicts and rules. Pure and synchronous."""
