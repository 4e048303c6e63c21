"""Replies of the runs API."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from app.api.openapi.llm_replies import PolicyDecision


class RunPolicy(BaseModel):
    """A policy that applies to the run."""

    id: str
    name: str
    category: str
    version: int


class RunStepReply(BaseModel):
    """The decisions that a step caused. The reply to the start of a run also has the run's agent, model and
    policies."""

    run_id: str
    status: str
    action: str = Field(description="allow, warn, drop or block")
    decisions: list[PolicyDecision]
    blocked_by: str | None
    abstention_response: str | None
    step: int
    recorded: dict[str, int]
    request_id: str | None
    agent: str | None = None
    model: str | None = None
    policies: list[RunPolicy] | None = None


class RunDocument(BaseModel):
    id: str
    source: str | None
    collection: str | None
    relevance_score: float | None
    age_days: float | None
    title: str | None
    url: str | None


class RunDecision(PolicyDecision):
    """A decision in a run, with the step that caused it."""

    step: int
    ts: datetime
    request_id: str | None


class Run(BaseModel):
    """Everything recorded in a run, and all decisions made so far."""

    run_id: str
    agent: str | None
    model: str | None
    status: str
    action: str
    step: int
    created_at: datetime
    updated_at: datetime
    policies: list[RunPolicy]
    recorded: dict[str, int]
    documents: list[RunDocument]
    grounding_scores: list[float]
    citations: list[str]
    unsupported_claims: list[str]
    output_confidence: float | None
    trust_score: float | None
    requests: list[str]
    result: Any
    decisions: list[RunDecision]


class RunSummary(BaseModel):
    """A run in a list. ``action`` is the strictest action so far, and ``step`` is the number of the last step."""

    run_id: str
    agent: str | None
    model: str | None
    key_prefix: str | None
    status: str = Field(description="open or completed")
    action: str
    step: int
    recorded: dict[str, int]
    created_at: datetime
    updated_at: datetime


class RunListPage(BaseModel):
    items: list[RunSummary]
    next_cursor: str | None


class RecordedStep(BaseModel):
    """A step of a run, with the recorded data and the decisions that it caused."""

    step: int
    ts: datetime
    kind: str = Field(description="start, retrieval, grounding, call or complete")
    request_id: str | None
    action: str
    decisions: list[PolicyDecision]
    data: dict[str, Any]


class RunTrace(Run):
    """A run with its steps."""

    key_prefix: str | None
    steps: list[RecordedStep]
