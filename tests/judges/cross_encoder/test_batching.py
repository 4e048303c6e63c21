import asyncio
from collections.abc import Sequence

import pytest

from judges.cross_encoder.batching import BatchingScorer
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError
from judges.testing import ScriptedJudge
from judges.types import Probabilities

pytestmark = pytest.mark.anyio


def by_claim_length(evidence: str, claim: str) -> Probabilities:
    p = len(claim) / 100
    return Probabilities(p, 1 - p, 0.0)


def words(count: int) -> str:
    return " ".join(["w"] * count)


async def settle() -> None:
    """Let every runnable task run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_each_caller_gets_its_own_results_in_order() -> None:
    batcher = BatchingScorer(ScriptedJudge(by_claim_length))
    await batcher.start()
    calls = [[("e", "x" * (n + i)) for i in (3, 1, 2)] for n in range(10)]
    results = await asyncio.gather(*(batcher.score(pairs) for pairs in calls))
    await batcher.aclose()
    assert [[one.entailed for one in result] for result in results] == [
        [(n + i) / 100 for i in (3, 1, 2)] for n in range(10)
    ]


async def test_calls_during_a_batch_share_the_next_one() -> None:
    judge = ScriptedJudge(gate=asyncio.Event())
    batcher = BatchingScorer(judge, max_batch_pairs=32)
    await batcher.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.score([("e", "first")]))
        await settle()
        assert judge.calls == [[("e", "first")]], "an idle batcher waits for nobody"
        for n in range(32):
            group.create_task(batcher.score([("e", f"c{n}")] * 2))
        await settle()
        assert batcher.queue_depth == 64
        assert judge.gate is not None
        judge.gate.set()
    await batcher.aclose()
    assert [len(call) for call in judge.calls] == [1, 32, 32]
    assert (batcher.batches, batcher.pairs, batcher.failed) == (3, 65, 0)


async def test_batch_groups_similar_lengths_within_its_padded_size() -> None:
    judge = ScriptedJudge(gate=asyncio.Event())
    batcher = BatchingScorer(judge, max_batch_pairs=8, max_batch_tokens=100)
    await batcher.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.score([("e", "first")]))
        await settle()
        lengths = [9, 49, 9, 49, 9, 49, 9, 49]
        group.create_task(batcher.score([("e", words(length)) for length in lengths]))
        await settle()
        assert judge.gate is not None
        judge.gate.set()
    await batcher.aclose()
    sizes = [[judge.count_tokens(a) + judge.count_tokens(b) for a, b in call] for call in judge.calls[1:]]
    assert sorted(sizes) == [[10] * 4, [50, 50], [50, 50]]


async def test_pair_longer_than_a_batch_is_scored_alone() -> None:
    judge = ScriptedJudge()
    batcher = BatchingScorer(judge, max_batch_tokens=10)
    await batcher.start()
    assert len(await batcher.score([("e", words(50)), ("e", "short")])) == 2
    await batcher.aclose()
    assert sorted(len(call) for call in judge.calls) == [1, 1]


async def test_longest_waiting_pair_is_always_in_the_next_batch() -> None:
    judge = ScriptedJudge(gate=asyncio.Event())
    batcher = BatchingScorer(judge, max_batch_pairs=2)
    await batcher.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.score([("e", "first")]))
        await settle()
        group.create_task(batcher.score([("e", words(90))]))
        await settle()
        for _ in range(6):
            group.create_task(batcher.score([("e", "short")]))
        await settle()
        assert judge.gate is not None
        judge.gate.set()
    await batcher.aclose()
    assert ("e", words(90)) in judge.calls[1]


async def test_overload_is_refused_at_once_and_ends_later() -> None:
    judge = ScriptedJudge(gate=asyncio.Event())
    batcher = BatchingScorer(judge, queue_limit=3)
    await batcher.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.score([("e", "running")]))
        await settle()
        group.create_task(batcher.score([("e", "a"), ("e", "b")]))
        await settle()
        with pytest.raises(JudgeOverloadedError, match="2 pairs are already waiting"):
            await batcher.score([("e", "c"), ("e", "d")])
        assert judge.gate is not None
        judge.gate.set()
    assert len(await batcher.score([("e", "c"), ("e", "d")])) == 2
    await batcher.aclose()


async def test_pairs_of_a_cancelled_caller_leave_the_queue() -> None:
    judge = ScriptedJudge(gate=asyncio.Event())
    batcher = BatchingScorer(judge)
    await batcher.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.score([("e", "running")]))
        await settle()
        gone = group.create_task(batcher.score([("e", "gone")] * 5))
        group.create_task(batcher.score([("e", "stays")]))
        await settle()
        gone.cancel()
        await settle()
        assert batcher.queue_depth == 1
        assert judge.gate is not None
        judge.gate.set()
    await batcher.aclose()
    assert ("e", "gone") not in judge.pairs


async def test_batch_error_reaches_only_its_callers() -> None:
    judge = ScriptedJudge(error=JudgeUnavailableError("gone"))
    batcher = BatchingScorer(judge)
    await batcher.start()
    with pytest.raises(JudgeUnavailableError, match="gone"):
        await batcher.score([("e", "c")])
    judge.error = None
    assert len(await batcher.score([("e", "c")])) == 1
    assert (batcher.pairs, batcher.failed) == (2, 1)
    await batcher.aclose()


async def test_failed_call_ignores_results_of_other_batches() -> None:
    class Half(ScriptedJudge):
        async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
            if pairs == [("e", "bad")]:
                raise JudgeError("half of it")
            return await super().score(pairs)

    gate = asyncio.Event()
    batcher = BatchingScorer(Half(gate=gate), max_batch_pairs=1, workers=2)
    await batcher.start()
    with pytest.raises(JudgeError, match="half of it"):
        await batcher.score([("e", "good"), ("e", "bad")])
    gate.set()
    assert len(await batcher.score([("e", "good")])) == 1
    await batcher.aclose()


async def test_backend_failure_becomes_a_judge_error() -> None:
    batcher = BatchingScorer(ScriptedJudge(error=ZeroDivisionError("oops")))
    await batcher.start()
    with pytest.raises(JudgeError, match="ZeroDivisionError: oops"):
        await batcher.score([("e", "c")])
    await batcher.aclose()


async def test_closing_fails_waiting_and_later_calls() -> None:
    judge = ScriptedJudge(gate=asyncio.Event())
    batcher = BatchingScorer(judge)
    await batcher.start()
    await batcher.start()
    tasks = [asyncio.ensure_future(batcher.score([("e", f"c{n}")])) for n in range(3)]
    await settle()
    await batcher.aclose()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [JudgeUnavailableError] * 3
    with pytest.raises(JudgeUnavailableError, match="not running"):
        await batcher.score([("e", "c")])
    assert judge.closed


async def test_empty_call_returns_no_results() -> None:
    batcher = BatchingScorer(ScriptedJudge(name="j", max_tokens=7))
    await batcher.start()
    results: Sequence[Probabilities] = await batcher.score([])
    assert (batcher.name, batcher.max_tokens, list(results)) == ("j", 7, [])
    await batcher.aclose()


async def test_several_workers_keep_several_batches_in_flight() -> None:
    judge = ScriptedJudge(gate=asyncio.Event())
    batcher = BatchingScorer(judge, max_batch_pairs=1, workers=2)
    await batcher.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.score([("e", "a"), ("e", "b"), ("e", "c")]))
        await settle()
        assert len(judge.calls) == 2
        assert judge.gate is not None
        judge.gate.set()
    await batcher.aclose()


async def test_stalled_time_is_measured() -> None:
    gate = asyncio.Event()
    batcher = BatchingScorer(ScriptedJudge(by_claim_length, gate=gate))
    await batcher.start()
    assert batcher.stalled_s == 0.0
    asked = asyncio.ensure_future(batcher.score([("e", "c")]))
    while batcher.stalled_s == 0.0:
        await settle()
    gate.set()
    await asked
    assert batcher.stalled_s == 0.0
    await batcher.aclose()
