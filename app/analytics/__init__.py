"""Statistics and calibration over the event log."""
