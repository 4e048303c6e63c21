"""Words as data: stems, opposites, and the word lists that the features use."""
