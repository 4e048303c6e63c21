"""The parts of the overview page: its time range, and its comparison with the previous period."""
