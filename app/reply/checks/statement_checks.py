"""Final checks of the statements in a reply: whether they contradict each other, are supported by the documents that
they cite, and answer the question."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import structlog

from app.reply.checks.final_checks import FinalCheck, WholeReply
from judges.answer_relevance import answer_relevance, answered_parts
from judges.checker import GroundingChecker
from judges.concurrency import MAX_INLINE_CHARS, run
from judges.protocols import JudgeError
from judges.types import ClaimVerdict, Consistency, Label

_log = structlog.stdlib.get_logger(__name__)

_MOST_CITED = 32
"""The maximum number of claims that are compared with the documents that they cite."""
_MOST_NAMED = 8
"""The maximum number of documents that a claim is compared with if several have the cited name."""


def consistency(checker: GroundingChecker, *, timeout_s: float) -> FinalCheck:
    """Build the check that compares the claims of a reply with each other and with the claims of earlier replies in the
    run. It runs only if a policy requires it."""

    async def ask(reply: WholeReply) -> Mapping[str, Any]:
        if not reply.settings.consistency_check or not reply.text.strip():
            return {}
        comparing = checker.consistency_checker
        if comparing is None:
            return {"consistency": Consistency(reason="unavailable")}
        return {"consistency": await comparing.reply(reply.text, reply.earlier, timeout_s=timeout_s)}

    return ask


def answering() -> FinalCheck:
    """Build the check that compares the reply with the question. It runs only if a policy requires it."""

    async def ask(reply: WholeReply) -> Mapping[str, Any]:
        settings = reply.settings
        if not (settings.answer_relevance or settings.question_parts) or not reply.question:
            return {}
        found: dict[str, Any] = {}
        short = len(reply.text) <= MAX_INLINE_CHARS
        if settings.answer_relevance:
            found["answer_relevance"] = await run(short, answer_relevance, reply.question, reply.claims)
        if settings.question_parts:
            found["question_parts"] = await run(False, answered_parts, reply.question, reply.claims, reply.chunks)
        return found

    return ask


def cited_support(*, timeout_s: float) -> FinalCheck:
    """Build the check that judges whether the documents that a sentence cites support it. It runs only if a policy
    requires valid citations, and skips claims whose evidence already shows that they are supported. Claims that are not
    judged before the deadline stay undecided."""

    async def ask(reply: WholeReply) -> Mapping[str, Any]:
        if reply.citation_checker is None or not reply.settings.valid_citations:
            return {}
        checker = reply.citation_checker()
        if checker is None:
            return {}
        asked = [asked for asked, _ in zip(_open(reply), range(_MOST_CITED), strict=False)]
        support: dict[tuple[Any, int], float] = {}
        try:
            async with asyncio.timeout(timeout_s):
                for claim, documents in asked:
                    found = await checker.support(claim.claim, documents)
                    support |= {(claim.claim.span, document): score for document, score in found.items()}
        except (TimeoutError, JudgeError) as error:
            _log.warning("citations_not_read", error=str(error) or "timeout")
        return {"cited_support": support}

    return ask


def _open(reply: WholeReply) -> Iterator[tuple[ClaimVerdict, list[int]]]:
    """Yield each claim with a citation that isn't yet known to support it, together with all documents that the claim
    cites."""
    least = reply.settings.judging.thresholds.entailment
    cited: dict[int, list[Sequence[int]]] = {}
    for citation in reply.citations:
        if citation.documents and citation.sentence_index is not None and not citation.reported:
            cited.setdefault(citation.sentence_index, []).append(citation.documents)
    for claim in reply.claims:
        # Documents whose passages were judged for the claim come first, because they are the most likely to support it.
        named = [
            sorted(documents, key=claim.support.__contains__, reverse=True)[:_MOST_NAMED]
            for documents in cited.get(claim.claim.sentence_index, ())
        ]
        judged = claim.reason is None and claim.label is not Label.NOT_A_CLAIM
        if judged and any(max(claim.support.get(each, 0.0) for each in documents) < least for documents in named):
            yield claim, list(dict.fromkeys(document for documents in named for document in documents))
