"""Lists and citations of sources, which state nothing."""
