"""Merges the verdicts that several batches of sources give on one statement."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from judges.llm_types import LlmVerdict
from judges.types import Label

T = TypeVar("T")

_ORDER = (Label.SUPPORTED, Label.CONTRADICTED, Label.UNVERIFIABLE, Label.NOT_A_CLAIM)
"""Labels in order of precedence: support in any batch comes first, then a contradiction."""


def merge_labels(labels: Sequence[Label]) -> Label | None:
    """Return the label that takes precedence, or None if there are no labels."""
    return min(labels, key=_ORDER.index, default=None)


def merge_verdicts(verdicts: Sequence[LlmVerdict]) -> LlmVerdict:
    """Return the most confident of the verdicts whose label takes precedence. ``verdicts`` must not be empty."""
    readable = [verdict for verdict in verdicts if verdict.readable]
    if not readable:
        return verdicts[0]
    label = merge_labels([verdict.label for verdict in readable])
    return max((verdict for verdict in readable if verdict.label is label), key=lambda verdict: verdict.confidence)


async def gather(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """Await all ``awaitables`` and return their results in order. If one fails, cancel the others, wait for them to
    end, and raise the first error."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
