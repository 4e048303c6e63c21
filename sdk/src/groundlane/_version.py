VERSION = "0.1.0"
"""The version of this package; a test holds it to that of ``pyproject.toml``."""
