"""Presets: a table of well-known grounding models, selected by name, and an adapter for each kind of model."""

from judges.cross_encoder.presets.preset_factory import open_preset
from judges.cross_encoder.presets.preset_table import Figure, Preset, find_preset, presets

__all__ = ["Figure", "Preset", "find_preset", "open_preset", "presets"]
