"""What is known of one request while it runs; in the end it becomes one event, whatever the end was."""

import hashlib
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter, time_ns
from typing import Any

import structlog
from msgspec import Struct, field

from app.events.llm_usage import llm_usage
from app.events.records import ClaimRow, DocumentRow, RequestEvent, RequestRow
from app.events.replay_data import request_extra
from app.settings import StoreText
from judges.types import Chunk, Consistency, LlmCall
from policies.engine import PolicySet
from policies.replay import ChoiceLog, JudgeOptions, RequestLog, shadow_decisions
from policies.types import Action, Decision, strictest

_log = structlog.stdlib.get_logger(__name__)

_CHARS_PER_TOKEN = 4
"""A rule of thumb for the tokenizers in use; only for usage that an upstream had no time to report."""

_REASON = re.compile(r"[A-Za-z_-]{1,40}")

_FAILED = {"blocked": 3, "upstream_error": 2, "failed": 2, "incomplete": 1, "cancelled": 1}


_DRAWN: deque[str] = deque()
"""Random digits for ids, drawn ahead: to ask the system each time costs as much as the rest of a trace."""
if sys.platform != "win32":  # where no process forks
    os.register_at_fork(after_in_child=_DRAWN.clear)


def new_request_id() -> str:
    """Ids begin with the time, in milliseconds: in an index of them, what is added lies together."""
    try:
        drawn = _DRAWN.pop()
    except IndexError:
        drawn, *more = re.findall(".{20}", os.urandom(2_560).hex())
        _DRAWN.extend(more)
    return f"req_{time_ns() // 1_000_000:012x}{drawn}"


