"""Judging from start to end with the shipped model, on a small document."""

import asyncio

import pytest

from judges.checker import GroundingChecker
from judges.cross_encoder import open_scorer
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.label_thresholds import Thresholds
from judges.types import Chunk, Label, ReplyVerdict

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

HANDBOOK = Chunk(
    id="handbook",
    source="handbook.pdf",
    text=(
        "Parental leave lasts 14 weeks at full pay. Employees must tell their manager two months in advance. "
        "Travel expenses are refunded within 30 days. Receipts are kept for six years. "
        "Employees may work from home on two days a week."
    ),
)
NOTICE = Chunk(id="notice", source="notice.txt", text="The canteen opens at 8:00. It is closed on public holidays.")


async def test_small_handbook() -> None:
    """Repeated, changed and invented statements are distinguished."""
    scorer = open_scorer("embedded", threads=1)
    assert scorer is not None
    checker = GroundingChecker(CachingScorer(BatchingScorer(scorer), max_bytes=1_000_000))
    await checker.start()
    assert checker.available, checker.error
    evidence = await checker.prepare([HANDBOOK, NOTICE])
    check = checker.reply(evidence, thresholds=Thresholds())
    reply = (
        "Parental leave lasts 14 weeks at full pay. Travel expenses are refunded within 90 days. "
        "The company pays for a gym membership in Lisbon. Do you need anything else?"
    )
    sentences = [*check.push(reply), *check.flush()]
    verdicts = await asyncio.gather(*(check.check(sentence) for sentence in sentences))
    await checker.aclose()
    assert [verdict.label for verdict in verdicts] == [
        Label.SUPPORTED,
        Label.CONTRADICTED,
        Label.UNVERIFIABLE,
        Label.NOT_A_CLAIM,
    ]
    report = check.report()
    assert report.verdict is ReplyVerdict.HAS_CONTRADICTIONS
    assert report.summary == "1/3 claims supported"
    (wrong,) = verdicts[1].claims
    assert wrong.best_source is not None
    assert wrong.best_source.document_id == "handbook"
    assert "refunded within 30 days" in wrong.best_source.content
