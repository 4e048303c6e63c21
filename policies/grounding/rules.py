"""The rules of the category ``grounding``."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from judges.thresholds import Thresholds
from judges.types import ScoreRequest
from policies.base import Rules, Text

LARGEST = 2**63 - 1
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Regenerations = Annotated[int, Field(ge=0, le=5)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
WITHHOLDING = frozenset({"strip", "block"})
"""The values of ``unjudged_action`` under which no unjudged text is delivered."""


def _default_reasoning_action(rules: dict[str, Any]) -> Literal["pass", "drop"]:
    return "drop" if rules.get("unjudged_action") in WITHHOLDING else "pass"


class GroundingRules(Rules):
    """Rules for the reply to a request, or for a run."""

    require_source_grounding: bool = Field(False, description="A reply without citations is a violation")
    min_grounding_score: Share = Field(0.7, description="Lowest acceptable score of a claim; an equal score passes")
    min_citations: Count = Field(1, description="Minimum number of distinct documents cited")
    max_unsupported_claims: Count | None = Field(
        None, description="Maximum number of unsupported claims; null: no limit, 0: none tolerated"
    )
    factual_consistency_check: bool = Field(
        False, description="Claims of the reply or run that contradict each other are a violation"
    )
    abstention_threshold: Share | None = Field(
        None, description="An output confidence (the caller's, else the trust score) below this is a violation"
    )
    abstention_response: Text | None = Field(None, description="Text sent in place of a blocked reply")
    action_on_violation: Literal["warn", "block"] = Field("warn", description="Action on a violation")
    score_relevance_floor: Share | None = Field(None, description="Scores below this are left out of the score check")
    score_eval_mode: Literal["all", "average", "top_n"] = Field(
        "all",
        description="Which scores must reach min_grounding_score: each one, their mean, or the score_top_n highest",
    )
    score_top_n: Positive = Field(3, description="Number of highest scores that top_n checks")
    llm_grounding_check: bool = Field(False, description="Have an LLM judge score the reply as a whole")
    llm_grounding_model: Text = Field("gpt-4o-mini", min_length=1, description="Model of the LLM judge")
    llm_grounding_threshold: Share = Field(0.7, description="Lowest acceptable score of the LLM judge")
    llm_grounding_criteria: Text = Field("", description="Appended to the prompt of the LLM judge")
    llm_grounding_phase: Literal["mid_execution", "after_workflow", "both"] = Field(
        "mid_execution", description="Phase whose decision uses the LLM judge's score"
    )
    entailment_threshold: Share = Field(0.7, description="A claim is supported at or above this probability")
    contradiction_threshold: Share = Field(
        0.7, description="A claim is contradicted at or above this probability, if it is higher than that of support"
    )
    max_unverifiable_ratio: Share = Field(0.5, description="Maximum share of unverifiable claims")
    contradiction_action: Literal["flag", "block", "correct"] = Field(
        "flag",
        description="Action on a contradicted claim; correct replaces it by the judge's correction, or, without one, "
        "falls back to action_on_violation",
    )
    max_regenerations: Regenerations = Field(
        0,
        description="How often a reply may be regenerated from a failed sentence; each time is one more upstream call",
    )
    unverifiable_action: Literal["flag", "block", "strip"] = Field(
        "flag",
        description="Action on too many unverifiable claims; strip leaves out each sentence with an unverifiable claim",
    )
    unjudged_action: Literal["allow", "warn", "strip", "block"] = Field(
        "warn",
        description="Action on text that is neither judged nor known to state nothing; strip leaves it out, block "
        "blocks the reply",
    )
    min_coverage: Share = Field(
        0.0,
        description="Minimum share of the reply's letters and digits that are judged or state nothing; decided at the "
        "end",
    )
    reasoning_action: Literal["pass", "drop", "judge"] = Field(
        default_factory=_default_reasoning_action,
        description="Reasoning text: pass it on, drop it, or judge it like the reply. If unjudged_action is strip or "
        "block, the default is drop and pass is not allowed",
        json_schema_extra={"default": "pass"},
    )
    tool_call_action: Literal["pass", "hold", "drop"] = Field(
        "pass",
        description="Tool calls: pass them on, hold each until the text before it is judged, or drop them; a blocked "
        "reply has none",
    )
    max_sources_per_claim: Positive = Field(5, description="Maximum number of passages a claim is judged against")
    max_claims: Positive | None = Field(None, description="Maximum number of claims judged per reply; null: all")
    stream_mode: Literal["hold", "live", "final"] = Field(
        "hold",
        description="hold: sentences are sent once checked; live: text is sent at once; final: the reply is sent whole",
    )
    score_source: Literal["judge", "reported", "retrieval"] = Field(
        "judge",
        description="Scores checked against min_grounding_score: the judge's (the caller's if there is no judge), "
        "those the caller reports, or the documents' relevance scores",
    )
    require_valid_citations: bool = Field(
        False,
        description="A citation of an unknown document, or of one that does not support its sentence, is a violation",
    )
    on_block: Literal["replace", "error"] = Field(
        "replace", description="What the client receives instead of a blocked reply"
    )
    on_judge_unavailable: Literal["allow", "block"] = Field(
        "allow", description="What happens to a reply with documents if no judge is available"
    )
    evidence_from_tools: bool = Field(False, description="Count tool messages among the documents")

    @field_validator("reasoning_action")
    @classmethod
    def _unjudged_reasoning(cls, value: str, info: ValidationInfo) -> str:
        unjudged = info.data.get("unjudged_action")
        if value == "pass" and unjudged in WITHHOLDING:
            raise ValueError(f"Input should be 'drop' or 'judge' because unjudged_action is '{unjudged}'")
        return value

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(entailment=self.entailment_threshold, contradiction=self.contradiction_threshold)

    @property
    def score_request(self) -> ScoreRequest | None:
        """The LLM score of the whole reply that these rules need; None if they need none."""
        if not self.llm_grounding_check:
            return None
        return ScoreRequest(model=self.llm_grounding_model, criteria=self.llm_grounding_criteria)
