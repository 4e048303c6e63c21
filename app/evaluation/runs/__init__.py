"""Evaluation runs, locally or on Ray: they turn cases into a folder of results, with a summary, report and cost
estimate."""
