VERSION = "0.1.0"
"""The package version; a test compares it with ``pyproject.toml``."""
