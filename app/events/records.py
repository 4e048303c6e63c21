"""The rows of the event log, as frozen values. The gateway makes them, the writer stores them as they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from policies.types import Decision


class RequestRow(Struct, frozen=True, kw_only=True):
    """One request. ``http_status`` is what the client got; times are in milliseconds.

    ``status`` is ``completed``, ``blocked``, ``cancelled`` (the client went away), ``incomplete`` (the upstream's reply
    broke off), ``upstream_error`` (it answered with an error) or ``failed`` (it was not reached, or an error of ours).
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
    """Prompt text, its hash or nothing, as ``GROUNDLANE_STORE_TEXT`` says; the same holds for every text below."""
    reply: str | None = None
    extra: Mapping[str, Any] = {}
    """What the decisions can be made again from, beside documents and claims; ``app.events.replay_data`` reads it."""
    regenerations: int = 0
    """How often the upstream was asked to go on anew, from what stood of its reply."""


class DocumentRow(Struct, frozen=True, kw_only=True):
    """A document of the request and what became of it. ``kept``: it was used; else ``reason`` says why not."""

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
    """A sentence's claim and its verdict (or the sentence alone, where it makes no claim)."""

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
    """Everything that the event log stores of one request: a row, its decisions, its claims and its documents. Stored
    whole or not at all.

    ``shadow``: the decisions of policies that are not enforced.
    """

    request: RequestRow
    decisions: tuple[Decision, ...] = ()
    claims: tuple[ClaimRow, ...] = ()
    documents: tuple[DocumentRow, ...] = ()
    shadow: tuple[Decision, ...] = ()

    def event(self) -> "RequestEvent":
        """Itself: an event is a record whose rows are made already."""
        return self


class RecordedRequest(Protocol):
    """The record of a finished request."""

    def event(self) -> RequestEvent:
        """Its event. Making it takes time, so the log does that after the reply has left."""
        ...


class EventLog(Protocol):
    """Where events go."""

    async def append(self, record: RecordedRequest, /) -> None:
        """Take the event of a request. With ``sync`` durability it is committed when this returns; with ``batched``
        this never waits for the database and never raises."""
        ...
