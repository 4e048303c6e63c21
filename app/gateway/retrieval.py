"""Applies the retrieval policies to the documents of a request."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct, structs

from app.errors import PolicyBlockedError
from app.events.recorder import RequestRecorder
from app.events.request_record import RetrievalOutcome
from app.gateway.types import GatewayRequest
from app.protocols.documents import ParsedRequest
from app.protocols.documents.json_body import SHARE, refuse
from app.reply.reader_output import Mode
from judges.checker import GroundingChecker
from judges.concurrency import MAX_INLINE_DOCUMENT_CHARS, run
from judges.evidence.index import EvidenceIndex
from judges.types import Chunk, Claim, Consistency
from policies.citations.extraction import reported_citations
from policies.policy_selection import CombinedDecision, PolicySet, decision_to_dict
from policies.types import Action, PolicyInputs


class Admission(Struct, frozen=True, kw_only=True):
    """A request that its gateway key allows, with the policies in scope."""

    request: GatewayRequest
    policies: PolicySet


class Retrieval(Struct, frozen=True, kw_only=True):
    """A request after the retrieval policies.

    - ``forwarded``: the request without the dropped documents. ``kept`` contains the documents that remain.
    - ``evidence``: the task that prepares the kept documents for the judge, if the reply will be judged.
    - ``shadowed``: whether the reply is judged only for shadow policies.
    - ``blocked``: whether the reply is blocked before it is generated.
    - ``earlier``: the claims of earlier replies in the run.
    """

    admitted: Admission
    forwarded: GatewayRequest
    kept: tuple[Chunk, ...]
    decision: CombinedDecision
    mode: Mode
    shadowed: bool
    blocked: bool
    evidence: "asyncio.Task[EvidenceIndex] | None"
    earlier: Sequence[Claim]


async def decide_documents(policies: PolicySet, parsed: ParsedRequest, recorder: RequestRecorder) -> CombinedDecision:
    """Apply the retrieval policies. Raises PolicyBlockedError if a policy blocks the request. Raises
    InvalidRequestError if a relevance score is outside 0 to 1 and no policy accepts such scores."""
    if parsed.unscaled is not None and not policies.document_needs.takes_any_relevance:
        refuse(parsed.unscaled[0], f"{SHARE} (or a policy with relevance_scale 'any')", parsed.unscaled[1])
    decision = CombinedDecision()
    if policies.governs_documents:
        decision = await _evaluated(policies, PolicyInputs(chunks=parsed.chunks, injectable=parsed.injectable))
    recorder.retrieval = RetrievalOutcome(
        chunks=parsed.chunks,
        dropped=decision.dropped,
        injectable=parsed.injectable,
        decisions=decision.decisions,
    )
    if decision.action is not Action.BLOCK:
        return decision
    recorder.block(http_status=PolicyBlockedError.status)
    blocking = next(each for each in decision.decisions if each.action is Action.BLOCK)
    index = decision.cause.metadata.get("document_index") if decision.cause else None
    raise PolicyBlockedError(
        blocking.reason,
        type="retrieval_policy_violation",
        code=blocking.reason_code,
        param="documents" if index is None else parsed.path_of(index),
        violations=[decision_to_dict(each) for each in decision.decisions],
    )


async def _evaluated(policies: PolicySet, inputs: PolicyInputs) -> CombinedDecision:
    """Return the policies' decision on the documents. Long text is searched for instructions in a thread."""
    inline = (
        not policies.document_needs.reads_texts or sum(len(c.text) for c in inputs.chunks) <= MAX_INLINE_DOCUMENT_CHARS
    )
    return await run(inline, policies.evaluate_documents, inputs)


async def compare_documents(
    policies: PolicySet,
    decision: CombinedDecision,
    parsed: ParsedRequest,
    recorder: RequestRecorder,
    *,
    checker: GroundingChecker,
    timeout_s: float,
) -> CombinedDecision:
    """If a policy requires it, compare the documents with each other and decide again. A conflict between documents
    only causes a warning, so the request waits at most ``timeout_s`` seconds for the comparison."""
    dropped = decision.dropped
    used = [replace(chunk, text="") if i in dropped else chunk for i, chunk in enumerate(parsed.chunks)]
    if not policies.document_needs.compares or len(used) - len(dropped) < 2:
        return decision
    comparison = checker.consistency_checker
    found = (
        await comparison.documents(used, timeout_s=timeout_s)
        if comparison is not None
        else Consistency(reason="unavailable")
    )
    decision = await _evaluated(
        policies, PolicyInputs(chunks=parsed.chunks, injectable=parsed.injectable, conflicts=found)
    )
    recorder.retrieval = structs.replace(recorder.retrieval, decisions=decision.decisions, conflicts=found)
    return decision


def is_blocked(policies: PolicySet, parsed: ParsedRequest, kept: Sequence[Chunk], *, judged: bool) -> bool:
    """Return whether the reply is blocked even before the upstream is called, because documents are missing or because
    of a value that the caller reported."""
    reported = parsed.options.reported
    inputs = PolicyInputs(
        chunks=kept,
        injectable=parsed.injectable,
        final=False,
        judged=judged,
        reported_scores=reported.grounding_scores,
        reported_unsupported=reported.unsupported_claims,
        output_confidence=reported.output_confidence,
        citations=reported_citations(reported.citations, kept),
        documents_may_follow=parsed.late,
    )
    return policies.blocked_before_call(inputs) is not None
