"""Evaluation runs, locally or on Ray, with a folder of results, a summary, a report and a cost estimate."""
