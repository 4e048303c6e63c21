"""Two encoders that read the same evidence. The small encoder stands in for the large one in all tests but the last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from judges import embedded
from judges.cross_encoder import CachedEvidenceScorer, factory, open_scorer
from judges.cross_encoder.cached_evidence import SecondEncoderScorer
from judges.cross_encoder.factory import open_encoders
from judges.protocols import JudgeUnavailableError, PairScorer
from judges.types import EvidenceWindows, Probabilities

pytestmark = pytest.mark.anyio

LEAVE = "Parental leave lasts 14 weeks at full pay. Employees must tell their manager two months in advance."
CANTEEN = "The canteen opens at 8:00. It is closed on public holidays."
CLAIM = "Parental leave lasts 14 weeks."
BOTH = EvidenceWindows([CANTEEN, LEAVE])


@asynccontextmanager
async def opened(*folders: Path) -> AsyncIterator[PairScorer]:
    scorer = open_encoders(folders, threads=1)
    await scorer.start()
    yield scorer
    await scorer.aclose()


def values(one: Probabilities | None) -> tuple[float, float, float]:
    assert one is not None
    return one.entailed, one.neutral, one.contradicted


async def test_second_encoder_reads_all_windows_together() -> None:
    """The same model as second encoder gives the same scores, but none for single windows."""
    async with opened(embedded.FOLDER, embedded.FOLDER) as scorer:
        both, single = await scorer.score([(BOTH, CLAIM), (LEAVE, CLAIM)])
    assert len(both.parts) == 2
    assert all(part.second is None for part in both.parts)
    assert both.second is not None
    assert both.second.parts == ()
    for one in (both, single):
        assert values(one.second) == pytest.approx(values(one), abs=1e-6)


async def test_first_scores_are_those_of_the_first_encoder_alone() -> None:
    async with opened(embedded.FOLDER) as alone, opened(embedded.FOLDER, embedded.FOLDER) as two:
        (one,), (other,) = await asyncio.gather(alone.score([(BOTH, CLAIM)]), two.score([(BOTH, CLAIM)]))
        assert (one.second, values(one)) == (None, pytest.approx(values(other), abs=1e-6))
        assert alone.count_tokens(LEAVE) == two.count_tokens(LEAVE)
        assert two.name == f"{alone.name}+{alone.name.rpartition('@')[2]}"


async def test_both_encoders_read_evidence_ahead() -> None:
    first, second = (CachedEvidenceScorer(embedded.FOLDER, threads=1) for _ in range(2))
    scorer = SecondEncoderScorer(first, second)
    assert scorer.name == first.name
    await scorer.start()
    await scorer.prefill([LEAVE, CANTEEN])
    assert (first.windows_encoded, second.windows_encoded) == (2, 2)
    await scorer.score([(BOTH, CLAIM)])
    assert (first.windows_encoded, second.windows_encoded) == (2, 2)
    await scorer.aclose()
    with pytest.raises(JudgeUnavailableError):
        await scorer.score([(BOTH, CLAIM)])


async def test_missing_second_encoder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JudgeUnavailableError, match="no such folder"):
        async with opened(embedded.FOLDER, tmp_path / "none"):
            pass


async def test_large_judge_needs_its_second_encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(factory.embedded, "LARGE", tmp_path)
    with pytest.raises(ValueError, match="'embedded-large': not installed; run: pip install groundlane-judge-large"):
        open_scorer("embedded-large")
    (tmp_path / "evidence.onnx").touch()
    both = open_scorer("embedded-large")
    assert isinstance(both, SecondEncoderScorer)
    assert both.name == "embedded-large"
    assert isinstance(open_scorer("embedded"), CachedEvidenceScorer)


@pytest.mark.slow
async def test_shipped_encoders_count_tokens_alike_and_disagree_about_some_claims() -> None:
    """Windows are cut to the first encoder's limit, so the second must not need more tokens for them."""
    async with opened(embedded.FOLDER, embedded.LARGE) as scorer:
        (found,) = await scorer.score([(BOTH, CLAIM)])
        assert values(found.second) != pytest.approx(values(found), abs=1e-6)
        large = open_encoders((embedded.LARGE,), threads=1)
        await large.start()
        for text in (LEAVE, CANTEEN, "Unbelievably, the naïve café’s 1,234.50 €-bill was wrong… 漢字 ß"):
            assert large.count_tokens(text) == scorer.count_tokens(text)
        await large.aclose()