class RequestRecorder(Struct, kw_only=True, weakref=True):
    """Collects what happens to a request. ``event`` makes the record of it."""

    api: str
    stream: bool
    store_text: StoreText
    request_id: str = field(default_factory=new_request_id)
    ts: datetime = field(default_factory=lambda: datetime.now(UTC))
    model: str | None = None
    resolved_model: str | None = None
    """The model as the upstream's reply names it."""
    sent_model: str | None = None
    """The model as the upstream was asked for it."""
    agent: str | None = None
    run_id: str | None = None
    key_prefix: str | None = None
    prompt: str = ""
    status: str = "completed"
    http_status: int = 200
    error: str | None = None
    verdict: str = "not_checked"
    trust_score: float | None = None
    decisions: list[Decision] = field(default_factory=list)
    claims: list[Callable[..., Iterable[ClaimRow]]] = field(default_factory=list)
    """Make the rows of claims, each given the position of its ``first``."""
    policies: PolicySet | None = None
    """Those that the request is under: one snapshot, whatever changes meanwhile. None: it was refused before."""
    injectable: bool = False
    conflicts: Consistency | None = None
    """What came of holding the documents against each other; None where nobody did."""
    tools: bool | None = None
    """Whether policies count what tools said among the documents; None where that is not theirs to say."""
    judging: JudgeOptions | None = None
    """How the judge is asked; None where nothing is judged."""
    choices: list[Callable[[], ChoiceLog]] = field(default_factory=list)
    """Make what came of each choice, which none waits for."""
    chunks: Sequence[Chunk] = ()
    dropped: Mapping[int, str] = field(default_factory=dict)
    """Which of ``chunks`` policies took out, by position, and why."""
    late: int = 0
    """How many of ``chunks`` came with the reply."""
    sentences: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usage_estimated: bool = False
    upstream_ms: float | None = None
    judge_ms: float | None = None
    finish_reason: str | None = None
    reply: str = ""
    llm_calls: list[LlmCall] = field(default_factory=list)
    judge_fault: str | None = None
    """Why the cross-encoder, or any judge, is missing where one was to look at the reply."""
    withheld: list[str] = field(default_factory=list)
    """Texts of the reply that decisions may quote; they are kept out of the event unless texts are stored in full."""
    regenerations: int = 0
    """How often the upstream was asked to go on anew; every count of tokens is over all calls."""
    marks: dict[str, float] = field(default_factory=dict)
    """When something first happened, in milliseconds since the request came: ``upstream_asked``, ``upstream_answered``
    (its status is there), ``first_text`` of its reply, ``first_out`` (text leaves for the client); and when the
    upstream's reply was last read to its end, ``upstream_ended``."""
    _spent: tuple[int, int] = (0, 0)
    _spent_estimated: bool = False
    _started: float = field(default_factory=perf_counter)
    _upstream_started: float | None = None
    _ended_ms: float | None = None

    def elapsed_ms(self) -> float:
        return (perf_counter() - self._started) * 1e3

    def mark(self, name: str) -> None:
        """It happens now, unless it did before."""
        if name not in self.marks:
            self.marks[name] = self.elapsed_ms()

    def fail(self, status: str, error: str, *, http_status: int | None = None) -> None:
        """The request went wrong. A weightier status, once set, stays."""
        if _FAILED.get(status, 0) > _FAILED.get(self.status, 0):
            self.status, self.error = status, error
        if http_status is not None:
            self.http_status = http_status

    def fail_upstream(self, message: str) -> None:
        """The upstream reports an error in its reply. What it says may quote prompts and keys, so it counts as text."""
        full = self.store_text is StoreText.FULL
        self.fail("upstream_error", message if full else "the upstream reported an error")

    def block(self, *, http_status: int | None = None) -> None:
        self.status = "blocked"
        if http_status is not None:
            self.http_status = http_status

    def finish(self, reason: str | None) -> None:
        """Why a choice ended. An upstream may put anything there, so only what looks like a reason is kept."""
        self.finish_reason = reason if reason is None or _REASON.fullmatch(reason) else "unknown"

    def count(self, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Usage as the upstream reports it."""
        self.prompt_tokens = _plus(prompt_tokens, self._spent[0])
        self.completion_tokens = _plus(completion_tokens, self._spent[1])
        self.usage_estimated = self._spent_estimated

    def estimate_usage(self, completion_chars: int) -> tuple[int, int]:
        """Usage by our own count, for a reply that ended before the upstream reported any."""
        if self.prompt_tokens is None:
            self.prompt_tokens = tokens(len(self.prompt)) + self._spent[0]
        self.completion_tokens = tokens(completion_chars) + self._spent[1]
        self.usage_estimated = True
        return self.prompt_tokens, self.completion_tokens

    def call_again(self, completion_chars: int) -> tuple[int, int]:
        """One more call begins. Return what the last one took, by our own count if the upstream had no time to say."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            self.estimate_usage(completion_chars)
        total = self.prompt_tokens or 0, self.completion_tokens or 0
        last = total[0] - self._spent[0], total[1] - self._spent[1]
        self._spent, self._spent_estimated = total, self.usage_estimated
        self.prompt_tokens = self.completion_tokens = None
        self.regenerations += 1
        return last

    def start_upstream(self) -> None:
        self._upstream_started = perf_counter()
        self.mark("upstream_asked")

    def end_upstream(self) -> None:
        if self._upstream_started is not None:
            self.upstream_ms = (perf_counter() - self._upstream_started) * 1e3

    def keep_documents(self, chunks: Sequence[Chunk], dropped: Mapping[int, str], *, late: int = 0) -> None:
        """``late``: how many of the last of ``chunks`` came with the reply."""
        self.chunks, self.dropped, self.late = chunks, dropped, late

    @property
    def action(self) -> str:
        """What happened to the request as a whole: ``allow``, ``warn`` or ``block``."""
        if self.status == "blocked":
            return "block"
        action = strictest([decision.action for decision in self.decisions])
        return "warn" if action is Action.DROP else action.value

    def choice_logs(self) -> Sequence[ChoiceLog]:
        return [make() for make in self.choices]

    def log(self) -> RequestLog:
        """What the decisions hang on."""
        return RequestLog(
            chunks=self.chunks,
            late=self.late,
            dropped=frozenset(self.dropped),
            injectable=self.injectable,
            tools=self.tools,
            conflicts=self.conflicts,
            stream=self.stream,
            blocked=self.status == "blocked",
            judging=self.judging,
            choices=self.choice_logs(),
        )

    def _beside(self) -> tuple[dict[str, Any], tuple[Decision, ...]]:
        """What only looks on: the log to decide by again, and the decisions of policies in shadow. No fault of it may
        cost the event of what was decided."""
        if self.policies is None:
            return {}, ()
        try:
            log = self.log()
            return request_extra(log, self.store_text), shadow_decisions(self.policies, log)
        except Exception:
            _log.exception("request_log_failed", request_id=self.request_id)
            return {}, ()

    def ended(self) -> RequestEvent:
        """``event``, for a request that is over: it is made when it is read, and until then nothing here may change."""
        self._ended_ms = self.elapsed_ms()
        return RequestEvent.later(self.event)

    def event(self) -> RequestEvent:
        """The record of the request as it stands."""
        extra, shadow = self._beside()
        if self.llm_calls:
            extra = {**extra, "llm": llm_usage(self.llm_calls)}
        if self.judge_fault is not None:
            extra = {**extra, "judge_fault": self.judge_fault}
        if self.marks:
            extra = {**extra, "marks": {name: round(ms, 1) for name, ms in self.marks.items()}}
        return RequestEvent(
            request=RequestRow(
                request_id=self.request_id,
                ts=self.ts,
                api=self.api,
                model=self.model,
                resolved_model=self.resolved_model or self.sent_model,
                agent=self.agent,
                run_id=self.run_id,
                key_prefix=self.key_prefix,
                stream=self.stream,
                status=self.status,
                http_status=self.http_status,
                action=self.action,
                verdict=self.verdict,
                trust_score=self.trust_score,
                documents=len(self.chunks),
                sentences=self.sentences,
                prompt_tokens=self.prompt_tokens,
                completion_tokens=self.completion_tokens,
                usage_estimated=self.usage_estimated,
                upstream_ms=self.upstream_ms,
                judge_ms=self.judge_ms,
                total_ms=self.elapsed_ms() if self._ended_ms is None else self._ended_ms,
                finish_reason=self.finish_reason,
                error=self.error,
                prompt=stored(self.prompt, self.store_text),
                reply=stored(self.reply, self.store_text),
                extra=extra,
                regenerations=self.regenerations,
            ),
            decisions=self._told(self.decisions),
            claims=self._claim_rows(),
            documents=self._document_rows(),
            shadow=self._told(shadow),
        )

    def _document_rows(self) -> tuple[DocumentRow, ...]:
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
                kept=position not in self.dropped,
                reason=self.dropped.get(position),
                text=stored(chunk.text, self.store_text),
            )
            for position, chunk in enumerate(self.chunks)
        )

    def _claim_rows(self) -> tuple[ClaimRow, ...]:
        rows: list[ClaimRow] = []
        for make in self.claims:
            rows.extend(make(first=len(rows)))
        return tuple(rows)

    def _told(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        if self.store_text is StoreText.FULL:
            return tuple(decisions)
        return tuple(redact_decision(decision, self.withheld) for decision in decisions)


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def tokens(chars: int) -> int:
    return max(1, round(chars / _CHARS_PER_TOKEN))


def stored(text: str | None, how: StoreText) -> str | None:
    """What the event log keeps of a text."""
    if not text or how is StoreText.NONE:
        return None
    if how is StoreText.FULL:
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def redact_decision(decision: Decision, texts: Sequence[str]) -> Decision:
    """The decision without the texts of the reply that it quotes."""
    reason, metadata = redact(decision.reason, texts), redact(decision.metadata, texts)
    if reason == decision.reason and metadata == decision.metadata:
        return decision
    return replace(decision, reason=reason, metadata=metadata)


def redact(value: Any, texts: Sequence[str]) -> Any:
    """``value`` with each of ``texts`` in it, at any depth, put as an ellipsis."""
    if isinstance(value, str):
        for text in texts:
            value = value.replace(text, "…")
        return value
    if isinstance(value, Mapping):
        return {name: redact(inner, texts) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact(inner, texts) for inner in value]
    return value
