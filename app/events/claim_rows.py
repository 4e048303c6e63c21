"""Converts a reply's sentences to rows of the event log."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.events.records import ClaimRow
from app.events.redaction import stored
from app.events.replay_data import claim_extra
from app.settings import StoreText
from judges.types import ClaimVerdict, SentenceVerdict


class SentenceRecord(Struct, frozen=True, kw_only=True):
    """A sentence in the reply. ``delivered`` means that the client received it; ``retracted``, that another upstream
    call replaced it.

    ``times`` says when it was complete and when it was judged, in milliseconds since the request arrived; None if
    unknown.
    """

    verdict: SentenceVerdict
    delivered: bool
    retracted: bool = False
    times: tuple[float, float] | None = None


def claim_rows(
    sentences: Sequence[SentenceRecord], *, choice: int, positions: Sequence[int], store_text: StoreText, first: int = 0
) -> Iterator[ClaimRow]:
    """Yield a row for each claim, and one for each sentence without claims.

    ``first`` is the position of the first row in its request. ``positions`` maps each document that the judge saw to
    its position in the request.
    """
    verdicts = [(each, verdict) for each in sentences for verdict in each.verdict.claims or (None,)]
    for position, (each, verdict) in enumerate(verdicts, first):
        sentence, source = each.verdict.sentence, verdict.deciding_source if verdict else None
        span = verdict.claim.span if verdict else sentence.span
        yield ClaimRow(
            position=position,
            choice=choice,
            sentence_index=sentence.index,
            start=span.start,
            end=span.end,
            label=verdict.label if verdict else each.verdict.label,
            score=verdict.score if verdict else None,
            confidence=verdict.confidence if verdict else None,
            document_id=source.document_id if source else None,
            document_index=positions[source.document_index] if source else None,
            evidence_start=source.span.start if source else None,
            evidence_end=source.span.end if source else None,
            delivered=each.delivered,
            reason=verdict.reason if verdict else None,
            judge_ms=each.times[1] - each.times[0] if each.times else None,
            text=stored(sentence.text, store_text),
            evidence=stored(source.content, store_text) if source else None,
            extra=_extra(each, verdict, store_text),
        )


def _extra(sentence: SentenceRecord, verdict: ClaimVerdict | None, store_text: StoreText) -> Mapping[str, Any]:
    at = {"at": [round(ms, 1) for ms in sentence.times]} if sentence.times else {}
    if sentence.retracted:
        # It was never part of the reply, so replaying the decisions must ignore it.
        return {"retracted": True, **at}
    return {**claim_extra(verdict, store_text), **at} if verdict else at
