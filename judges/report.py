"""From the verdicts of sentences to one report on a reply."""

from collections.abc import Sequence

from judges.types import GroundingReport, Label, ReplyVerdict, SentenceVerdict

_TRUSTED_UNVERIFIABLE_RATIO = 0.5


def build_report(
    sentences: Sequence[SentenceVerdict], *, reply_chars: int | None = None, claims_skipped: int = 0
) -> GroundingReport:
    """Sum up the verdicts of ``sentences``, in order.

    ``reply_chars`` is the length of the whole reply in code points, for ``coverage``; by default that of ``sentences``.
    ``claims_skipped`` is how many claims a cap left unjudged. A reply is trusted when nothing in it is contradicted and
    at most half of its claims are unverifiable.
    """
    claims = [claim for sentence in sentences for claim in sentence.claims]
    labels = [claim.label for claim in claims]
    supported, contradicted, unverifiable = (
        labels.count(label) for label in (Label.SUPPORTED, Label.CONTRADICTED, Label.UNVERIFIABLE)
    )
    total = supported + contradicted + unverifiable
    if contradicted:
        verdict = ReplyVerdict.HAS_CONTRADICTIONS
    elif unverifiable:
        verdict = ReplyVerdict.HAS_UNVERIFIABLE
    elif supported:
        verdict = ReplyVerdict.SUPPORTED
    else:
        verdict = ReplyVerdict.NO_CLAIMS
    ratio = unverifiable / total if total else 0.0
    checked = sum(len(sentence.sentence.text) for sentence in sentences)
    length = checked if reply_chars is None else reply_chars
    return GroundingReport(
        verdict=verdict,
        sentences=tuple(sentences),
        claims=tuple(claims),
        trust_score=supported / total if total else None,
        is_trusted=total > 0 and contradicted == 0 and ratio <= _TRUSTED_UNVERIFIABLE_RATIO,
        total_claims=total,
        supported_count=supported,
        contradicted_count=contradicted,
        unverifiable_count=unverifiable,
        unverifiable_ratio=ratio,
        coverage=min(1.0, checked / length) if length else 0.0,
        claims_skipped=claims_skipped,
        summary=f"{supported}/{total} claims supported",
    )
