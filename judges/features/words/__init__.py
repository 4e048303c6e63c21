"""Word data for the features: stems, opposites and word lists."""
