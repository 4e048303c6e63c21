"""Verdicts of several batches of sources on one statement: which of them stands."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from judges.types import Label, Opinion

T = TypeVar("T")

_ORDER = (Label.SUPPORTED, Label.CONTRADICTED, Label.UNVERIFIABLE, Label.NOT_A_CLAIM)
"""Support in any batch goes before everything; a contradiction stands where no batch supports."""


def merge_labels(labels: Sequence[Label]) -> Label | None:
    return min(labels, key=_ORDER.index, default=None)


def merge_opinions(opinions: Sequence[Opinion]) -> Opinion:
    """Of the best kind the surest. ``opinions``: at least one."""
    readable = [opinion for opinion in opinions if opinion.readable]
    if not readable:
        return opinions[0]
    label = merge_labels([opinion.label for opinion in readable])
    return max((opinion for opinion in readable if opinion.label is label), key=lambda opinion: opinion.confidence)


async def gather(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """All results in order; the first error, once the others are cancelled and over."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
