"""Compares the speed of an evaluation with the speed of the judge alone, on the same pairs, in one run on one machine.

    python -m benchmarks.judging.evaluation_speed [--claims 10000] [--input cases.jsonl] [--slice 100]
                                                  [--limit-ratio 0.85]

An evaluation reads cases, splits answers into claims and documents into passages, judges claims, compares numbers and
names, caches verdicts, and writes a file for each case. The judge alone scores the same pairs without cached evidence.
The pairs are collected beforehand, which isn't timed. Both sides use one process per core, each with a single-threaded
judge that receives one case at a time. The two sides take turns after each slice of cases, so changes in machine speed
affect both. Start-up time is excluded. Prints pairs per second for both sides, their ratio in wall-clock and CPU time,
and claims per second. The exit code is 1 if the wall-clock ratio is below ``--limit-ratio``. Wall-clock figures are
meaningful only on an idle machine.

Without ``--input``, each case has five claims and three documents of 150 words, all different. Requires Linux.
"""

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from app.evaluation.cases.case import Case, read_case
from app.evaluation.cases.case_files import read_cases
from app.evaluation.judging.case_judge import CaseJudge, JudgeKind
from app.evaluation.judging.evaluator import Evaluator, open_evaluator
from app.evaluation.runs.run import run_cases
from app.evaluation.runs.run_folder import RunFolder
from app.settings import Settings
from benchmarks.support.generated_texts import chunk
from judges import embedded
from judges.cross_encoder import CachedEvidenceScorer
from judges.cross_encoder.model_files import cores
from judges.cross_encoder.scorer_wrapper import ScorerWrapper
from judges.protocols import PairScorer
from judges.types import Probabilities

_CLAIMS = 5
_DOCUMENTS = 3
_TICKS = os.sysconf("SC_CLK_TCK")

Pairs = Sequence[tuple[str, str]]


@dataclass(slots=True)
class Taken:
    """The time that one side has used so far."""

    clock: float = 0.0
    cpu: float = 0.0


class Noting(ScorerWrapper):
    """Records the pairs that are scored."""

    def __init__(self, scorer: PairScorer) -> None:
        super().__init__(scorer)
        self.asked: list[Pairs] = []

    async def score(self, pairs: Pairs) -> Sequence[Probabilities]:
        self.asked.append(list(pairs))
        return await super().score(pairs)


class Alone:
    """The judge in a separate process. One instance records the pairs of a case, and the other has an empty cache."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._noting = Noting(CachedEvidenceScorer(embedded.FOLDER, threads=1))
        self._judge = CaseJudge(JudgeKind.CROSS_ENCODER, scorer=self._noting)
        self._bare = CachedEvidenceScorer(embedded.FOLDER, threads=1)
        self._runner.run(self._judge.start())
        self._runner.run(self._bare.start())

    def note(self, case: Case) -> Sequence[Pairs]:
        self._noting.asked = []
        self._runner.run(self._judge.judge(case))
        return self._noting.asked

    def score(self, asked: Sequence[Pairs]) -> None:
        self._runner.run(self._all(asked))

    async def _all(self, asked: Sequence[Pairs]) -> None:
        await asyncio.gather(*(self._bare.score(pairs) for pairs in asked))


_alone: list[Alone] = []
"""The judge in a worker process that runs only the judge."""


def start() -> None:
    _alone.append(Alone())


def note(case: Case) -> Sequence[Pairs]:
    return _alone[0].note(case)


def score(asked: Sequence[Pairs]) -> None:
    _alone[0].score(asked)


def made_cases(claims: int) -> Iterator[Case]:
    for number in range(claims // _CLAIMS):
        documents = [chunk(number * _DOCUMENTS + place) for place in range(_DOCUMENTS)]
        sentences = [sentence + "." for text in documents for sentence in text.removesuffix(".").split(". ")]
        answer = " ".join(sentences[(number + 2 * place) % len(sentences)] for place in range(_CLAIMS))
        yield read_case({"case_id": f"case-{number}", "output": answer, "documents": documents})


def starters() -> Iterator[Case]:
    """Yield cases for warming up the processes."""
    for number in range(8 * cores()):
        output = f"The office opens at {number}."
        yield read_case({"case_id": f"start-{number}", "output": output, "documents": ["The office opens at nine."]})


async def evaluate(cases: Sequence[Case], evaluator: Evaluator, folder: Path) -> int:
    """Evaluate ``cases`` and return the number of claims."""
    summary = await run_cases(evaluator, cases, RunFolder(folder), lambda _line: None)
    return summary.claims["total"]


async def measure(arguments: argparse.Namespace, alone: ProcessPoolExecutor) -> int:
    cases = list(read_cases(arguments.input) if arguments.input else made_cases(arguments.claims))
    whole, bare = Taken(), Taken()
    claims = pairs = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = Settings(_env_file=None)
        async with open_evaluator(settings, cache=folder / "cache.sqlite3", processes=cores()) as evaluator:
            await evaluate(list(starters()), evaluator, folder / "start")
            for number in range(0, len(cases), arguments.slice):
                part = cases[number : number + arguments.slice]
                asked = list(alone.map(note, part))
                pairs += sum(len(one) for case in asked for one in case)
                with _counted(whole):
                    claims += await evaluate(part, evaluator, folder / str(number))
                with _counted(bare):
                    list(alone.map(score, asked))
            named = evaluator.judge.name
    print(f"{len(cases)} cases, {claims} claims, {pairs} pairs; {named}, {cores()} processes\n")
    print(f"{'':20} {'pairs/s':>9} {'claims/s':>9} {'CPU ms/claim':>13}")
    for name, taken in (("evaluation", whole), ("judge alone", bare)):
        speed = f"{pairs / taken.clock:9.1f} {claims / taken.clock:9.1f}"
        print(f"{name:20} {speed} {taken.cpu / claims * 1e3:13.2f}")
    ratio = bare.clock / whole.clock
    print(f"\nratio {ratio:.3f} in wall-clock time, {bare.cpu / whole.cpu:.3f} in CPU time")
    return int(ratio < arguments.limit_ratio)


@contextmanager
def _counted(taken: Taken) -> Iterator[None]:
    clock, cpu = time.perf_counter(), _cpu()
    yield
    taken.clock += time.perf_counter() - clock
    taken.cpu += _cpu() - cpu


def _cpu() -> float:
    """Return the CPU seconds used by this process and its children."""
    children = (process.pid for process in multiprocessing.active_children())
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in children)
    return time.process_time() + sum((int(one[11]) + int(one[12])) / _TICKS for one in stats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--slice", type=int, default=100)
    parser.add_argument("--limit-ratio", type=float, default=0.85)
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores(), mp_context=spawn, initializer=start) as alone:
        code = uvloop.run(measure(arguments, alone))
    sys.exit(code)


if __name__ == "__main__":
    main()
