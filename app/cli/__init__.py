"""The groups of the ``groundlane`` command, one a file. What they need is imported when they run."""
