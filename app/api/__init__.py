"""The paths: HTTP in, a call to what does the work, HTTP out."""
