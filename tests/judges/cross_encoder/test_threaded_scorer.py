import asyncio
import logging
import subprocess
import sys
from threading import Event, get_ident

import pytest

from judges.cross_encoder.threaded_scorer import JudgeThreadPool

pytestmark = pytest.mark.anyio


async def test_results_and_errors_reach_their_callers() -> None:
    threads, loop = JudgeThreadPool(2), asyncio.get_running_loop()
    assert await loop.run_in_executor(threads, divmod, 7, 2) == (3, 1)
    with pytest.raises(MemoryError):
        await loop.run_in_executor(threads, _exhaust)
    assert await loop.run_in_executor(threads, divmod, 9, 2) == (4, 1)
    await threads.aclose()


async def test_jobs_run_concurrently_in_a_limited_number_of_threads() -> None:
    threads, loop = JudgeThreadPool(2), asyncio.get_running_loop()
    both, first = Event(), Event()

    def meet(mine: Event, other: Event) -> int:
        mine.set()
        assert other.wait(30)
        return get_ident()

    met = await asyncio.gather(
        loop.run_in_executor(threads, meet, first, both), loop.run_in_executor(threads, meet, both, first)
    )
    later = await asyncio.gather(*(loop.run_in_executor(threads, get_ident) for _ in range(8)))
    assert len(set(met)) == 2
    assert set(later) <= set(met)
    await threads.aclose()


async def test_closing_cancels_waiting_jobs() -> None:
    threads, loop = JudgeThreadPool(1), asyncio.get_running_loop()
    began, go_on = Event(), Event()
    running = loop.run_in_executor(threads, lambda: (began.set(), go_on.wait(30)))
    waiting = loop.run_in_executor(threads, get_ident)
    await asyncio.to_thread(began.wait, 30)
    closing = asyncio.ensure_future(threads.aclose(limit_s=30))
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    go_on.set()
    await closing
    assert (await running)[1]
    with pytest.raises(RuntimeError):
        threads.submit(get_ident)


async def test_low_priority_jobs_run_later_but_are_not_starved() -> None:
    threads, begun, go_on = JudgeThreadPool(1), Event(), Event()
    done: list[str] = []
    jobs = [threads.submit(lambda: (begun.set(), go_on.wait(30)))]
    await asyncio.to_thread(begun.wait, 30)
    jobs += [threads.low_priority.submit(done.append, f"read {number}") for number in range(2)]
    jobs += [threads.submit(done.append, f"claim {number}") for number in range(100)]
    go_on.set()
    await asyncio.gather(*map(asyncio.wrap_future, jobs))
    assert done[:2] == ["claim 0", "claim 1"]
    assert done.index("read 0") < done.index("read 1") < 70
    assert [each for each in done if each.startswith("claim")] == [f"claim {number}" for number in range(100)]
    await threads.aclose()


async def test_stuck_thread_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    threads, go_on = JudgeThreadPool(1), Event()
    stuck = threads.submit(go_on.wait, 30)
    with caplog.at_level(logging.WARNING):
        await threads.aclose(limit_s=0.01)
    go_on.set()
    assert "1 of 1 judge threads" in caplog.text
    assert await asyncio.wrap_future(stuck)


def test_stuck_thread_does_not_keep_the_process_alive() -> None:
    code = (
        "import asyncio, threading\n"
        "from judges.cross_encoder.threaded_scorer import JudgeThreadPool\n"
        "threads = JudgeThreadPool(1)\n"
        "threads.submit(threading.Event().wait)\n"
        "asyncio.run(threads.aclose(limit_s=0.01))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True)


def _exhaust() -> None:
    raise MemoryError
