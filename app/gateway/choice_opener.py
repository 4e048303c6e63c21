"""Opens a reply: creates the context that its choices share, and gives each choice a separate policy evaluation."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from app.events.recorder import RequestRecorder, Timings
from app.gateway.retrieval import Retrieval
from app.protocols.documents import ParsedRequest
from app.protocols.documents.last_turn import last_turns
from app.protocols.documents.parsed_request import MAX_CONVERSATION_CHARS, question_of, questions_of, user_texts
from app.reply.checks.final_checks import FinalCheck
from app.reply.checks.shadow_check import ShadowCheck
from app.reply.choice import Choice
from app.reply.choice_findings import ReplyContext
from app.reply.grounding_object import retrieval_summary
from app.reply.reader_output import Mode
from judges.checker import GroundingChecker, ReplyCheck
from judges.evidence.index import EvidenceIndex
from judges.types import Chunk, ReplyVerdict
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import reported_citations
from policies.citations.markers import names_only_documents
from policies.policy_selection import PolicySet, ReplyEvaluation, ReplySettings
from policies.types import PolicyInputs

LateDocuments = Callable[[Sequence[Chunk]], Awaitable[tuple[ReplyContext, EvidenceIndex | None]]]
"""Adds documents that came with a reply. Returns the context and the evidence for choices that are opened
afterwards."""

_NO_DECISIONS = PolicySet().evaluate_reply(PolicyInputs())
"""The evaluation of no policies. It has no state, so all choices share it."""


class UntouchedChoices:
    """Opens the choices of a reply that is forwarded unchanged. ``late`` adds documents that the reply contains. If it
    is None, those documents don't count as evidence."""

    def __init__(self, context: ReplyContext, timings: Timings, late: LateDocuments | None) -> None:
        self._context = context
        self._timings = timings
        self._late = late

    def open(self, index: int) -> Choice:
        return Choice(index, context=self._context, timings=self._timings, evaluation=_NO_DECISIONS, check=None)

    async def add_documents(self, documents: Sequence[Chunk]) -> None:
        if self._late is not None:
            self._context, _ = await self._late(documents)


class GovernedChoices:
    """Opens the choices of a reply that ``policies`` decide on. ``evidence`` contains the prepared documents."""

    def __init__(
        self,
        *,
        policies: PolicySet,
        checker: GroundingChecker,
        context: ReplyContext,
        evidence: EvidenceIndex | None,
        timings: Timings,
        late: LateDocuments | None,
    ) -> None:
        self._policies = policies
        self._checker = checker
        self._timings = timings
        self._late = late
        self._use(context, evidence)

    def open(self, index: int) -> Choice:
        evaluation = _evaluate(self._policies, self._context)
        check = None
        if self._evidence is not None:
            check = _open_check(self._checker, self._evidence, evaluation.settings, self._context, index)
        return Choice(index, context=self._context, timings=self._timings, evaluation=evaluation, check=check)

    async def add_documents(self, documents: Sequence[Chunk]) -> None:
        if self._late is not None:
            self._use(*await self._late(documents))

    def _use(self, context: ReplyContext, evidence: EvidenceIndex | None) -> None:
        self._evidence = evidence if context.unjudged is None else None
        if self._evidence is None and self._policies.governs_reply:
            # No claim can be judged without documents, but the check still recognizes text that makes no statement.
            self._evidence = EvidenceIndex((), (), window_tokens=1, chunks=context.chunks)
        elif self._evidence is not None:
            context = replace(context, citation_checker=partial(self._checker.citation_checker, self._evidence))
        self._context = context


def shadow_check(
    policies: PolicySet, context: ReplyContext, checker: GroundingChecker, evidence: EvidenceIndex
) -> ShadowCheck:
    """Create the check that judges an unchanged reply for the shadow policies."""
    settings = policies.reply_settings
    return ShadowCheck(
        partial(_open_check, checker, evidence, settings, context),
        context.names,
        judges_reasoning=PolicySet(policies.shadow).reply_settings.reasoning_action == "judge",
    )


def _evaluate(policies: PolicySet, context: ReplyContext) -> ReplyEvaluation:
    return policies.evaluate_reply(
        context.policy_inputs(
            judged=context.unjudged is None,
            final=False,
            citations=reported_citations(context.options.reported.citations, context.chunks),
            documents_may_follow=context.documents_may_follow,
        )
    )


