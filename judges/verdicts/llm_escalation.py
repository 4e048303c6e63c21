"""From the cross-encoder to an LLM: the claims of one reply that the first leaves open."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from judges.claims.fidelity import is_drawn_from
from judges.evidence.passages import passages_for
from judges.evidence.windows import EvidenceIndex
from judges.protocols import ClaimJudge, JudgeError, JudgeOverloadedError, JudgeUnavailableError
from judges.types import Claim, ClaimVerdict, Evidence, Label, LlmCall, Opinion, Source

log = logging.getLogger(__name__)

NEUTRAL = 0.5
"""The score of a claim of which the LLM's answer says nothing that can be read."""

_FINAL = frozenset({"timeout", "skipped"})
"""Reasons of an unjudged claim for which it is not sent on: there is no time left, or it is not to be judged."""


class Escalation:
    """Reviews verdicts of one reply; safe to use from many tasks at once.

    A claim is sent to the LLM where the cross-encoder reached neither threshold, or gave no verdict at all.
    ``correct``: contradicted claims are sent too, for what should stand in their place; their verdict stays as it is.
    """

    def __init__(self, llm: ClaimJudge, evidence: EvidenceIndex, *, max_sources: int, correct: bool = False) -> None:
        self._llm = llm
        self._evidence = evidence
        self._max_sources = max_sources
        self._correct = correct
        self.calls: list[LlmCall] = []
        """Every call made for this reply."""

    async def review(self, verdict: ClaimVerdict, deadline: float) -> ClaimVerdict:
        """The verdict that stands: the LLM's where it was asked and answered by ``deadline`` (the event loop's clock),
        else ``verdict``. Never raises for trouble with the LLM."""
        if not self._wants(verdict) or not self._llm.ready:
            return verdict
        claim = verdict.claim
        try:
            async with asyncio.timeout_at(deadline):
                passages = await asyncio.to_thread(self._passages, f"{claim.context} {claim.text}".strip())
                opinion = await self._llm.judge(claim.text, claim.context, passages, self.calls.append)
        except Exception as error:
            return _unanswered(verdict, error)
        if opinion.correction is not None and not _is_sourced(opinion.correction, verdict.claim, passages):
            opinion = replace(opinion, correction=None)
        if verdict.label is Label.CONTRADICTED:
            return _corrected(verdict, opinion)
        return _decided(verdict, opinion, passages) if opinion.readable else _unread(verdict)

    def _wants(self, verdict: ClaimVerdict) -> bool:
        if verdict.label is Label.CONTRADICTED:
            return self._correct
        return verdict.label is Label.UNVERIFIABLE and verdict.reason not in _FINAL

    def _passages(self, claim: str) -> Sequence[Evidence]:
        return passages_for(self._evidence, claim, self._max_sources)


def _is_sourced(correction: str, claim: Claim, passages: Sequence[Evidence]) -> bool:
    """A correction may come to stand in the reply, so it says what the claim and the sources say, and nothing new."""
    return correction != claim.text and is_drawn_from(
        correction, claim.text, claim.context, *(passage.text for passage in passages)
    )


def _unanswered(verdict: ClaimVerdict, error: Exception) -> ClaimVerdict:
    """What the cross-encoder said stands; where it said nothing, the reason is why the LLM did not either."""
    match error:
        case TimeoutError():
            reason = "timeout"
        case JudgeOverloadedError():
            reason = "overloaded"
        case JudgeUnavailableError():
            reason = "unavailable"
        case JudgeError():
            reason = "judge_error"
        case _:
            log.error("a claim was not escalated", exc_info=error)
            reason = "judge_error"
    return verdict if verdict.reason is None else replace(verdict, reason=reason)


def _unread(verdict: ClaimVerdict) -> ClaimVerdict:
    if verdict.reason is None:
        return replace(verdict, escalated=True)
    return replace(verdict, entailed=NEUTRAL, escalated=True, reason=None)


def _corrected(verdict: ClaimVerdict, opinion: Opinion) -> ClaimVerdict:
    if opinion.label is not Label.CONTRADICTED or opinion.correction is None:
        return verdict
    return replace(verdict, correction=opinion.correction, explanation=opinion.reasoning or verdict.explanation)


def _decided(verdict: ClaimVerdict, opinion: Opinion, passages: Sequence[Evidence]) -> ClaimVerdict:
    """The claim with the LLM's verdict, and probabilities that agree with it."""
    confidence, doubt = opinion.confidence, 1.0 - opinion.confidence
    entailed, contradicted = min(verdict.entailed, doubt), min(verdict.contradicted, doubt)
    sources = [_source(passages[place], confidence) for place in opinion.passages]
    nearest = _source(passages[0], 0.0) if passages else None
    decided = replace(verdict, label=opinion.label, escalated=True, reason=None, explanation=opinion.reasoning)
    support = {document: min(score, doubt) for document, score in verdict.support.items()}
    if opinion.label is Label.SUPPORTED:
        best = sources[0] if sources else verdict.best_source or nearest
        cited = sources or ([best] if best else [])
        return replace(
            decided,
            entailed=confidence,
            contradicted=contradicted,
            best_source=replace(best, score=confidence) if best else None,
            contradicting_source=None,
            support={**verdict.support, **_by_document(cited, confidence)},
        )
    if opinion.label is Label.CONTRADICTED:
        against = sources[0] if sources else verdict.contradicting_source or verdict.best_source or nearest
        against = replace(against, score=confidence) if against else None
        return replace(
            decided,
            entailed=entailed,
            contradicted=confidence,
            best_source=against,
            contradicting_source=against,
            correction=opinion.correction,
            support=support,
        )
    return replace(
        decided,
        entailed=entailed,
        contradicted=contradicted,
        best_source=sources[0] if sources else verdict.best_source or nearest,
        contradicting_source=None,
        support=support,
    )


def _by_document(sources: Sequence[Source], score: float) -> Mapping[int, float]:
    return {source.document_index: score for source in sources}


def _source(passage: Evidence, score: float) -> Source:
    return Source(
        document_id=passage.document_id,
        document_index=passage.chunk_index,
        source=passage.source,
        content=passage.text,
        score=score,
        span=passage.span,
    )
