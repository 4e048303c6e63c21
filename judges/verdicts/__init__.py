"""From claims and evidence to verdicts."""
