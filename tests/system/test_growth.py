"""Reading takes work in proportion to the text: counted in function calls, which no load on the machine disturbs."""

import asyncio
import sys
from types import FrameType
from typing import Any

import pytest

from benchmarks.growth import STAGES, shaped

_SIZE = 2_000
_FACTOR = 4
_MAX_RATIO = 5.0


def calls(stage: str, shape: str, size: int) -> int:
    """The calls of functions, ours and built-in ones, that reading ``size`` characters takes."""
    text = shaped(shape, size)
    counted = 0

    def count(_frame: FrameType, kind: str, _argument: Any) -> None:
        nonlocal counted
        counted += kind in ("call", "c_call")

    sys.setprofile(count)
    try:
        asyncio.run(STAGES[stage](text))
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize(
    ("stage", "shape"),
    [
        ("reply", "long table"),
        ("reply", "short sentences"),
        ("reply", "pronouns"),
        ("reply", "items"),
        ("reply", "semicolons"),
        ("whole", "headings"),
        ("json", "long table"),
        ("json", "wide JSON"),
        ("json", "deep JSON"),
        ("document", "short sentences"),
        ("request", "prose"),
    ],
)
def test_four_times_the_text_takes_at_most_five_times_the_calls(stage: str, shape: str) -> None:
    calls(stage, shape, 200)  # fills the caches
    once = calls(stage, shape, _SIZE)
    assert calls(stage, shape, _FACTOR * _SIZE) <= _MAX_RATIO * once
