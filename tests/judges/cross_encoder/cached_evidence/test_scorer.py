"""The scorer that caches the evidence it has read, with the shipped model."""

import asyncio
import shutil
from pathlib import Path

import pytest

from judges import embedded
from judges.cross_encoder import CachedEvidenceScorer, open_scorer
from judges.protocols import JudgeUnavailableError
from judges.types import EvidenceWindows, Probabilities

pytestmark = pytest.mark.anyio

LEAVE = "Parental leave lasts 14 weeks at full pay. Employees must tell their manager two months in advance."
CANTEEN = "The canteen opens at 8:00. It is closed on public holidays."
CLAIM = "Parental leave lasts 14 weeks."


async def started(**options: int) -> CachedEvidenceScorer:
    scorer = CachedEvidenceScorer(embedded.FOLDER, threads=1, **options)
    await scorer.start()
    return scorer


def near(one: Probabilities, other: Probabilities) -> bool:
    return (one.entailed, one.neutral, one.contradicted) == pytest.approx(
        (other.entailed, other.neutral, other.contradicted), abs=1e-6
    )


async def test_embedded_judge_caches_evidence() -> None:
    scorer = open_scorer("embedded", threads=1)
    assert isinstance(scorer, CachedEvidenceScorer)
    assert scorer.name == "embedded"
    await scorer.start()
    assert scorer.name.startswith("embedded@")
    await scorer.aclose()


async def test_stated_and_unstated_claims_are_distinguished() -> None:
    scorer = await started()
    right, wrong = await scorer.score([(LEAVE, CLAIM), (CANTEEN, CLAIM)])
    assert right.entailed > 0.5 > wrong.entailed
    assert right.entailed + right.neutral + right.contradicted == pytest.approx(1.0)
    await scorer.aclose()


async def test_window_is_read_once_for_all_claims() -> None:
    scorer = await started()
    await scorer.prefill([LEAVE, CANTEEN])
    assert scorer.windows_encoded == 2
    claims = [CLAIM, "The canteen opens at nine.", "Leave is unpaid."]
    pairs = [(text, claim) for claim in claims for text in (LEAVE, CANTEEN)]
    await asyncio.gather(*(scorer.score([pair]) for pair in pairs), scorer.score(pairs))
    await scorer.score([(EvidenceWindows([LEAVE, CANTEEN]), CLAIM)])
    assert scorer.windows_encoded == 2
    await scorer.aclose()


async def test_concurrent_requests_for_a_window_share_one_reading() -> None:
    scorer = await started()
    found = await asyncio.gather(*(scorer.score([(LEAVE, CLAIM)]) for _ in range(8)))
    assert scorer.windows_encoded == 1
    assert all(near(one[0], found[0][0]) for one in found)
    await scorer.aclose()


async def test_cancelled_request_leaves_the_window_to_others() -> None:
    scorer = await started()
    impatient = asyncio.ensure_future(scorer.score([(LEAVE, CLAIM)]))
    patient = asyncio.ensure_future(scorer.score([(LEAVE, CLAIM)]))
    await asyncio.sleep(0)
    impatient.cancel()
    (found,) = await patient
    assert found.entailed > 0.5
    assert impatient.cancelled()
    await scorer.aclose()


async def test_windows_with_waiting_claims_are_read_first() -> None:
    scorer = await started()
    ahead = asyncio.ensure_future(scorer.prefill([f"Room {number} faces the garden." for number in range(30)]))
    await asyncio.sleep(0)
    (found,) = await scorer.score([(LEAVE, CLAIM)])
    assert found.entailed > 0.5
    assert not ahead.done()
    await ahead
    await scorer.aclose()


async def test_cache_is_bounded_and_refills() -> None:
    scorer = await started()
    (first,) = await scorer.score([(LEAVE, CLAIM)])
    one = scorer.cached_bytes
    await scorer.aclose()
    small = await started(states_bytes=one + 1)
    (again,) = await small.score([(LEAVE, CLAIM)])
    await small.prefill([f"Room {number} has {number} windows that face the garden." for number in range(20)])
    assert small.cached_bytes <= one + 1
    (after,) = await small.score([(LEAVE, CLAIM)])
    assert small.windows_encoded == 22
    assert near(first, again)
    assert near(again, after)
    await small.aclose()


async def test_pairs_are_scored_in_order_as_if_alone() -> None:
    scorer = await started()
    pairs = [(LEAVE, CLAIM), (CANTEEN, "It is closed on public holidays."), (EvidenceWindows([CANTEEN, LEAVE]), CLAIM)]
    together = await scorer.score(pairs)
    alone = [(await scorer.score([pair]))[0] for pair in pairs]
    assert all(near(one, other) for one, other in zip(together, alone, strict=True))
    await scorer.aclose()


async def test_text_longer_than_a_window_is_read_completely() -> None:
    """The sentence that supports the claim comes after 250 words about something else."""
    scorer = await started()
    filler = " ".join(f"Shelf {number} holds grey paper." for number in range(50))
    found, without = await scorer.score([(f"{filler} {LEAVE}", CLAIM), (filler, CLAIM)])
    assert scorer.windows_encoded > 3
    assert found.entailed > 0.5 > 10 * without.entailed
    assert scorer.count_tokens(EvidenceWindows([filler, LEAVE])) == scorer.count_tokens(filler) + scorer.count_tokens(
        LEAVE
    )
    await scorer.aclose()


async def test_long_claim_is_truncated_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    scorer = await started()
    await scorer.score([(LEAVE, "word " * 200)])
    assert scorer.pairs_cut == 1
    assert "truncated" in caplog.text
    await scorer.aclose()


async def test_empty_call_does_nothing() -> None:
    scorer = await started()
    assert await scorer.score([]) == []
    (empty,) = await scorer.score([("", CLAIM)])
    assert empty.entailed < 0.5
    await scorer.aclose()


async def test_unloaded_or_closed_judge_is_an_error() -> None:
    scorer = CachedEvidenceScorer(embedded.FOLDER)
    with pytest.raises(JudgeUnavailableError, match="is not loaded"):
        await scorer.score([(LEAVE, CLAIM)])
    await scorer.start()
    await scorer.aclose()
    with pytest.raises(JudgeUnavailableError, match="is not loaded"):
        await scorer.score([(LEAVE, CLAIM)])


@pytest.mark.parametrize("name", ["weights.bin", "claim.onnx", "tokenizer.json"])
async def test_corrupt_file_is_not_loaded(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(embedded.FOLDER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    with (folder / name).open("r+b") as file:
        file.seek(100)
        file.write(b"\x00damaged")
    scorer = open_scorer(f"onnx:{folder}")
    assert scorer is not None
    with pytest.raises(JudgeUnavailableError, match=f"{name} is damaged"):
        await scorer.start()
    await scorer.aclose()
