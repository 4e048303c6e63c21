VERSION = "0.2.0"
"""The package version. A test compares it with ``pyproject.toml``."""
