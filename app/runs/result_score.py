"""An LLM's scores for a run's result, for policies with ``llm_grounding_check``."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson

from app.runs.steps import RunRecord
from judges.llm_types import LlmScore, ScoreRequest
from judges.types import Chunk
from policies.policy_selection import PolicySet

Score = Callable[[ScoreRequest, str, Sequence[Chunk]], Awaitable[LlmScore]]
"""Scores text against documents. Never raises an error: if there is no score, the result says why."""

_NO_RESULT = "no_result", "the run has no result"
_NO_DOCUMENTS = "no_documents", "no document of the run was recorded with its text"


def wants_texts(policies: PolicySet) -> bool:
    """Return whether the text of a run's documents must be kept until the run is complete."""
    return bool(policies.reply_settings.score_requests)


def unanswered(policies: PolicySet) -> tuple[LlmScore, ...]:
    """Return the outcome ``no_reply`` for each score that the policies require, because a report contains no reply to
    score."""
    detail = "the run has no reply yet; the result is scored when the run is complete"
    return tuple(
        LlmScore(request=request, skipped="no_reply", detail=detail)
        for request in policies.reply_settings.score_requests
    )


async def score_result(policies: PolicySet, record: RunRecord, result: Any, score: Score) -> tuple[LlmScore, ...]:
    """Return the scores of ``result`` against the run's documents. If the run has gateway requests, their replies were
    already scored for policies that score each reply. For these policies, the result is scored only if the run has no
    requests."""
    requests = dict.fromkeys(
        needs.score_request
        for needs in policies.reply_settings.needs
        if needs.score_request is not None and (needs.scores_results or not record.requests)
    )
    text = result if isinstance(result, str) else "" if result is None else orjson.dumps(result).decode()
    documents = [chunk for chunk in record.chunks if chunk.text.strip()]
    missing = _NO_RESULT if not text.strip() else _NO_DOCUMENTS if not documents else None
    if missing is not None:
        skipped, detail = missing
        return tuple(LlmScore(request=request, skipped=skipped, detail=detail) for request in requests)
    return tuple(await asyncio.gather(*(score(request, text, documents) for request in requests)))
