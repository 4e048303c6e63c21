"""Builds the judges from the settings, for the gateway, for commands and for judge servers."""
