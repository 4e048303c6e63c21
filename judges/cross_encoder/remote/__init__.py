"""Remote judges, over HTTP."""
