"""Many concurrent streams: they share batches, and none starves. Nothing in this module is timed."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from judges.checker import GroundingChecker
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.label_thresholds import Thresholds
from judges.protocols import JudgeOverloadedError
from judges.testing import ScriptedJudge, entails
from judges.types import Chunk, Label, Probabilities

pytestmark = pytest.mark.anyio

STREAMS = 32
SENTENCES = 12
TURNS_OF_THE_LOOP = 40
"""How long the judge takes for a batch."""


class SlowJudge(ScriptedJudge):
    """Takes some turns of the event loop for each batch, regardless of its size, like a model on a device."""

    def __init__(self) -> None:
        super().__init__(default=entails())
        self.most_at_once = self._at_once = 0

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        for _ in range(TURNS_OF_THE_LOOP):
            await asyncio.sleep(0)
        self._at_once -= 1
        return await super().score(pairs)


def sentence(stream: int, place: int) -> str:
    return f"Parcel {stream} of batch {place} {'was weighed and ' * (stream % 5)}left the depot."


async def run_stream(batcher: BatchingScorer, stream: int, finished: list[int]) -> list[Sequence[Probabilities]]:
    """One sentence after another, as in a stream: each is sent when the previous one has its verdict."""
    results = []
    for place in range(SENTENCES):
        pairs = [(f"window {window} of {stream}", sentence(stream, place)) for window in range(3)]
        results.append(await batcher.score(pairs))
        finished.append(stream)
    return results


async def test_streams_share_batches_and_none_starves() -> None:
    judge = SlowJudge()
    batcher = BatchingScorer(judge, workers=1)
    await batcher.start()
    finished: list[int] = []
    results = await asyncio.gather(*(run_stream(batcher, stream, finished) for stream in range(STREAMS)))
    await batcher.aclose()
    assert all(len(scores) == 3 for stream in results for scores in stream)
    assert len(judge.pairs) == batcher.pairs == STREAMS * SENTENCES * 3
    assert batcher.batches < STREAMS * SENTENCES / 4, "a batch holds the sentences of many streams"
    assert judge.most_at_once == 1
    mixed = [len({claim.split()[1] for _, claim in call}) for call in judge.calls]
    assert max(mixed) >= 8
    # When half of all sentences are done, no stream has fewer than a quarter of its own, and none has them all.
    half = [finished[: len(finished) // 2].count(stream) for stream in range(STREAMS)]
    assert min(half) >= SENTENCES / 4
    assert max(half) < SENTENCES


async def test_long_sentences_do_not_slow_down_streams_of_short_ones() -> None:
    judge = SlowJudge()
    batcher = BatchingScorer(judge, workers=1, max_batch_pairs=8)
    await batcher.start()
    order: list[str] = []

    async def stream(name: str, claim: str) -> None:
        for _ in range(SENTENCES):
            await batcher.score([("evidence", claim)])
            order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(stream("long", "word " * 90))
        for number in range(STREAMS):
            group.create_task(stream(f"short {number}", f"short {number}"))
    await batcher.aclose()
    turns = [place for place, name in enumerate(order) if name == "long"]
    gaps = [after - before for before, after in pairwise(turns)]
    assert max(gaps) <= 2 * STREAMS, "each round of the others, or two, it has its turn"


async def test_overload_is_refused_and_queued_pairs_are_served() -> None:
    judge = SlowJudge()
    batcher = BatchingScorer(judge, workers=1, queue_limit=64)
    await batcher.start()
    outcomes = await asyncio.gather(
        *(batcher.score([(f"e{stream}", "c")] * 8) for stream in range(STREAMS)), return_exceptions=True
    )
    assert len(await batcher.score([("e", "c")])) == 1, "and serves again when there is room"
    await batcher.aclose()
    served = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, JudgeOverloadedError)]
    assert len(served) + len(refused) == STREAMS
    assert len(served) >= 8
    assert batcher.overloaded == 8 * len(refused) > 0
    assert batcher.pairs == 8 * len(served) + 1


async def test_concurrent_whole_replies_share_batches() -> None:
    class Gated(BatchingScorer):
        """Its judge answers no one before five sentences of each stream have been submitted."""

        asked = 0

        async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
            self.asked += len(pairs)
            if self.asked >= 5 * STREAMS:
                gate.set()
            return await super().score(pairs)

    gate = asyncio.Event()
    batcher = Gated(ScriptedJudge(default=entails(), gate=gate), workers=1)
    checker = GroundingChecker(CachingScorer(batcher, max_bytes=1_000_000), timeout_s=600.0)
    await checker.start()

    async def one(stream: int) -> list[Label]:
        facts = [sentence(stream, place) for place in range(SENTENCES)]
        evidence = await checker.prepare([Chunk(id="d", text=" ".join(facts))])
        reply = checker.reply(evidence, thresholds=Thresholds())
        found = [*reply.push(" ".join(facts)), *reply.flush()]
        verdicts = await asyncio.gather(*(reply.check(sentence) for sentence in found))
        return [verdict.label for verdict in verdicts]

    labels = await asyncio.gather(*(one(stream) for stream in range(STREAMS)))
    await checker.aclose()
    assert labels == [[Label.SUPPORTED] * SENTENCES] * STREAMS
    assert batcher.batches < batcher.pairs - 4 * STREAMS, "those that waited went in full batches"
    assert (batcher.overloaded, batcher.failed) == (0, 0)
