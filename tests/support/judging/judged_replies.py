"""Replies with their documents and a judge's verdicts, for comparing a remote judge with the in-process one."""

from collections.abc import Collection, Sequence
from pathlib import Path

from app.evaluation.cases.case_files import read_cases
from judges.checker import GroundingChecker
from judges.cross_encoder.batching import BatchingScorer
from judges.label_thresholds import Thresholds
from judges.protocols import PairScorer
from judges.types import Chunk, GroundingReport

SAMPLE = Path(__file__).parents[3] / "app" / "evaluation" / "sample.jsonl"

Reply = tuple[str, Sequence[Chunk]]


def replies() -> list[Reply]:
    """Return every other answer in the sample, each with the documents of three cases, so that there are several
    windows to fuse. Also return a German reply, for which the embedded judge isn't asked."""
    cases = list(read_cases(SAMPLE))
    german = ("Der Turm steht in Paris. Er ist 330 Meter hoch.", [Chunk(id="t", text="Der Turm ist 300 Meter hoch.")])
    return [german] + [
        (case.output, [chunk for near in cases[max(0, place - 2) : place + 1] for chunk in near.documents])
        for place, case in enumerate(cases)
        if place % 2 == 0
    ]


async def report_on(checker: GroundingChecker, text: str, chunks: Sequence[Chunk]) -> GroundingReport:
    reply = checker.reply(await checker.prepare(chunks), thresholds=Thresholds())
    for sentence in [*reply.push(text), *reply.flush()]:
        await reply.check(sentence)
    return reply.report()


async def reports(scorer: PairScorer, languages: Collection[str] | None) -> list[GroundingReport]:
    """Check all replies with ``scorer``, one after another, and return the reports. Closes the scorer."""
    checker = GroundingChecker(BatchingScorer(scorer), languages=languages)
    try:
        await checker.start()
        assert checker.available, checker.error
        return [await report_on(checker, text, chunks) for text, chunks in replies()]
    finally:
        await checker.aclose()
