"""Cases, the files that contain them, and their results."""
