"""The record of one request: plain values, collected at the end of the request, from which the event and its rows are
built."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog
from msgspec import Struct

from app.events.llm_usage import llm_usage
from app.events.records import ClaimRow, DocumentRow, RequestEvent, RequestRow
from app.events.redaction import stored, stored_decisions
from app.events.replay_data import claim_extra, request_extra
from app.settings import StoreText
from judges.concurrency import FreedInSteps
from judges.llm_types import LlmCall
from judges.types import Chunk, ClaimVerdict, Consistency, ReplyVerdict, SentenceVerdict
from policies.base import JudgeOptions
from policies.evaluation import strictest
from policies.policy_selection import PolicySet
from policies.replay import ChoiceLog, RequestLog, shadow_decisions
from policies.types import Action, Decision


class SentenceRecord(Struct, frozen=True, kw_only=True):
    """A sentence in the reply. ``delivered`` means that the client received it. ``retracted`` means that text from
    another upstream call replaced it.

    ``times`` says when the sentence was complete and when it was judged, in milliseconds since the request arrived. It
    is None if the times are unknown.
    """

    verdict: SentenceVerdict
    delivered: bool
    retracted: bool = False
    times: tuple[float, float] | None = None


def _extra(sentence: SentenceRecord, verdict: ClaimVerdict | None, store_text: StoreText) -> Mapping[str, Any]:
    at = {"at": [round(ms, 1) for ms in sentence.times]} if sentence.times else {}
    if sentence.retracted:
        # The sentence isn't part of the final reply, so replaying the decisions must ignore it.
        return {"retracted": True, **at}
    if verdict is None:
        return at
    start = sentence.verdict.sentence.span.start
    unsupported = [(span.start - start, span.end - start, round(span.score, 4)) for span in verdict.spans]
    return {**claim_extra(verdict, store_text), **at, **({"unsupported": unsupported} if unsupported else {})}


_log = structlog.stdlib.get_logger(__name__)


class RequestInfo(Struct, frozen=True, kw_only=True):
    """The request and its sender."""

    request_id: str
    ts: datetime
    api: str
    stream: bool
    model: str | None = None
    agent: str | None = None
    run_id: str | None = None
    key_prefix: str | None = None
    prompt: str = ""
    question: str = ""


class GoverningPolicies(Struct, frozen=True, kw_only=True):
    """The policies that applied when the request arrived.

    ``tools`` says whether the policies count tool messages among the documents. It is None if the policies don't
    determine this.
    """

    policies: PolicySet
    tools: bool | None = None


class RetrievalOutcome(Struct, frozen=True, kw_only=True):
    """The documents of the request, and the decisions of the retrieval policies on them.

    ``dropped`` maps the position in ``chunks`` of each dropped document to the reason. ``late`` is the number of
    documents that arrived with the reply. They are at the end of ``chunks``. ``conflicts`` is the result of comparing
    the documents, or None if they were not compared.
    """

    chunks: Sequence[Chunk] = ()
    dropped: Mapping[int, str] = {}
    late: int = 0
    injectable: bool = False
    decisions: Sequence[Decision] = ()
    conflicts: Consistency | None = None


class ChoiceRecord(Struct, frozen=True, kw_only=True):
    """The final state of one choice of the reply.

    ``positions`` maps each document of the choice to its position in the request. ``log`` returns the data on which the
    decisions about this choice are based. Calling ``log`` takes time, so it is called after the reply has been sent,
    unless the data is needed earlier.
    """

    text: str
    index: int = 0
    decisions: Sequence[Decision] = ()
    sentences: Sequence[SentenceRecord] = ()
    positions: Sequence[int] = ()
    llm_calls: Sequence[LlmCall] = ()
    log: Callable[[], ChoiceLog] | None = None


class ReplyOutcome(Struct, frozen=True, kw_only=True):
    """The reply as a whole. ``judge_fault`` says why a required judge was unavailable. ``is_short`` means that building
    the event takes so little time that it may be built on the event loop."""

    choices: Sequence[ChoiceRecord] = ()
    verdict: str = ReplyVerdict.NOT_CHECKED.value
    trust_score: float | None = None
    judge_ms: float | None = None
    judge_fault: str | None = None
    is_short: bool = True

    @property
    def decisions(self) -> list[Decision]:
        return [decision for choice in self.choices for decision in choice.decisions]


class TokenCounts(Struct, frozen=True, kw_only=True):
    """Token counts over all upstream calls for the reply. ``estimated`` means that at least one call ended before the
    upstream reported its usage."""

    prompt: int | None = None
    completion: int | None = None
    estimated: bool = False
    regenerations: int = 0


class UpstreamOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of the upstream call. ``model`` is the model named in the reply, or the requested model if the reply
    names none."""

    model: str | None = None
    finish_reason: str | None = None
    elapsed_ms: float | None = None
    tokens: TokenCounts = TokenCounts()


