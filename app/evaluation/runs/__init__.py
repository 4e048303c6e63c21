"""Runs: cases in, a folder of results out; locally or on Ray, with summary, report, comparison and cost."""
