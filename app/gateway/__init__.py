"""Handles governed requests, from the incoming call to the log record."""
