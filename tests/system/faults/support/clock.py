"""A wall clock under test control, for all code in the gateway that reads it. Monotonic clocks are unchanged."""

import datetime as library
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_REAL = library.datetime


class Clock:
    """``ahead``: the offset of the wall clock."""

    def __init__(self) -> None:
        self.ahead = library.timedelta()


@contextmanager
def adjustable_clock() -> Iterator[Clock]:
    """Inside the block, every module of the gateway uses the yielded clock."""
    clock = Clock()

    class Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, _REAL)

    class Adjustable(_REAL, metaclass=Meta):
        @classmethod
        def now(cls, tz: library.tzinfo | None = None) -> Any:
            return _REAL.now(tz) + clock.ahead

    ours = [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in ("app", "policies", "judges") and getattr(module, "datetime", None) is _REAL
    ]
    for module in ours:
        vars(module)["datetime"] = Adjustable
    try:
        yield clock
    finally:
        for module in ours:
            vars(module)["datetime"] = _REAL
