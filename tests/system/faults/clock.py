"""A wall clock that tests set, under everything in the gateway that reads it. Clocks that only count are left alone."""

import datetime as library
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_REAL = library.datetime


class Clock:
    """``ahead``: by how much the wall clock is off."""

    def __init__(self) -> None:
        self.ahead = library.timedelta()


@contextmanager
def adjustable_clock() -> Iterator[Clock]:
    """Within the block every module of the gateway tells the time by the clock that it yields."""
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
