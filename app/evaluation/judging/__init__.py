"""Judging cases: the judge, the processes and the cache that serve it, and the evaluator over them."""
