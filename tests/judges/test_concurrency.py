import asyncio
import threading
from contextvars import ContextVar
from itertools import pairwise

import pytest

from judges.concurrency import FreedInSteps, Turns, run


@pytest.mark.anyio
async def test_turns_let_other_tasks_run_every_few_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    steps: list[str] = []
    monkeypatch.setattr("judges.concurrency.monotonic", lambda: clock[0])

    async def loop() -> None:
        turns = Turns()
        for _ in range(40):
            await turns.take()
            clock[0] += 0.001
            steps.append("step")

    async def other() -> None:
        for _ in range(5):
            steps.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(loop(), other())
    places = [place for place, step in enumerate(steps) if step == "other"]
    assert len(places) == 5
    assert max(after - before for before, after in pairwise(places)) <= 5


@pytest.mark.anyio
@pytest.mark.parametrize("inline", [True, False])
async def test_run_calls_inline_or_on_a_thread(inline: bool) -> None:
    def on_loop() -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    assert await run(inline, on_loop) is inline


@pytest.mark.anyio
async def test_run_uses_two_threads_at_most() -> None:
    running: set[threading.Thread] = set()
    most = 0
    pair = threading.Barrier(2)

    def work() -> None:
        nonlocal most
        running.add(threading.current_thread())
        most = max(most, len(running))
        pair.wait()

    await asyncio.gather(*(run(False, work) for _ in range(12)))
    assert most == 2


_CALLER: ContextVar[str] = ContextVar("caller")


@pytest.mark.anyio
async def test_run_keeps_the_context_on_a_thread() -> None:
    _CALLER.set("me")
    assert await run(False, _CALLER.get) == "me"


class _Item:
    def __init__(self, freed_by: list[threading.Thread]) -> None:
        self._freed_by = freed_by

    def __del__(self) -> None:
        self._freed_by.append(threading.current_thread())


def test_long_list_is_freed_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judges.concurrency._FREED_AFTER_S", 0)
    freed_by: list[threading.Thread] = []
    before = set(threading.enumerate())
    items = FreedInSteps(_Item(freed_by) for _ in range(1_000))
    kept = items[500]
    del items
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert len(freed_by) == 999
    assert threading.current_thread() not in freed_by
    del kept
    assert freed_by[-1] is threading.current_thread()


def test_short_list_is_freed_at_once() -> None:
    freed_by: list[threading.Thread] = []
    items = FreedInSteps(_Item(freed_by) for _ in range(100))
    del items
    assert freed_by == [threading.current_thread()] * 100