class RequestRecord(Struct, kw_only=True):
    """A finished request. ``event`` builds its rows. The event log calls it after the reply has been sent.

    ``judging`` describes how the policies require the reply to be judged, or is None if it is not judged. ``marks``
    says when each event first happened, in milliseconds since the request arrived. ``dropped`` counts the content that
    the policies left out, by kind.
    """

    info: RequestInfo
    store_text: StoreText
    governing: GoverningPolicies | None
    judging: JudgeOptions | None
    retrieval: RetrievalOutcome
    upstream: UpstreamOutcome
    reply: ReplyOutcome
    status: str
    http_status: int
    error: str | None
    total_ms: float
    marks: Mapping[str, float]
    dropped: Mapping[str, int] = {}
    _event: RequestEvent | None = None

    @property
    def decisions(self) -> list[Decision]:
        return [*self.retrieval.decisions, *self.reply.decisions]

    @property
    def action(self) -> str:
        """The overall action taken on the request: ``allow``, ``warn`` or ``block``."""
        return overall_action(self.status, self.decisions)

    def event(self) -> RequestEvent:
        """Build the rows of the request and cache them. Threads that call this concurrently get equal events."""
        if self._event is None:
            self._event = self._make_event()
        return self._event

    def _make_event(self) -> RequestEvent:
        extra, shadow = self._replay_data()
        info, upstream, reply = self.info, self.upstream, self.reply
        if calls := [call for choice in reply.choices for call in choice.llm_calls]:
            extra["llm"] = llm_usage(calls)
        if reply.judge_fault is not None:
            extra["judge_fault"] = reply.judge_fault
        if self.dropped:
            extra["dropped"] = dict(self.dropped)
        if self.marks:
            extra["marks"] = {name: round(ms, 1) for name, ms in self.marks.items()}
        text = "".join(choice.text for choice in reply.choices)
        return RequestEvent(
            request=RequestRow(
                request_id=info.request_id,
                ts=info.ts,
                api=info.api,
                model=info.model,
                resolved_model=upstream.model,
                agent=info.agent,
                run_id=info.run_id,
                key_prefix=info.key_prefix,
                stream=info.stream,
                status=self.status,
                http_status=self.http_status,
                action=self.action,
                verdict=reply.verdict,
                trust_score=reply.trust_score,
                documents=len(self.retrieval.chunks),
                sentences=sum(len(choice.sentences) for choice in reply.choices),
                prompt_tokens=upstream.tokens.prompt,
                completion_tokens=upstream.tokens.completion,
                usage_estimated=upstream.tokens.estimated,
                upstream_ms=upstream.elapsed_ms,
                judge_ms=reply.judge_ms,
                total_ms=self.total_ms,
                finish_reason=upstream.finish_reason,
                error=self.error,
                prompt=stored(info.prompt, self.store_text),
                reply=stored(text, self.store_text),
                extra=extra,
                regenerations=upstream.tokens.regenerations,
                question=info.question or None,
            ),
            decisions=stored_decisions(self.decisions, self.store_text),
            claims=self._claim_rows(),
            documents=self._document_rows(),
            shadow=stored_decisions(shadow, self.store_text),
        )

    def _replay_data(self) -> tuple[dict[str, Any], tuple[Decision, ...]]:
        """Return the data for replaying the decisions, and the decisions of shadow policies. An error here must not
        lose the rest of the event."""
        if self.governing is None:
            return {}, ()
        try:
            retrieval, policies = self.retrieval, self.governing.policies
            log = RequestLog(
                chunks=retrieval.chunks,
                late=retrieval.late,
                dropped=frozenset(retrieval.dropped),
                injectable=retrieval.injectable,
                tools=self.governing.tools,
                conflicts=retrieval.conflicts,
                stream=self.info.stream,
                blocked=self.status == "blocked",
                judging=self.judging,
                choices=[choice.log() for choice in self.reply.choices if choice.log is not None],
            )
            return request_extra(log, self.store_text), shadow_decisions(policies, log) if policies.shadow else ()
        except Exception:
            _log.exception("request_log_failed", request_id=self.info.request_id)
            return {}, ()

    def _claim_rows(self) -> Sequence[ClaimRow]:
        """Return a row for each claim, and one for each sentence without claims."""
        judged = [
            (choice, each, verdict)
            for choice in self.reply.choices
            for each in choice.sentences
            for verdict in each.verdict.claims or (None,)
        ]
        rows = FreedInSteps[ClaimRow]()
        for position, (choice, each, verdict) in enumerate(judged):
            sentence, source = each.verdict.sentence, verdict.deciding_source if verdict else None
            span = verdict.claim.span if verdict else sentence.span
            rows.append(
                ClaimRow(
                    position=position,
                    choice=choice.index,
                    sentence_index=sentence.index,
                    start=span.start,
                    end=span.end,
                    label=verdict.label if verdict else each.verdict.label,
                    score=verdict.score if verdict else None,
                    confidence=verdict.confidence if verdict else None,
                    document_id=source.document_id if source else None,
                    document_index=choice.positions[source.document_index] if source else None,
                    evidence_start=source.span.start if source else None,
                    evidence_end=source.span.end if source else None,
                    delivered=each.delivered,
                    reason=verdict.reason if verdict else None,
                    judge_ms=each.times[1] - each.times[0] if each.times else None,
                    text=stored(sentence.text, self.store_text),
                    evidence=stored(source.content, self.store_text) if source else None,
                    extra=_extra(each, verdict, self.store_text),
                )
            )
        return rows

    def _document_rows(self) -> tuple[DocumentRow, ...]:
        dropped = self.retrieval.dropped
        return tuple(
            DocumentRow(
                position=position,
                document_id=chunk.id,
                source=chunk.source,
                collection=chunk.collection,
                relevance_score=chunk.relevance_score,
                age_days=chunk.age_days,
                title=chunk.title,
                url=chunk.url,
                kept=position not in dropped,
                reason=dropped.get(position),
                text=stored(chunk.text, self.store_text),
            )
            for position, chunk in enumerate(self.retrieval.chunks)
        )


def overall_action(status: str, decisions: Sequence[Decision]) -> str:
    """Return the overall action (``allow``, ``warn`` or ``block``) that follows from ``decisions`` on a request that
    ended with ``status``."""
    if status == "blocked":
        return Action.BLOCK.value
    action = strictest([decision.action for decision in decisions])
    return Action.WARN.value if action is Action.DROP else action.value