def _open_check(
    checker: GroundingChecker, evidence: EvidenceIndex, settings: ReplySettings, context: ReplyContext, index: int
) -> ReplyCheck:
    # With several prompts, the choices for the first prompt come first.
    turn = context.turns[min(index * len(context.turns) // context.expected, len(context.turns) - 1)]
    return checker.reply(
        evidence,
        thresholds=settings.judging.thresholds,
        max_sources_per_claim=settings.judging.max_sources,
        # If nothing is judged, all claims are reported as unjudged. The limit doesn't apply, because claims beyond it
        # would be reported as skipped.
        max_claims=settings.judging.max_claims if context.unjudged is None else None,
        correct=settings.corrects and context.strippable,
        is_json=context.is_json,
        question=context.asked,
        message=turn.message,
        unread=turn.unread,
        conversation=context.conversation,
        prefill=turn.prefill,
        may_instruct=turn.may_instruct,
        resolves=partial(names_only_documents, names=context.names),
    )


def reply_context(
    retrieval: Retrieval,
    parsed: ParsedRequest,
    kept: Sequence[Chunk],
    *,
    request_id: str,
    checker: GroundingChecker,
    final_checks: Sequence[FinalCheck],
) -> ReplyContext:
    """Build the context that the choices of the reply to ``parsed`` share. ``kept`` contains the documents that the
    reply may use."""
    decision, available = retrieval.decision, checker.available
    asked: dict[str, Any] = {}
    if retrieval.shadowed or retrieval.mode is not Mode.UNTOUCHED:  # only a judge needs the question
        texts = user_texts(parsed.body, parsed.query)
        message = texts[-1] if texts else ""
        asked = {
            "turns": last_turns(parsed.body, evidence=[chunk.text for chunk in parsed.chunks]),
            "asked": question_of(message),
            "question": questions_of(message),
            "conversation": "\n".join(texts)[-MAX_CONVERSATION_CHARS:],
        }
    unjudged = ReplyVerdict.NO_SOURCES if not kept else None if available else ReplyVerdict.NOT_CHECKED
    return ReplyContext(
        request_id=request_id,
        options=parsed.options,
        chunks=kept,
        names=DocumentNames(kept),
        positions=[index for index in range(len(parsed.chunks)) if index not in decision.dropped],
        injectable=parsed.injectable,
        strippable=retrieval.mode is not Mode.LIVE and not parsed.is_json,
        indivisible=retrieval.mode is not Mode.LIVE and parsed.is_json,
        retrieval=retrieval_summary(parsed.chunks, decision.dropped, decision.decisions, parsed.notes),
        retrieval_decisions=decision.decisions,
        unjudged=unjudged,
        judge_unavailable=bool(kept) and not available,
        judge_name=checker.name if available else None,
        expected=parsed.choices or 1,
        final_checks=final_checks,
        earlier=retrieval.earlier,
        is_json=parsed.is_json,
        documents_may_follow=parsed.late,
        **asked,
    )


def late_documents(
    retrieval: Retrieval, recorder: RequestRecorder, checker: GroundingChecker, final_checks: Sequence[FinalCheck]
) -> LateDocuments:
    """Add documents that came with the reply to the evidence for later choices. Documents from collections that the key
    doesn't allow are left out.
    """
    parsed, kept, key = retrieval.admitted.request.parsed, retrieval.kept, retrieval.admitted.request.key

    async def take(documents: Sequence[Chunk]) -> tuple[ReplyContext, EvidenceIndex | None]:
        nonlocal parsed, kept
        if key is not None:
            documents = [document for document in documents if key.permits(document, unnamed=True)]
        parsed = parsed.with_chunks(documents, [f"output:{chunk.id}" for chunk in documents])
        kept = (*kept, *documents)
        late = recorder.retrieval.late + len(documents)
        recorder.retrieval = replace(recorder.retrieval, chunks=parsed.chunks, late=late)
        judged = retrieval.mode is not Mode.UNTOUCHED and kept and checker.error is None
        evidence = await checker.prepare(kept) if judged else None
        context = reply_context(
            retrieval, parsed, kept, request_id=recorder.request_id, checker=checker, final_checks=final_checks
        )
        return context, evidence

    return take
