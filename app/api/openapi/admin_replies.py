"""Replies of the admin API: statistics, simulations, calibration and the gateway's state."""

from datetime import date, datetime
from typing import Any

from pydantic import BaseModel, Field, RootModel


class RequestStatistics(BaseModel):
    """Statistics of a set of requests. Latencies are given for ``total``, ``upstream``, ``judge`` and ``gateway``."""

    requests: int
    actions: dict[str, int]
    verdicts: dict[str, int]
    statuses: dict[str, int]
    rates: dict[str, float | None]
    prompt_tokens: int
    completion_tokens: int
    trust_score: float | None
    mean_ms: dict[str, float]
    latency_ms: dict[str, dict[str, float]] | None = None


class StatisticsBucket(RequestStatistics):
    """Statistics for one time bucket."""

    start: datetime


class PhaseStatistics(BaseModel):
    """Statistics of the decisions of one category in one phase."""

    category: str
    phase: str
    decisions: int
    actions: dict[str, int]
    reason_codes: dict[str, int]
    latency_ms: dict[str, float]


class RequestGroup(RequestStatistics):
    """Statistics for one agent or model. ``key`` is its name."""

    key: str | None


class PolicyStatistics(BaseModel):
    """Statistics of one policy's decisions."""

    policy_id: str
    policy_name: str | None
    shadow: bool
    decisions: int
    actions: dict[str, int]
    reason_codes: dict[str, int]
    latency_ms: dict[str, float]


class StatisticsReport(BaseModel):
    """``buckets`` and ``groups`` are present only if requested."""

    since: datetime
    until: datetime
    totals: RequestStatistics
    phases: list[PhaseStatistics]
    buckets: list[StatisticsBucket] | None = None
    groups: list[RequestGroup | PolicyStatistics] | None = None


class UsageTotals(BaseModel):
    """Tokens and their cost in US dollars. The cost is null if no model has a known price. ``unpriced_tokens`` counts
    tokens of models without a known price, by model. They aren't included in the cost."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    unpriced_tokens: dict[str, int]


class UsageBucket(UsageTotals):
    """Usage in one time bucket."""

    start: datetime


class UsageOfGroup(UsageTotals):
    """Usage of one agent, model or gateway key. ``key`` is its name."""

    key: str | None


class PriceDates(BaseModel):
    """The date and source of the list prices, and the date of the operator's own price file."""

    as_of: date | None
    source: str | None
    own_as_of: date | None


class UsageReport(BaseModel):
    """``buckets`` and ``groups`` are present only if requested. Buckets without requests are omitted."""

    since: datetime
    until: datetime
    prices: PriceDates
    totals: UsageTotals
    buckets: list[UsageBucket] | None = None
    groups: list[UsageOfGroup] | None = None


class RunCounts(BaseModel):
    good: int
    bad: int


class ScoreBin(BaseModel):
    """The number of good and bad runs with a score in this range."""

    from_: float = Field(alias="from")
    to: float
    good: int
    bad: int


class ThresholdEffect(BaseModel):
    """The number of runs that a threshold would have blocked, in total and by kind."""

    threshold: float
    runs: int
    good: int
    bad: int
    marked_good: int
    marked_bad: int


class ScoredRuns(BaseModel):
    """The number of runs, in total and by kind."""

    runs: int
    good: int
    bad: int
    marked_good: int
    marked_bad: int


class RunOrigins(BaseModel):
    """The number of runs by the basis for classifying them as good or bad: review labels, feedback, or only the actions
    of policies."""

    labels: int
    feedback: int
    actions: int


class Calibration(BaseModel):
    """A threshold derived from the scores of good runs. If there are no good runs, ``threshold`` and ``would_block``
    are null."""

    source: str = Field(description="The source of the scores: judge, reported or retrieval")
    percentile: float
    threshold: float | None
    runs: RunCounts
    origins: RunOrigins
    would_block: RunCounts | None
    histogram: list[ScoreBin]
    thresholds: list[ThresholdEffect]
    totals: ScoredRuns


class PolicyQualityItem(BaseModel):
    """The quality of a policy, based on feedback."""

    policy_id: str
    policy_name: str
    shadow: bool
    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int
    precision: float | None
    recall: float | None


class PolicyQualityPage(BaseModel):
    items: list[PolicyQualityItem]
    next_cursor: str | None


class SimulatedDecision(BaseModel):
    policy_id: str
    policy_name: str
    phase: str
    action: str
    reason: str
    reason_code: str | None


class SimulatedAction(BaseModel):
    """The action on a request, and all decisions other than ``allow``."""

    action: str
    decisions: list[SimulatedDecision]


class ChangedRequest(BaseModel):
    """A request for which the simulated policy would change the decisions."""

    request_id: str | None
    ts: datetime | None
    agent: str | None
    model: str | None
    before: SimulatedAction
    after: SimulatedAction
    doubts: list[str]


class SimulatedPolicy(BaseModel):
    id: str | None
    name: str
    version: int


class ReasonCodes(BaseModel):
    before: dict[str, int]
    after: dict[str, int]


class SimulationReport(BaseModel):
    """The effect of a policy. ``actions`` counts requests. Its outer keys are the actions before the change, and its
    inner keys are the actions after the change."""

    policy: SimulatedPolicy
    requests: int
    changed: int
    uncertain: int
    doubts: dict[str, int]
    unreadable: int
    actions: dict[str, dict[str, int]]
    reason_codes: ReasonCodes
    items: list[ChangedRequest]
    next_cursor: str | None


class PolicyTemplate(BaseModel):
    """A policy template. Rules that aren't listed have their default values."""

    name: str
    category: str
    description: str
    rules: dict[str, Any]


class TemplatePage(BaseModel):
    items: list[PolicyTemplate]
    next_cursor: str | None


class RuleSchemas(RootModel[dict[str, dict[str, Any]]]):
    """The JSON Schema of each category's rules, by category name."""


class UpstreamHealth(BaseModel):
    """The health of an upstream, as seen by the worker that handles the request."""

    attempts: int
    failures: int
    failures_in_a_row: int
    last_failure: str | None
    last_failure_at: datetime | None
    last_success_at: datetime | None


class UpstreamInfo(BaseModel):
    name: str
    api: str
    base_url: str
    models: list[str]
    alias: dict[str, str]
    fallback: list[str]
    retries: int
    accepts_documents: bool
    has_key: bool
    health: UpstreamHealth


class UpstreamPage(BaseModel):
    items: list[UpstreamInfo]
    next_cursor: str | None


class AuditEntry(BaseModel):
    """A change, with the values before and after it. ``before`` is null if the target was created, and ``after`` is
    null if it was deleted."""

    id: str
    ts: datetime
    actor: str
    action: str
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditPage(BaseModel):
    items: list[AuditEntry]
    next_cursor: str | None


class Liveness(BaseModel):
    status: str


class PartState(BaseModel):
    ok: bool
    detail: str


class ReadinessReport(BaseModel):
    """Whether the gateway can serve requests. ``status`` is ``ready``, ``degraded`` or ``unavailable``."""

    status: str
    checks: dict[str, PartState]
