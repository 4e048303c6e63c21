import asyncio
import gc
import tracemalloc

import pytest
from msgspec.structs import replace

from judges.cross_encoder import score_cache as caching
from judges.cross_encoder.score_cache import CachingScorer
from judges.protocols import JudgeError
from judges.testing import NEUTRAL, ScriptedJudge, contradicts, entails
from judges.types import EvidenceWindows

pytestmark = pytest.mark.anyio

BIG = 1_000_000


async def test_pair_is_scored_once_and_cached() -> None:
    judge = ScriptedJudge({"a": entails(), "b": contradicts()})
    cache = CachingScorer(judge, max_bytes=BIG)
    await cache.start()
    first = await cache.score([("e", "a"), ("e", "b"), ("e", "a")])
    second = await cache.score([("e", "b"), ("e", "c")])
    assert list(first) == [entails(), contradicts(), entails()]
    assert list(second) == [contradicts(), NEUTRAL]
    assert judge.calls == [[("e", "a"), ("e", "b")], [("e", "c")]]
    assert (cache.hits, cache.misses) == (2, 3)
    await cache.aclose()
    assert judge.closed


async def test_evidence_and_claim_are_separated_in_the_key() -> None:
    judge = ScriptedJudge({("ab", "c"): entails(), ("a", "bc"): contradicts()})
    cache = CachingScorer(judge, max_bytes=BIG)
    assert list(await cache.score([("ab", "c"), ("a", "bc")])) == [entails(), contradicts()]


async def test_windows_judged_together_differ_from_their_joined_text() -> None:
    judge = ScriptedJudge(lambda evidence, _: entails() if isinstance(evidence, EvidenceWindows) else contradicts())
    cache = CachingScorer(judge, max_bytes=BIG)
    assert list(await cache.score([("a\nb", "c")])) == [contradicts()]
    assert list(await cache.score([(EvidenceWindows(["a", "b"]), "c")])) == [entails()]


async def test_least_recently_used_entries_are_evicted() -> None:
    judge = ScriptedJudge()
    cache = CachingScorer(judge, max_bytes=800)
    for claim in ("a", "b", "a", "c"):
        await cache.score([("e", claim)])
    assert (len(cache), cache.evictions) == (2, 1)
    assert cache.nbytes <= 800
    judge.calls.clear()
    await cache.score([("e", "a"), ("e", "c"), ("e", "b")])
    assert judge.calls == [[("e", "b")]]


async def test_parts_of_a_score_count_in_the_size() -> None:
    parts = (entails(), NEUTRAL, contradicts())
    judge = ScriptedJudge({"a": replace(entails(), parts=parts), "b": NEUTRAL})
    cache = CachingScorer(judge, max_bytes=1200)
    (first,) = await cache.score([("e", "a")])
    assert first.parts == parts
    assert cache.nbytes == 400 + 3 * 160
    await cache.score([("e", "b")])
    assert (len(cache), cache.nbytes) == (1, 400)


async def test_cache_without_memory_still_answers() -> None:
    cache = CachingScorer(ScriptedJudge({"a": entails()}), max_bytes=0)
    assert list(await cache.score([("e", "a")])) == [entails()]
    assert len(cache) == 0


async def test_concurrent_equal_pairs_are_scored_once() -> None:
    judge = ScriptedJudge({"a": entails()}, gate=asyncio.Event())
    cache = CachingScorer(judge, max_bytes=BIG)
    tasks = [asyncio.ensure_future(cache.score([("e", "a")])) for _ in range(3)]
    await asyncio.sleep(0)
    assert judge.gate is not None
    judge.gate.set()
    assert [list(result) for result in await asyncio.gather(*tasks)] == [[entails()]] * 3
    assert (len(judge.calls), cache.hits, cache.misses) == (1, 2, 1)


async def test_waiter_scores_the_pair_if_the_first_caller_is_cancelled() -> None:
    judge = ScriptedJudge({"a": entails()}, gate=asyncio.Event())
    cache = CachingScorer(judge, max_bytes=BIG)
    first = asyncio.ensure_future(cache.score([("e", "a")]))
    second = asyncio.ensure_future(cache.score([("e", "a")]))
    await asyncio.sleep(0)
    first.cancel()
    assert judge.gate is not None
    judge.gate.set()
    assert list(await second) == [entails()]
    assert first.cancelled()


async def test_cancelled_waiter_does_not_disturb_the_first_caller() -> None:
    judge = ScriptedJudge({"a": entails()}, gate=asyncio.Event())
    cache = CachingScorer(judge, max_bytes=BIG)
    first = asyncio.ensure_future(cache.score([("e", "a")]))
    second = asyncio.ensure_future(cache.score([("e", "a")]))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    assert judge.gate is not None
    judge.gate.set()
    assert list(await first) == [entails()]


async def test_errors_are_not_cached() -> None:
    judge = ScriptedJudge({"a": entails()}, error=JudgeError("no"))
    cache = CachingScorer(judge, max_bytes=BIG)
    with pytest.raises(JudgeError, match="no"):
        await cache.score([("e", "a")])
    judge.error = None
    assert list(await cache.score([("e", "a")])) == [entails()]


async def test_lone_surrogate_is_accepted() -> None:
    cache = CachingScorer(ScriptedJudge(), max_bytes=BIG)
    assert list(await cache.score([("\ud83d", "a")])) == [NEUTRAL]


async def test_memory_use_is_bounded() -> None:
    judge = ScriptedJudge(lambda evidence, claim: entails(len(claim) / 1e6))
    cache = CachingScorer(judge, max_bytes=BIG)
    tracemalloc.start()
    for part in range(4):
        await cache.score([("e", f"{part} {number} claim") for number in range(1000)])
    judge.calls.clear()
    gc.collect()
    own = tracemalloc.Filter(
        inclusive=True, filename_pattern=caching.__file__
    )  # without the memory of the coverage tool
    kept = sum(one.size for one in tracemalloc.take_snapshot().filter_traces([own]).statistics("filename"))
    tracemalloc.stop()
    assert cache.nbytes == len(cache) * 400 <= BIG
    assert cache.evictions == 4000 - len(cache) > 0
    assert 0 < kept <= BIG
