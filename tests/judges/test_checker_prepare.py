"""Documents of many concurrent requests: how many of them are cut into evidence at a time."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from judges import checker as pipeline
from judges.checker import GroundingChecker
from judges.evidence.index import EvidenceIndex
from judges.label_thresholds import Thresholds
from judges.testing import ScriptedJudge, entails
from judges.text.languages.rules import claim_rules, harmless_rules
from judges.types import Chunk

pytestmark = pytest.mark.anyio


class Threads:
    """A replacement for threads: submitted work waits until ``opened`` is set."""

    def __init__(self) -> None:
        self.busy = 0
        self.opened = asyncio.Event()

    async def to_thread(self, work: Callable[..., Any], /, *given: Any) -> Any:
        self.busy += 1
        try:
            await self.opened.wait()
            return work(*given)
        finally:
            self.busy -= 1


@pytest.fixture
async def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    found = Threads()
    # Not in asyncio itself, which other servers in this process use.
    monkeypatch.setattr(pipeline, "asyncio", SimpleNamespace(**vars(asyncio) | {"to_thread": found.to_thread}))
    return found


def texts(index: EvidenceIndex) -> Sequence[str]:
    return [window.text for window in index.windows]


async def test_two_document_sets_are_prepared_at_a_time(threads: Threads) -> None:
    checker = GroundingChecker(None)
    said = [f"The gate {number} is red." for number in range(6)]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(checker.prepare([Chunk(id="a", text=text)])) for text in said]
        await anyio.wait_all_tasks_blocked()
        assert threads.busy == 2
        threads.opened.set()
    assert [texts(one.result()) for one in asked] == [[text] for text in said]


async def test_cancelled_document_sets_make_room_for_others(threads: Threads) -> None:
    checker = GroundingChecker(None)
    for _ in range(4):
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await checker.prepare([Chunk(id="a", text="The gate is red.")])
    threads.opened.set()
    async with asyncio.timeout(10):
        assert texts(await checker.prepare([Chunk(id="b", text="The lock is old.")])) == ["The lock is old."]


async def test_rules_of_languages_are_compiled_before_the_first_reply() -> None:
    """Compiling them takes 100 ms. On the event loop, this would delay all other requests."""
    rules = (claim_rules, harmless_rules)
    for one in rules:
        one.cache_clear()
    checker = GroundingChecker(ScriptedJudge(default=entails()))
    evidence = await checker.prepare([Chunk(id="a", text="The canteen opens at 8:00.")])
    compiled = [one.cache_info().misses for one in rules]
    checker.reply(evidence, thresholds=Thresholds())
    assert compiled == [one.cache_info().misses for one in rules] == [1, 1]
