"""The rows of the event log, as frozen values. The gateway creates them, the writer stores them unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from policies.types import Decision


class RequestRow(Struct, frozen=True, kw_only=True):
    """One request. ``http_status`` is what the client received; times are in milliseconds.

    ``status`` is ``completed``, ``blocked``, ``cancelled`` (the client disconnected), ``incomplete`` (the upstream's
    reply broke off), ``upstream_error`` (it answered with an error) or ``failed`` (it was unreachable, or an internal
    error occurred).
    """

    request_id: str
    ts: datetime
    api: str
    model: str | None
    resolved_model: str | None
    agent: str | None
    run_id: str | None
    key_prefix: str | None
    stream: bool
    status: str
    http_status: int
    action: str
    verdict: str
    trust_score: float | None
    documents: int
    sentences: int
    prompt_tokens: int | None
    completion_tokens: int | None
    usage_estimated: bool
    upstream_ms: float | None
    judge_ms: float | None
    total_ms: float
    finish_reason: str | None
    error: str | None
    prompt: str | None = None
    """The prompt text, its hash or nothing, depending on ``GROUNDLANE_STORE_TEXT``; likewise for every text below."""
    reply: str | None = None
    extra: Mapping[str, Any] = {}
    """The data beside documents and claims that a replay of the decisions needs; see ``app.events.replay_data``."""
    regenerations: int = 0
    """How often the reply was regenerated from a failed sentence."""


class DocumentRow(Struct, frozen=True, kw_only=True):
    """A document of the request. ``kept``: it was used; otherwise ``reason`` says why not."""

    position: int
    document_id: str
    source: str | None
    collection: str | None
    relevance_score: float | None
    age_days: float | None
    title: str | None
    url: str | None
    kept: bool
    reason: str | None
    text: str | None


class ClaimRow(Struct, frozen=True, kw_only=True):
    """A claim of a sentence and its verdict, or just the sentence if it makes no claim."""

    position: int
    choice: int
    sentence_index: int
    start: int
    end: int
    label: str
    score: float | None
    confidence: float | None
    document_id: str | None
    document_index: int | None
    evidence_start: int | None
    evidence_end: int | None
    delivered: bool
    reason: str | None
    judge_ms: float | None
    text: str | None
    evidence: str | None
    extra: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvent:
    """Everything logged about one request: its row, decisions, claims and documents. Stored whole or not at all.

    ``shadow``: the decisions of shadow policies.
    """

    request: RequestRow
    decisions: tuple[Decision, ...] = ()
    claims: tuple[ClaimRow, ...] = ()
    documents: tuple[DocumentRow, ...] = ()
    shadow: tuple[Decision, ...] = ()

    def event(self) -> "RequestEvent":
        """Itself: an event is a record whose rows are built already."""
        return self


class RecordedRequest(Protocol):
    """The record of a finished request."""

    def event(self) -> RequestEvent:
        """Its event. Building it takes time, so the log does that after the reply has been sent."""
        ...


class EventLog(Protocol):
    """A destination of events."""

    async def append(self, record: RecordedRequest, /) -> None:
        """Log the event of a request. With ``sync`` durability it is committed when this returns; with ``batched`` this
        neither waits for the database nor raises."""
        ...
