"""Builds the report on a reply from the verdicts on its sentences."""

from collections import Counter
from collections.abc import Sequence

from judges.label_thresholds import MAX_UNVERIFIABLE_RATIO
from judges.types import (
    LABELS_WORST_FIRST,
    ClaimVerdict,
    GroundingReport,
    Label,
    ReplyVerdict,
    SentenceVerdict,
    Standing,
)

SKIPPED = "skipped"
"""The reason given for a claim that exceeds the maximum number of claims."""


def worst_label(claims: Sequence[ClaimVerdict]) -> Label:
    """Return the worst label among a sentence's claims. From worst to best, the labels are contradicted, unverifiable
    and supported. Return ``not_a_claim`` if the sentence has no claims."""
    labels = {claim.label for claim in claims}
    return next((label for label in LABELS_WORST_FIRST if label in labels), Label.NOT_A_CLAIM)


def build_report(
    sentences: Sequence[SentenceVerdict], *, characters: int, has_sources: bool, available: bool
) -> GroundingReport:
    """Build the report from the verdicts on a reply's sentences.

    ``trust_score`` is the share of claims that are supported, or None if no claim was judged. A reply is trusted if it
    has claims, none of them is contradicted, and at most half of them are unverifiable. Without sources or a judge, a
    reply has no trust score and is not trusted. Skipped claims only count in ``claims_skipped``.

    Args:
        sentences: the sentences and their verdicts, in order.
        characters: number of letters and digits in the reply so far, as counted by ``letters``.
        has_sources: whether there are documents.
        available: whether there is a judge.
    """
    every = [claim for sentence in sentences for claim in sentence.claims]
    claims = [claim for claim in every if claim.reason != SKIPPED]
    counts = Counter(claim.label for claim in claims)
    checked = has_sources and available
    ratio = counts[Label.UNVERIFIABLE] / len(claims) if claims else 0.0
    trust = counts[Label.SUPPORTED] / len(claims) if claims and checked else None
    verdict = _verdict(counts, has_sources=has_sources, available=available, skipped=len(every) > len(claims))
    covered = sum(_covered(sentence) for sentence in sentences) if checked else 0
    unjudged = tuple(part for one in sentences for part in one.parts if part.standing is Standing.UNJUDGED)
    return GroundingReport(
        verdict=verdict,
        sentences=tuple(sentences),
        claims=tuple(claims),
        trust_score=trust,
        is_trusted=trust is not None
        and not counts[Label.CONTRADICTED]
        and ratio <= MAX_UNVERIFIABLE_RATIO
        and not unjudged
        and len(every) == len(claims),
        total_claims=len(claims),
        supported_count=counts[Label.SUPPORTED],
        contradicted_count=counts[Label.CONTRADICTED],
        unverifiable_count=counts[Label.UNVERIFIABLE],
        unverifiable_ratio=ratio,
        coverage=min(1.0, covered / characters) if characters else 0.0,
        claims_skipped=len(every) - len(claims),
        unjudged=unjudged,
        summary=_SUMMARIES.get(verdict) or f"{counts[Label.SUPPORTED]}/{len(claims)} claims supported",
    )


_SUMMARIES = {
    ReplyVerdict.NO_SOURCES: "No sources to ground against",
    ReplyVerdict.NOT_CHECKED: "Not checked",
    ReplyVerdict.NO_CLAIMS: "No claims to check",
}


def _verdict(counts: Counter[Label], *, has_sources: bool, available: bool, skipped: bool) -> ReplyVerdict:
    if not has_sources:
        return ReplyVerdict.NO_SOURCES
    if not available or (skipped and not counts.total()):
        return ReplyVerdict.NOT_CHECKED
    if not counts.total():
        return ReplyVerdict.NO_CLAIMS
    if counts[Label.CONTRADICTED]:
        return ReplyVerdict.HAS_CONTRADICTIONS
    return ReplyVerdict.HAS_UNVERIFIABLE if counts[Label.UNVERIFIABLE] else ReplyVerdict.SUPPORTED


_NOT_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())


def letters(text: str) -> int:
    """Return the number of letters and digits in ``text``, of which coverage is a share."""
    if text.isascii():
        return len(text.encode().translate(None, _NOT_LETTERS))  # ten times faster than testing each character
    return sum(map(str.isalnum, text))


def coverage_of(sentences: Sequence[SentenceVerdict]) -> float | None:
    """Return the share (0–1) of the sentences' letters and digits that are judged or harmless. Return None if there are
    no letters or digits, or if the sentences weren't supposed to be judged."""
    total = sum(letters(one.sentence.text) for one in sentences)
    if not total or not all(one.parts for one in sentences):
        return None
    return sum(map(_covered, sentences)) / total


def _covered(sentence: SentenceVerdict) -> int:
    """Return the number of letters and digits in a sentence that are judged or harmless."""
    text, start = sentence.sentence.text, sentence.sentence.span.start
    if not sentence.parts:
        return letters(text) if all(claim.reason is None for claim in sentence.claims) else 0
    covered = [
        text[part.span.start - start : part.span.end - start]
        for part in sentence.parts
        if part.standing is not Standing.UNJUDGED
    ]
    return letters("".join(covered))
