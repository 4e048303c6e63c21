"""Tunes Python so that the event loop of a worker never waits for long.

A garbage collection stops all threads, for up to a millisecond per thousand container objects. Reading a long reply
creates hundreds of thousands of them, nearly all of which are freed without the collector when the request ends.
"""

import asyncio
import gc
import sys
from typing import Final

_GENERATIONS: Final = (2_000, 2, 2**31 - 1)
"""The number of allocated container objects that triggers a collection of the youngest generation, and the number of
such collections that triggers a collection of the middle generation. Both are small, so that a collection traverses few
objects. The oldest generation is collected only by ``collect_regularly``."""

_SWITCH_S: Final = 0.001
"""Seconds until a thread hands the interpreter lock to a waiting thread. The event loop needs the lock several times
per request, so with Python's default of 5 ms, a few busy threads would delay each response considerably."""

_EVERY_S: Final = 10.0
_FEW_BLOCKS: Final = 60_000
"""If at most this many memory blocks have been added, a full collection takes only a few milliseconds."""
_DUE: Final = 10
"""The number of collections of the middle generation after which a full collection is due."""
_MOST_SKIPPED: Final = 60


def tune() -> None:
    """Tune this process. Call this once, after startup. It excludes all existing objects from collections, because
    traversing modules and models takes longer than traversing the objects that a second of requests creates."""
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GENERATIONS)


async def collect_regularly() -> None:
    """Run a full collection when one is due and will be quick, that is, while no long text is being read. If that
    doesn't happen for ten minutes, run it anyway."""
    blocks, skipped = sys.getallocatedblocks(), 0
    while True:
        await asyncio.sleep(_EVERY_S)
        if gc.get_count()[2] < _DUE:
            continue
        skipped += 1
        if sys.getallocatedblocks() - blocks <= _FEW_BLOCKS or skipped > _MOST_SKIPPED:
            gc.collect()
            blocks, skipped = sys.getallocatedblocks(), 0
