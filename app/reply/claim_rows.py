"""Sentences and claims as rows of the event log."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.events.recorder import stored
from app.events.records import ClaimRow
from app.events.replay_data import claim_extra
from app.reply.grounding_object import JudgedSentence
from app.settings import StoreText
from judges.types import ClaimVerdict


def claim_rows(
    entries: Sequence[JudgedSentence], *, choice: int, positions: Sequence[int], store_text: StoreText, first: int = 0
) -> Iterator[ClaimRow]:
    """A row for each claim, and one for each sentence that makes none.

    ``first`` is the position of the first row in its request; ``positions`` says where in the request each document
    stood that the judge saw.
    """
    told = [entry for entry in entries if not entry.structure]
    verdicts = [(entry, verdict) for entry in told for verdict in entry.verdict.claims or (None,)]
    for position, (entry, verdict) in enumerate(verdicts, first):
        sentence, source = entry.verdict.sentence, verdict.deciding_source if verdict else None
        span = verdict.claim.span if verdict else sentence.span
        yield ClaimRow(
            position=position,
            choice=choice,
            sentence_index=sentence.index,
            start=span.start,
            end=span.end,
            label=verdict.label if verdict else entry.verdict.label,
            score=verdict.score if verdict else None,
            confidence=verdict.confidence if verdict else None,
            document_id=source.document_id if source else None,
            document_index=positions[source.document_index] if source else None,
            evidence_start=source.span.start if source else None,
            evidence_end=source.span.end if source else None,
            delivered=entry.offset is not None,
            reason=verdict.reason if verdict else None,
            judge_ms=entry.times[1] - entry.times[0] if entry.times else None,
            text=stored(sentence.text, store_text),
            evidence=stored(source.content, store_text) if source else None,
            extra=_extra(entry, verdict, store_text),
        )


def _extra(entry: JudgedSentence, verdict: ClaimVerdict | None, store_text: StoreText) -> Mapping[str, Any]:
    at = {"at": [round(ms, 1) for ms in entry.times]} if entry.times else {}
    if entry.retracted:
        # What was never part of the reply has no part in decisions that are made again either.
        return {"retracted": True, **at}
    return {**claim_extra(verdict, store_text), **at} if verdict else at
