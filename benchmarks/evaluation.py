"""How fast an evaluation is beside the judge alone, over the same pairs, in one run on one machine.

    python -m benchmarks.evaluation [--claims 10000] [--input cases.jsonl] [--slice 100] [--limit-ratio 0.85]

An evaluation reads cases, cuts answers into claims and documents into passages, judges, compares numbers and names,
keeps verdicts in a cache and writes a file for each case. The judge alone scores the pairs that the evaluation asked
about, in the same order, by as many threads and on the same kind of event loop, with so many calls in flight that no
thread waits for one, its evidence read anew. The two take turns, a slice of the cases each, so that a machine that is
now quick and now slow is so for both. Prints pairs a second of either, their ratio by the clock and by CPU time, and
claims a second; exit code 1 if the ratio by the clock is under ``--limit-ratio``. By the clock the figures mean
something on a quiet machine only.

Without ``--input``: cases of five claims against three documents of 150 words, no two alike.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from app.evaluation.cache import VerdictCache
from app.evaluation.cases import Case, as_documents
from app.evaluation.evaluator import Evaluator
from app.evaluation.judging import CaseJudge, JudgeKind
from app.evaluation.reading import read_cases
from app.evaluation.running import brisk, run_cases
from app.evaluation.store import RunFolder
from benchmarks.texts import chunk
from judges import embedded
from judges.base import PairScorer
from judges.cross_encoder import PrefixScorer
from judges.types import Probabilities
from judges.wrapper import ScorerWrapper

_CLAIMS = 5
_DOCUMENTS = 3
_IN_FLIGHT = 16
"""Calls of the judge alone, for each of its threads."""

Pairs = Sequence[tuple[str, str]]


@dataclass(slots=True)
class Taken:
    """Time that one side has taken so far."""

    clock: float = 0.0
    cpu: float = 0.0


class Noting(ScorerWrapper):
    """Notes what is asked."""

    def __init__(self, scorer: PairScorer) -> None:
        super().__init__(scorer)
        self.asked: list[Pairs] = []

    async def score(self, pairs: Pairs) -> Sequence[Probabilities]:
        self.asked.append(list(pairs))
        return await super().score(pairs)


def made_cases(claims: int) -> Iterator[Case]:
    for number in range(claims // _CLAIMS):
        documents = [chunk(number * _DOCUMENTS + place) for place in range(_DOCUMENTS)]
        sentences = [sentence + "." for text in documents for sentence in text.removesuffix(".").split(". ")]
        answer = " ".join(sentences[(number + 2 * place) % len(sentences)] for place in range(_CLAIMS))
        yield Case(case_id=f"case-{number}", output=answer, documents=as_documents(documents))


async def evaluate(cases: Sequence[Case], scorer: Noting, folder: Path) -> int:
    """Run an evaluation of ``cases``; the number of claims."""
    judge = CaseJudge(JudgeKind.CROSS_ENCODER, scorer=_Kept(scorer))
    async with Evaluator(judge, VerdictCache(folder / "cache.sqlite3")) as evaluator:
        summary = await run_cases(evaluator, cases, RunFolder(folder), lambda _line: None)
    return summary.claims["total"]


class _Kept(ScorerWrapper):
    """Outlives the evaluation that it is lent to."""

    async def aclose(self) -> None:
        pass


async def score(asked: Sequence[Pairs], scorer: PrefixScorer) -> None:
    """The judge alone over what was asked."""
    waiting = iter(asked)

    async def work() -> None:
        for pairs in waiting:
            await scorer.score(pairs)

    async with asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT * scorer.concurrency):
            group.create_task(work())


async def measure(arguments: argparse.Namespace) -> int:
    cases = list(read_cases(arguments.input) if arguments.input else made_cases(arguments.claims))
    noting = Noting(PrefixScorer(embedded.FOLDER, label="embedded"))
    alone = PrefixScorer(embedded.FOLDER, label="embedded")
    await noting.start()
    await alone.start()
    whole, bare = Taken(), Taken()
    claims = pairs = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(0, len(cases), arguments.slice):
            part = cases[number : number + arguments.slice]
            with _counted(whole):
                claims += await evaluate(part, noting, Path(folder) / str(number))
            asked, noting.asked = noting.asked, []
            pairs += sum(len(one) for one in asked)
            with _counted(bare), brisk():
                await score(asked, alone)
    await noting.aclose()
    await alone.aclose()
    print(f"{len(cases)} cases, {claims} claims, {pairs} pairs; {noting.name}, {alone.concurrency} at once\n")
    print(f"{'':20} {'pairs/s':>9} {'claims/s':>9} {'CPU ms/claim':>13}")
    for name, taken in (("evaluation", whole), ("judge alone", bare)):
        speed = f"{pairs / taken.clock:9.1f} {claims / taken.clock:9.1f}"
        print(f"{name:20} {speed} {taken.cpu / claims * 1e3:13.2f}")
    ratio = bare.clock / whole.clock
    print(f"\nratio {ratio:.3f} by the clock, {bare.cpu / whole.cpu:.3f} by CPU time")
    return int(ratio < arguments.limit_ratio)


@contextmanager
def _counted(taken: Taken) -> Iterator[None]:
    clock, cpu = time.perf_counter(), time.process_time()
    yield
    taken.clock += time.perf_counter() - clock
    taken.cpu += time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--slice", type=int, default=100)
    parser.add_argument("--limit-ratio", type=float, default=0.85)
    sys.exit(uvloop.run(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
