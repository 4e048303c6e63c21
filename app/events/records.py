"""The rows of the event log, as frozen values. The gateway creates the rows, and the writer stores them unchanged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from policies.types import Decision


class RequestRow(Struct, frozen=True, kw_only=True):
    """A request. ``http_status`` is the status that the client received. Durations are in milliseconds.

    ``status`` is one of the following:

    - ``completed``
    - ``blocked``
    - ``cancelled``: the client disconnected.
    - ``incomplete``: the upstream's reply was cut off.
    - ``upstream_error``: the upstream returned an error.
    - ``failed``: the upstream was unreachable, or an internal error occurred.
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
    """The prompt text, its hash, or None, depending on ``GROUNDLANE_STORE_TEXT``. The same applies to all other text in
    the row."""
    reply: str | None = None
    extra: Mapping[str, Any] = {}
    """The data, other than documents and claims, that is needed to replay the decisions; see
    ``app.events.replay_data``."""
    regenerations: int = 0
    """The number of times that the reply was regenerated, starting from a failed sentence."""
    question: str | None = None
    """The beginning of the user's question, if text is stored in full."""


class DocumentRow(Struct, frozen=True, kw_only=True):
    """A document in the request. ``kept`` means that the document was used. Otherwise, ``reason`` says why not."""

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
    """A claim in a sentence with its verdict, or a sentence that makes no claim."""

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
    """Everything that is logged about one request: its row, decisions, claims and documents. They are stored together
    or not at all.

    ``shadow`` holds the decisions of shadow policies.
    """

    request: RequestRow
    decisions: tuple[Decision, ...] = ()
    claims: Sequence[ClaimRow] = ()
    documents: tuple[DocumentRow, ...] = ()
    shadow: tuple[Decision, ...] = ()

    def event(self) -> "RequestEvent":
        """Return the event itself, because its rows are already built."""
        return self


class RecordedRequest(Protocol):
    """The record of a finished request."""

    def event(self) -> RequestEvent:
        """Build the event. This takes time, so the event log calls it after the reply has been sent."""
        ...


class EventLog(Protocol):
    """A destination for events."""

    async def append(self, record: RecordedRequest, /) -> None:
        """Log a request's event. With ``sync`` durability, the event is committed when the call returns. With
        ``batched`` durability, the call neither waits for the database nor raises."""
        ...
