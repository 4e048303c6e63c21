"""Replies of the admin API about the event log."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field


class RequestSummary(BaseModel):
    """A logged request, without its text."""

    request_id: str
    ts: datetime
    api: str
    model: str | None
    resolved_model: str | None
    agent: str | None
    run_id: str | None
    key_prefix: str | None
    stream: bool
    status: str = Field(description="completed, blocked, cancelled, incomplete, upstream_error or failed")
    http_status: int
    action: str = Field(description="allow, warn or block")
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
    regenerations: int
    question: str | None = Field(description="Start of the question, if texts are stored in full")
    total_tokens: int | None
    lowest_claim_score: float | None
    average_claim_score: float | None
    lowest_relevance_score: float | None = Field(description="The lowest score among the kept documents")
    average_relevance_score: float | None


class LoggedRequest(RequestSummary):
    """A logged request with its text, if it was stored."""

    prompt: str | None
    reply: str | None
    llm: dict[str, Any] | None
    judge_fault: str | None
    judging: dict[str, Any] | None
    marks: dict[str, float] | None
    dropped: dict[str, Any] | None


class LoggedDecision(BaseModel):
    """A policy's decision on a request. A ``shadow`` decision has no effect."""

    id: str
    request_id: str
    run_id: str | None
    ts: datetime
    agent: str | None
    model: str | None
    policy_id: str
    policy_version: int
    policy_name: str
    category: str
    phase: str
    action: str
    reason: str
    reason_code: str | None
    metadata: dict[str, Any] | None
    latency_ms: float
    shadow: bool


class LoggedDocument(BaseModel):
    """A document of a logged request. ``kept`` is true if no policy dropped the document."""

    position: int
    document_id: str
    source: str | None
    collection: str | None
    relevance_score: float | None
    age_days: float | None
    title: str | None
    url: str | None
    kept: bool
    outcome: str = Field(
        description="kept; dropped; refused: the request was blocked because of this document; not_sent: the request "
        "was blocked for another reason"
    )
    reason: str | None
    text: str | None


class LoggedClaim(BaseModel):
    """A claim in a sentence, and its verdict."""

    position: int
    start: int
    end: int
    label: str = Field(description="supported, contradicted, unverifiable or not_a_claim")
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
    extra: dict[str, Any] | None


class LoggedSentence(BaseModel):
    """A sentence of a reply. ``label`` is the worst verdict among its claims."""

    choice: int
    index: int
    label: str
    start: int
    end: int
    delivered: bool
    judge_ms: float | None
    claims: list[LoggedClaim]


class Trace(BaseModel):
    """All stored data about a request."""

    request: LoggedRequest
    documents: list[LoggedDocument]
    decisions: list[LoggedDecision]
    sentences: list[LoggedSentence]


class SearchState(BaseModel):
    """``texts_stored`` says whether the text of new requests is stored."""

    texts_stored: bool


class RequestPage(BaseModel):
    items: list[RequestSummary]
    next_cursor: str | None
    search: SearchState | None = Field(default=None, description="Present only if q is set")


class FacetValue(BaseModel):
    value: str
    count: int


class ValueFacet(BaseModel):
    """The most frequent values. ``complete`` is true if all matching requests were counted, rather than only the
    newest."""

    complete: bool
    values: list[FacetValue]


class FacetBand(BaseModel):
    """A range of values. ``min`` is inclusive, ``max`` exclusive. A null bound means no limit."""

    min: float | None
    max: float | None
    count: int


class BandFacet(BaseModel):
    complete: bool
    bands: list[FacetBand]


class RequestFacetCounts(BaseModel):
    """The number of matching requests by value. ``total`` is the number of requests counted."""

    total: int
    complete: bool
    action: ValueFacet
    verdict: ValueFacet
    status: ValueFacet
    key: ValueFacet
    latency_ms: BandFacet
    trust: BandFacet


class DecisionPage(BaseModel):
    items: list[LoggedDecision]
    next_cursor: str | None
