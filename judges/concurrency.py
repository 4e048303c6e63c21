"""When work leaves the event loop: the limits, and the one function that applies them."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_INLINE_SPLIT_CHARS: Final = 20_000
"""A piece of a reply of up to this many characters is split into sentences on the event loop; a longer one, on a
thread."""

MAX_INLINE_REPLY_CHARS: Final = 10_000
"""A reply of up to this many characters is summed up on the event loop; a longer one, on a thread."""

MAX_INLINE_CHARS: Final = 600
"""A claim of up to this many characters is parsed on the event loop; a longer one, on a thread."""

MAX_INLINE_COMPARISONS: Final = 400
"""Up to this many pairs of a quantity in the claim and one in its evidence are compared on the event loop, which takes
well under a millisecond; more, on a thread."""

_STEPS_IN_A_TURN: Final = 8


async def run(inline: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` on the event loop if ``inline``, for work that takes little longer than waking a thread;
    otherwise on a thread."""
    return function(*args, **kwargs) if inline else await asyncio.to_thread(function, *args, **kwargs)


class Turns:
    """Lets other tasks run from time to time in a loop that may never have to wait."""

    def __init__(self) -> None:
        self._left = _STEPS_IN_A_TURN

    async def take(self) -> None:
        """Call it before each step of the loop, of a millisecond at most."""
        self._left -= 1
        if not self._left:
            self._left = _STEPS_IN_A_TURN
            await asyncio.sleep(0)
