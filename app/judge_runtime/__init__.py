"""The judges of the settings: for the gateway, for commands, and as an HTTP server."""
