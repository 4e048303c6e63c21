"""Escalates claims that the cross-encoder could not decide to an LLM."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from judges.claims.llm_rewrite_check import uses_only_words_of
from judges.evidence.index import EvidenceIndex
from judges.evidence.llm_passages import passages_for
from judges.label_thresholds import UNREADABLE_SCORE
from judges.llm_types import LlmCall, LlmVerdict
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, LlmClaimJudge
from judges.types import Claim, ClaimVerdict, Evidence, Label, Source

log = logging.getLogger(__name__)

_FINAL = frozenset({"timeout", "skipped"})
"""Reasons for an unjudged claim that rule out escalation: no time is left, or the claim must not be judged."""


class LlmEscalation:
    """Reviews the verdicts of one reply. Safe to use from many tasks at once.

    A claim is sent to the LLM if the cross-encoder reached neither threshold or gave no verdict at all.

    Args:
        llm: judges the claims.
        evidence: the index that provides the passages for a claim.
        max_sources: maximum number of passages per claim.
        correct: whether to send contradicted claims too, to obtain corrections. Their verdicts don't change.
    """

    def __init__(self, llm: LlmClaimJudge, evidence: EvidenceIndex, *, max_sources: int, correct: bool = False) -> None:
        self._llm = llm
        self._evidence = evidence
        self._max_sources = max_sources
        self._correct = correct
        self.calls: list[LlmCall] = []
        """Every call made for this reply so far."""

    async def review(self, verdict: ClaimVerdict, deadline: float) -> ClaimVerdict:
        """Return the final verdict: the LLM's if it arrives by ``deadline`` (in seconds on the event loop's clock),
        otherwise ``verdict``. LLM failures are not raised."""
        if not self._is_open(verdict) or not self._llm.ready:
            return verdict
        claim = verdict.claim
        try:
            async with asyncio.timeout_at(deadline):
                passages = await asyncio.to_thread(self._passages, f"{claim.context} {claim.text}".strip())
                answer = await self._llm.judge(claim.text, claim.context, passages, self.calls.append)
        except Exception as error:
            return _unanswered(verdict, error)
        if answer.correction is not None and not _is_sound(answer.correction, claim, passages):
            answer = replace(answer, correction=None)
        if verdict.label is Label.CONTRADICTED:
            return _with_correction(verdict, answer)
        return _decided(verdict, answer, passages) if answer.readable else _unreadable(verdict)

    def _is_open(self, verdict: ClaimVerdict) -> bool:
        if verdict.label is Label.CONTRADICTED:
            return self._correct and verdict.claim.correctable
        return verdict.label is Label.UNVERIFIABLE and verdict.reason not in _FINAL

    def _passages(self, claim: str) -> Sequence[Evidence]:
        return passages_for(self._evidence, claim, self._max_sources)


def _is_sound(correction: str, claim: Claim, passages: Sequence[Evidence]) -> bool:
    """Return whether a correction may be inserted into the reply. It must use only words from the claim and the
    sources, and the whole claim must be in the reply."""
    texts = (claim.text, claim.context, *(passage.text for passage in passages))
    return claim.correctable and correction != claim.text and uses_only_words_of(correction, *texts)


def _unanswered(verdict: ClaimVerdict, error: Exception) -> ClaimVerdict:
    """Return the cross-encoder's verdict. If the cross-encoder gave none, replace the reason with the LLM's."""
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
            log.error("cannot escalate a claim", exc_info=error)
            reason = "judge_error"
    return verdict if verdict.reason is None else replace(verdict, reason=reason)


def _unreadable(verdict: ClaimVerdict) -> ClaimVerdict:
    if verdict.reason is None:
        return replace(verdict, escalated=True)
    return replace(verdict, entailed=UNREADABLE_SCORE, escalated=True, reason=None)


def _with_correction(verdict: ClaimVerdict, answer: LlmVerdict) -> ClaimVerdict:
    if answer.label is not Label.CONTRADICTED or answer.correction is None:
        return verdict
    return replace(verdict, correction=answer.correction, explanation=answer.reasoning or verdict.explanation)


def _decided(verdict: ClaimVerdict, answer: LlmVerdict, passages: Sequence[Evidence]) -> ClaimVerdict:
    """Build the LLM's verdict, with probabilities consistent with it."""
    confidence, doubt = answer.confidence, 1.0 - answer.confidence
    entailed, contradicted = min(verdict.entailed, doubt), min(verdict.contradicted, doubt)
    sources = [passages[place].as_source(confidence) for place in answer.passages]
    nearest = passages[0].as_source(0.0) if passages else None
    judge_score = verdict.entailed if verdict.reason is None else None
    decided = replace(
        verdict,
        label=answer.label,
        escalated=True,
        judge_score=judge_score,
        reason=None,
        explanation=answer.reasoning,
    )
    support = {document: min(score, doubt) for document, score in verdict.support.items()}
    if answer.label is Label.SUPPORTED:
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
    if answer.label is Label.CONTRADICTED:
        against = sources[0] if sources else verdict.contradicting_source or verdict.best_source or nearest
        against = replace(against, score=confidence) if against else None
        return replace(
            decided,
            entailed=entailed,
            contradicted=confidence,
            best_source=against,
            contradicting_source=against,
            correction=answer.correction,
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
