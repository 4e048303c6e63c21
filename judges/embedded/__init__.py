"""The model that ships with the project, as package data. What it is and what it is worth: ``CARD.md``."""

from pathlib import Path

FOLDER = Path(__file__).parent
