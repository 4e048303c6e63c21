"""Final checks of a reply's own statements: do they contradict each other, and do the documents they cite support
them?"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from app.reply.checks.final_checks import FinalCheck, WholeReply
from judges.checker import GroundingChecker
from judges.protocols import JudgeError
from judges.types import ClaimVerdict, Consistency, Label

_log = structlog.stdlib.get_logger(__name__)

_MOST_CITED = 32
"""The most claims that are compared with the documents they cite."""


def consistency(checker: GroundingChecker, *, timeout_s: float) -> FinalCheck:
    """Compares the claims of a reply with each other, and with those of earlier replies of its run, if a policy wants
    that."""

    async def ask(reply: WholeReply) -> Mapping[str, Any]:
        if not reply.settings.consistency_check or not reply.text.strip():
            return {}
        comparing = checker.consistency_checker
        if comparing is None:
            return {"consistency": Consistency(reason="unavailable")}
        return {"consistency": await comparing.reply(reply.text, reply.earlier, timeout_s=timeout_s)}

    return ask


def cited_support(*, timeout_s: float) -> FinalCheck:
    """Judges whether the documents that a sentence cites support it, if a policy requires valid citations and the
    evidence of its claims does not show it. Whatever the deadline leaves open stays open."""

    async def ask(reply: WholeReply) -> Mapping[str, Any]:
        if reply.citation_checker is None or not reply.settings.valid_citations:
            return {}
        asked = [asked for asked, _ in zip(_open(reply), range(_MOST_CITED), strict=False)]
        support: dict[tuple[Any, int], float] = {}
        try:
            async with asyncio.timeout(timeout_s):
                for claim, documents in asked:
                    found = await reply.citation_checker.support(claim.claim, documents)
                    support |= {(claim.claim.span, document): score for document, score in found.items()}
        except (TimeoutError, JudgeError) as error:
            _log.warning("citations_not_read", error=str(error) or "timeout")
        return {"cited_support": support}

    return ask


def _open(reply: WholeReply) -> Iterator[tuple[ClaimVerdict, list[int]]]:
    """The claims that cite a document not known to support them, with all documents that they cite."""
    least = reply.settings.thresholds.entailment
    cited: dict[int, list[int]] = {}
    for citation in reply.citations:
        if citation.document_index is not None and citation.sentence_index is not None and not citation.reported:
            documents = cited.setdefault(citation.sentence_index, [])
            if citation.document_index not in documents:
                documents.append(citation.document_index)
    for claim in reply.claims:
        documents = cited.get(claim.claim.sentence_index, [])
        judged = claim.reason is None and claim.label is not Label.NOT_A_CLAIM
        if judged and any(claim.support.get(document, 0.0) < least for document in documents):
            yield claim, documents
