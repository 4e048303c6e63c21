"""The embedded model, as package data. ``CARD.md`` describes it and its accuracy."""

from pathlib import Path

FOLDER = Path(__file__).parent
