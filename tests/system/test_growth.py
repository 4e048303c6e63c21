"""The work of reading is proportional to the text: counted in function calls, so that other load on the machine doesn't
matter."""

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
    """The number of function calls, ours and built-in ones, for reading ``size`` characters."""
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
