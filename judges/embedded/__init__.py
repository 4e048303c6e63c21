"""The embedded models, as package data. ``CARD.md`` describes the small model and its accuracy. ``large/CARD.md``
describes the large model, which is installed by a separate distribution."""

from pathlib import Path

FOLDER = Path(__file__).parent
LARGE = FOLDER / "large"
"""The second encoder of `embedded-large`, if it is installed."""
