"""The judges of the settings: opened, served over HTTP, and run by commands."""
