"""How cases are judged: the judge, its processes, its cache, and the evaluator that combines them."""
