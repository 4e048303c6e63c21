"""Builds the judges from the settings, for the gateway, for commands, and as an HTTP server."""
