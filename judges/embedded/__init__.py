"""The embedded models, as package data. ``CARD.md`` describes the small one and its accuracy, ``large/CARD.md`` the
large one, which another distribution installs."""

from pathlib import Path

FOLDER = Path(__file__).parent
LARGE = FOLDER / "large"
"""The second encoder of `embedded-large`, if it is installed."""
