"""Replies of the LLM APIs and the grounding check. The schemas of upstream replies are open, because the gateway also
forwards fields that they don't describe."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class TextSpan(BaseModel):
    """A range of characters: ``start`` is inclusive, ``end`` exclusive."""

    start: int
    end: int


class UnsupportedClaimSpan(TextSpan):
    """A part of a claim that no document supports."""

    score: float | None


class EvidencePassage(BaseModel):
    """The passage on which a verdict is based."""

    document_id: str
    source: str | None
    content: str
    score: float | None
    span: TextSpan | None


class CheckedClaim(BaseModel):
    """A claim in the reply, and its verdict. ``span`` is the claim's position in the delivered text. ``reason`` says
    why there is no verdict. ``delivered`` is false if the claim's sentence was withheld."""

    claim: str | None
    verdict: str = Field(description="supported, contradicted, unverifiable or not_a_claim")
    score: float | None
    confidence: float | None
    span: TextSpan | None
    best_source: EvidencePassage | None
    citations: list[str]
    escalated: bool
    explanation: str | None
    correction: str | None
    reason: str | None = None
    spans: list[UnsupportedClaimSpan] | None = None
    delivered: bool = True
    choice: int | None = None
    output_index: int | None = Field(None, description="In the Responses API: the index of the output item")
    content_index: int | None = Field(None, description="In the Responses API: the index of the content part")


class PolicyDecision(BaseModel):
    """The decision of one policy in one phase."""

    policy_id: str
    policy_version: int
    policy_name: str
    category: str
    phase: str = Field(description="before_workflow, mid_execution or after_workflow")
    action: str = Field(description="allow, warn, drop or block")
    reason: str
    reason_code: str | None
    metadata: dict[str, Any]
    latency_ms: float


class UsedDocument(BaseModel):
    """A document of the request. ``reason`` says why it was dropped."""

    index: int
    id: str
    source: str | None
    relevance_score: float | None
    age_days: float | None
    reason: str | None = None


class Completeness(BaseModel):
    """How completely the reply answers the question. ``parts`` counts the parts of the question that the documents
    answer. ``answered`` counts those that the reply answers too, and ``unanswered`` lists the others."""

    parts: int
    answered: int
    unanswered: list[str]


class RetrievalSummary(BaseModel):
    """The documents that were used and those that were dropped."""

    kept: list[UsedDocument]
    dropped: list[UsedDocument]
    warnings: list[str]


class LlmUsage(BaseModel):
    """The LLM judge's calls. ``cost_usd`` is null if the price of a model is unknown."""

    models: list[str]
    calls: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    latency_ms: float


class JudgeSummary(BaseModel):
    name: str | None
    latency_ms: float | None
    llm: LlmUsage | None = None


class UnjudgedPart(BaseModel):
    """Delivered text that was not judged."""

    kind: str
    start: int
    end: int


class Grounding(BaseModel):
    """The grounding findings for a reply."""

    request_id: str
    action: str = Field(description="allow, warn or block")
    verdict: str = Field(
        description="supported, has_unverifiable, has_contradictions, no_claims, no_sources or not_checked"
    )
    trust_score: float | None
    is_trusted: bool
    total_claims: int
    supported_count: int
    contradicted_count: int
    unverifiable_count: int
    unverifiable_ratio: float | None
    coverage: float | None
    summary: str
    judge: JudgeSummary
    claims: list[CheckedClaim] | None = None
    decisions: list[PolicyDecision] | None = None
    retrieval: RetrievalSummary | None = None
    unjudged: list[UnjudgedPart] | None = None
    final_because: list[str] | None = None
    answer_relevance: float | None = None
    completeness: Completeness | None = None
    claims_skipped: int | None = None
    stripped_count: int | None = None
    corrected_count: int | None = None
    regenerations: int | None = None
    not_regenerated: str | None = None
    not_checked: list[str] | None = None


class ChatCompletion(Open):
    """An OpenAI chat completion with the grounding findings."""

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any] | None = None
    grounding: Grounding | None = None


class Completion(Open):
    """An OpenAI completion with the grounding findings."""

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any] | None = None
    grounding: Grounding | None = None


class ResponsesReply(Open):
    """An OpenAI Responses API response with the grounding findings."""

    id: str
    object: str
    created_at: float
    model: str
    status: str | None = None
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None = None
    grounding: Grounding | None = None


class MessagesReply(Open):
    """An Anthropic message with the grounding findings."""

    id: str
    type: str
    role: str
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    usage: dict[str, Any] | None = None
    grounding: Grounding | None = None


class CheckSource(BaseModel):
    """The passage on which a verdict of a check is based."""

    chunk_id: str
    content: str
    score: float | None


class CheckClaim(BaseModel):
    """A claim in the checked text, and its verdict. ``reason`` says why there is no verdict."""

    claim: str
    verdict: str = Field(description="supported, contradicted, unverifiable or not_a_claim")
    confidence: float | None
    best_source: CheckSource | None
    escalated: bool
    span: TextSpan
    reason: str | None = None
    explanation: str | None = None
    correction: str | None = None
    corrected: str | None = Field(None, description="The claim with the correction marked")
    spans: list[UnsupportedClaimSpan] | None = None


class CheckJudge(BaseModel):
    name: str | None
    latency_ms: float | None


class CheckReport(BaseModel):
    """The grounding findings for a checked text."""

    grounded: bool
    verdict: str
    claims: list[CheckClaim]
    total_claims: int
    supported_count: int
    contradicted_count: int
    unverifiable_count: int
    unverifiable_ratio: float | None
    trust_score: float | None
    is_trusted: bool
    coverage: float | None
    unjudged: list[UnjudgedPart]
    summary: str
    reason_code: str | None = None
    claims_skipped: int
    action: str
    decisions: list[PolicyDecision]
    judge: CheckJudge
    request_id: str
