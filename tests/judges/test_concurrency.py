import asyncio
from itertools import pairwise

import pytest

from judges.concurrency import Turns, run


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
