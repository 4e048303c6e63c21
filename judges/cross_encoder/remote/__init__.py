"""Judges that are served over HTTP."""
