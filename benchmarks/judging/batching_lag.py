"""Measures the event-loop lag while many streams share one judge, and the number of pairs per batch.

    python -m benchmarks.judging.batching_lag [--streams 32] [--sentences 12] [--judge embedded] [--pause-ms 150]

Each stream adds a sentence every ``--pause-ms`` milliseconds and checks it against its documents. All documents are
different, so the cache has no effect. A probe wakes up every millisecond and records its delay. For comparison, the
same probe first runs on an idle loop. The exit code is 1 if 1 % of the delays exceed ``--limit-ms``. The results are
meaningful only on an idle machine. The run ends after a fixed number of streams and sentences.
"""

import argparse
import asyncio
import random
import statistics
import sys
from collections.abc import Sequence
from contextlib import suppress

from judges.checker import GroundingChecker
from judges.cross_encoder import open_scorer, spec_languages
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.label_thresholds import Thresholds
from judges.types import Chunk, Label

PROBE_S = 0.001
THINGS = ("gate", "lift", "pump", "boiler", "ramp", "valve", "kiosk", "tower", "bridge", "hall")
PLACES = ("north", "south", "east", "west", "upper", "lower", "inner", "outer")


def fact(rng: random.Random, stream: int, place: int) -> str:
    thing, where = rng.choice(THINGS), rng.choice(PLACES)
    return f"The {thing} {stream}-{place} on the {where} side was inspected on day {rng.randint(1, 365)} of the year."


async def probe(samples: list[float]) -> None:
    """Record the delay of each wake-up, in milliseconds."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + PROBE_S
        await asyncio.sleep(PROBE_S)
        samples.append((clock() - due) * 1e3)


async def run_stream(checker: GroundingChecker, stream: int, sentences: int, pause_s: float) -> list[float]:
    """Return how many milliseconds each sentence of one reply waited for its verdict."""
    rng = random.Random(stream)
    clock = asyncio.get_running_loop().time
    facts = [fact(rng, stream, place) for place in range(sentences)]
    others = [fact(rng, stream, place + sentences) for place in range(20)]
    evidence = await checker.prepare([Chunk(id="a", text=" ".join(facts)), Chunk(id="b", text=" ".join(others))])
    reply = checker.reply(evidence, thresholds=Thresholds())
    waits = []
    await asyncio.sleep(rng.random() * pause_s)
    for text in [*facts, ""]:
        arrived = [*reply.push(text + " ")] if text else [*reply.flush()]
        for sentence in arrived:
            began = clock()
            verdict = await reply.check(sentence)
            waits.append((clock() - began) * 1e3)
            if verdict.label is not Label.SUPPORTED:
                print(f"stream {stream}: {verdict.label} ({[claim.reason for claim in verdict.claims]})")
        await asyncio.sleep(pause_s)
    return waits


def share(samples: Sequence[float], percent: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def row(name: str, samples: Sequence[float]) -> str:
    figures = (statistics.median(samples), share(samples, 95), share(samples, 99), max(samples))
    return f"{name:28} " + "  ".join(f"{figure:8.2f}" for figure in figures) + f"  {len(samples):6d}"


async def measure(arguments: argparse.Namespace) -> int:
    scorer = open_scorer(arguments.judge, threads=arguments.threads)
    if scorer is None:
        print("a judge is needed")
        return 2
    batcher = BatchingScorer(scorer)
    checker = GroundingChecker(
        CachingScorer(batcher, max_bytes=32 << 20), languages=spec_languages(arguments.judge), timeout_s=60.0
    )
    await checker.start()
    if checker.error is not None:
        print(checker.error)
        return 2
    idle: list[float] = []
    lag: list[float] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            await probe(idle)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(probe(lag))
        waits = await asyncio.gather(
            *(
                run_stream(checker, stream, arguments.sentences, arguments.pause_ms / 1e3)
                for stream in range(arguments.streams)
            )
        )
        watching.cancel()
    print(f"{checker.name}, {arguments.streams} streams of {arguments.sentences} sentences")
    print(f"{batcher.pairs} pairs in {batcher.batches} batches: {batcher.pairs / batcher.batches:.1f} per batch\n")
    print(f"{'milliseconds':28} {'median':>8}  {'p95':>8}  {'p99':>8}  {'max':>8}  {'n':>6}")
    print(row("event-loop lag, idle", idle))
    print(row(f"event-loop lag, {arguments.streams} streams", lag))
    print(row("a sentence's verdict", [wait for stream in waits for wait in stream]))
    await checker.aclose()
    return int(share(lag, 99) > arguments.limit_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--sentences", type=int, default=12)
    parser.add_argument("--pause-ms", type=float, default=150.0)
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--limit-ms", type=float, default=10.0)
    sys.exit(asyncio.run(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
