"""Serves judges to other processes: over HTTP for remote gateways, and over pipes for the Python SDK."""
