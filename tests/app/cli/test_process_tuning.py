"""Full garbage collections happen regularly, but not while a long text is being read."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from app.cli import process_tuning
from app.cli.process_tuning import collect_regularly

pytestmark = pytest.mark.anyio


async def _collections(monkeypatch: pytest.MonkeyPatch, rounds: Sequence[tuple[int, int]]) -> list[int]:
    """Return the rounds in which a full collection happens. Each round has a number of memory blocks, and a number of
    collections of the middle generation since the last full collection."""
    now = 0
    collected: list[int] = []
    over = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        nonlocal now
        now += 1
        if now > len(rounds):
            over.set()
            await asyncio.Event().wait()

    fake_gc = SimpleNamespace(get_count=lambda: (0, 0, rounds[now - 1][1]), collect=lambda: collected.append(now))
    blocks = SimpleNamespace(getallocatedblocks=lambda: rounds[now - 1][0] if now else 1_000_000)
    monkeypatch.setattr(process_tuning, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(process_tuning, "gc", fake_gc)
    monkeypatch.setattr(process_tuning, "sys", blocks)
    task = asyncio.ensure_future(collect_regularly())
    await over.wait()
    task.cancel()
    return collected


async def test_full_collection_happens_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [(1_000_000, 3), (1_050_000, 12), (1_050_000, 0), (1_100_000, 10)]
    assert await _collections(monkeypatch, rounds) == [2, 4]


async def test_full_collection_waits_while_a_long_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [(3_000_000, 40), (4_000_000, 80), (1_020_000, 90)]
    assert await _collections(monkeypatch, rounds) == [3]


async def test_full_collection_does_not_wait_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _collections(monkeypatch, [(3_000_000, 40)] * 100) == [61, 62, *range(63, 101)]
