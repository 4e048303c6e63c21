"""Compares the cost of a remote judge with that of the in-process judge, on the same replies, alternating in one run.

    serve run deploy/ray/serve.yaml
    python -m benchmarks.judging.remote_judge groundlane+http://127.0.0.1:8000 ray::ServeReplica ray::ProxyActor

Eight clients check replies as fast as possible. Each reply has five sentences and five new chunks of 150 words. The CPU
time includes this process and all processes whose command lines contain the given words. ``--key`` is the API key, if
the server requires one. The exit code is 1 if a verdict differs from that of the in-process judge. To test a failure,
you can kill a replica during the run.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.generated_texts import chunk, sentence
from judges.checker import GroundingChecker
from judges.cross_encoder import open_scorer, spec_languages
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.remote.http_scorer import HttpScorer
from judges.label_thresholds import Thresholds
from judges.protocols import PairScorer
from judges.types import Chunk

_CLIENTS = 8
_CHUNKS = 5
_SENTENCES = 5
_ROUNDS = 3
_TICK_MS = 1e3 / os.sysconf("SC_CLK_TCK")

Found = tuple[tuple[str, float, str | None], ...]


@dataclass
class Run:
    """The results of one kind of judge: the cost, and the labels of each reply by its number."""

    found: dict[int, Found]
    seconds: float = 0.0
    cpu_ms: tuple[float, ...] = ()
    slowest_s: float = 0.0

    @property
    def claims(self) -> int:
        return sum(map(len, self.found.values()))


async def run(scorer: PairScorer, languages: frozenset[str] | None, numbers: range, words: Sequence[str]) -> Run:
    """Check the replies with these numbers, and close the judge."""
    checker = GroundingChecker(BatchingScorer(scorer), languages=languages, timeout_s=60.0)
    await checker.start()
    if not checker.available:
        sys.exit(f"the judge is unavailable: {checker.error}")
    done = Run({})
    waiting = iter(numbers)

    async def client() -> None:
        for number in waiting:
            begun = time.monotonic()
            done.found[number] = await _check(checker, number)
            done.slowest_s = max(done.slowest_s, time.monotonic() - begun)

    begun, before = time.monotonic(), _cpu_ms(words)
    async with asyncio.TaskGroup() as group:
        for _ in range(_CLIENTS):
            group.create_task(client())
    done.seconds = time.monotonic() - begun
    done.cpu_ms = tuple(now - then for now, then in zip(_cpu_ms(words), before, strict=True))
    await checker.aclose()
    return done


async def _check(checker: GroundingChecker, number: int) -> Found:
    places = range(number * _CHUNKS, (number + 1) * _CHUNKS)
    evidence = await checker.prepare([Chunk(id=str(place), text=f"{chunk(place)} Number {place}.") for place in places])
    reply = checker.reply(evidence, thresholds=Thresholds())
    text = " ".join(sentence(number * _CHUNKS + place) for place in range(_SENTENCES))
    for one in [*reply.push(text), *reply.flush()]:
        await reply.check(one)
    return tuple((claim.label.value, claim.entailed, claim.reason) for claim in reply.report().claims)


def _cpu_ms(words: Sequence[str]) -> tuple[float, ...]:
    return (time.process_time() * 1e3, *map(_cpu_ms_of, words))


def _cpu_ms_of(word: str) -> float:
    total = 0.0
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and word.encode() in (process / "cmdline").read_bytes():
                fields = (process / "stat").read_text("utf-8").rsplit(")", 1)[1].split()
                total += (int(fields[11]) + int(fields[12])) * _TICK_MS
        except OSError:
            continue  # it has ended
    return total


async def main(url: str, key: str | None, words: Sequence[str], replies: int) -> int:
    """Run the benchmark, print a table, and return the number of replies with different verdicts."""
    wrong = 0
    print("| judge | claims per second | slowest reply, s |", " | ".join(["CPU ms per claim: here", *words]), "|")
    print("|---|---|---|" + "---|" * (len(words) + 1))
    for turn in range(_ROUNDS):
        numbers = range(turn * replies, (turn + 1) * replies)
        here = open_scorer("embedded")
        if here is None:
            raise AssertionError("the embedded judge is missing")
        near = await run(here, spec_languages("embedded"), numbers, words)
        far = await run(HttpScorer(url, api_key=key, timeout_s=30.0), None, numbers, words)
        wrong += sum(near.found[number] != far.found[number] for number in numbers)
        for name, one in (("in process", near), (url, far)):
            costs = " | ".join(f"{cost / one.claims:.1f}" for cost in one.cpu_ms)
            print(f"| {name} | {one.claims / one.seconds:.1f} | {one.slowest_s:.1f} | {costs} |")
    print(f"{wrong} of {_ROUNDS * replies} replies have different verdicts than in-process")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("words", nargs="*", help="words in the command lines of measured processes")
    parser.add_argument("--key")
    parser.add_argument("--replies", type=int, default=20, help="number of replies per round")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.url, given.key, given.words, given.replies)) > 0)
