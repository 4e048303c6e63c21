"""Policy templates, as data."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def templates() -> Sequence[Mapping[str, Any]]:
    """Return the templates, each as ``{name, category, description, rules}``. Omitted rules have their default
    values."""
    text = files(__name__).joinpath("templates.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["templates"])
