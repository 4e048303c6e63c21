"""Judges cases: the judge, its processes and cache, and the evaluator that combines them."""
