"""The rules of the category ``grounding``."""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from judges.label_thresholds import Thresholds
from judges.llm_types import ScoreRequest
from judges.types import ClaimVerdict, Label
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
    min_grounding_score: Share = Field(0.7, description="Minimum score of a claim; an equal score passes")
    min_citations: Count = Field(1, description="Minimum number of distinct documents cited")
    max_unsupported_claims: Count | None = Field(
        None, description="Maximum number of unsupported claims; null: no limit, 0: none allowed"
    )
    factual_consistency_check: bool = Field(
        False, description="Claims of the reply or run that contradict each other are a violation"
    )
    abstention_threshold: Share | None = Field(
        None, description="Minimum output confidence; if the caller reports none, the trust score is used"
    )
    abstention_response: Text | None = Field(None, description="Text sent in place of a blocked reply")
    min_answer_relevance: Share | None = Field(
        None,
        description="Minimum share of the question's content that the reply covers; null: not measured, "
        "0: measured but not enforced",
    )
    report_completeness: bool = Field(
        False, description="Report the parts of the question that the documents answer but the reply does not"
    )
    action_on_violation: Literal["warn", "block"] = Field("warn", description="Action on a violation")
    score_relevance_floor: Share | None = Field(None, description="Scores below this are left out of the score check")
    score_eval_mode: Literal["all", "average", "top_n"] = Field(
        "all",
        description="Which scores must reach min_grounding_score: each one, their mean, or the score_top_n highest",
    )
    score_top_n: Positive = Field(3, description="Number of top scores that top_n checks")
    llm_grounding_check: bool = Field(False, description="Have an LLM judge score the reply as a whole")
    llm_grounding_model: Text = Field("gpt-4o-mini", min_length=1, description="Model of the LLM judge")
    llm_grounding_threshold: Share = Field(0.7, description="Minimum score from the LLM judge")
    llm_grounding_criteria: Text = Field("", description="Appended to the prompt of the LLM judge")
    llm_grounding_phase: Literal["mid_execution", "after_workflow", "both"] = Field(
        "mid_execution", description="Phase whose decision uses the LLM judge's score"
    )
    entailment_threshold: Share = Field(
        0.7, description="Minimum probability of support for a claim to count as supported"
    )
    contradiction_threshold: Share = Field(
        0.7,
        description="Minimum probability of contradiction for a claim to count as contradicted; it must also exceed "
        "the probability of support",
    )
    max_unverifiable_ratio: Share = Field(0.5, description="Maximum share of unverifiable claims")
    contradiction_action: Literal["flag", "block", "correct"] = Field(
        "flag",
        description="Action if a claim is contradicted; correct replaces it with the judge's correction, or applies "
        "action_on_violation if there is none",
    )
    max_regenerations: Regenerations = Field(
        0,
        description="Maximum number of times a reply is regenerated from a failed sentence; each time costs one "
        "upstream call",
    )
    unverifiable_action: Literal["flag", "block", "strip"] = Field(
        "flag",
        description="Action if too many claims are unverifiable; strip leaves out each sentence with an unverifiable "
        "claim",
    )
    unjudged_action: Literal["allow", "warn", "strip", "block"] = Field(
        "warn",
        description="Action if text that may contain claims wasn't judged; strip leaves it out, block blocks the reply",
    )
    min_coverage: Share = Field(
        0.0,
        description="Minimum share of the reply (letters and digits) that is judged or makes no claim; checked at "
        "the end",
    )
    reasoning_action: Literal["pass", "drop", "judge"] = Field(
        default_factory=_default_reasoning_action,
        description="Reasoning text: pass it on, drop it, or judge it like the reply. If unjudged_action is strip or "
        "block, the default is drop and pass is not allowed",
        json_schema_extra={"default": "pass"},
    )
    tool_call_action: Literal["pass", "hold", "drop"] = Field(
        "pass",
        description="Tool calls: pass them on, hold each until the text before it is judged, or drop them; "
        "a blocked reply contains none",
    )
    max_sources_per_claim: Positive = Field(5, description="Maximum number of passages against which a claim is judged")
    max_claims: Positive | None = Field(
        None,
        description="Maximum number of claims judged per reply; null: all. A claim that the LLM judge splits counts "
        "once, but it and each of its parts are judged",
    )
    stream_mode: Literal["hold", "live", "final"] = Field(
        "hold",
        description="hold: each sentence is sent once it is checked; live: text is sent at once; "
        "final: the reply is sent at the end",
    )
    score_source: Literal["judge", "reported", "retrieval"] = Field(
        "judge",
        description="Scores to check against min_grounding_score. judge: the judge's scores, or the caller's if the "
        "reply isn't judged; reported: the caller's scores; retrieval: the documents' relevance scores",
    )
    require_valid_citations: bool = Field(
        False,
        description="A citation of an unknown document, or of one that does not support its sentence, is a violation",
    )
    on_block: Literal["replace", "error"] = Field(
        "replace", description="What the client receives instead of a blocked reply: a text (replace) or an error"
    )
    on_judge_unavailable: Literal["allow", "block"] = Field(
        "allow", description="Action on a reply with documents if no judge is available"
    )
    evidence_from_tools: bool = Field(False, description="Count tool messages among the documents")

    @field_validator("reasoning_action")
    @classmethod
    def _unjudged_reasoning(cls, value: str, info: ValidationInfo) -> str:
        unjudged = info.data.get("unjudged_action")
        if value == "pass" and unjudged in WITHHOLDING:
            raise ValueError(f"Input should be 'drop' or 'judge' because unjudged_action is '{unjudged}'")
        return value

    @cached_property
    def thresholds(self) -> Thresholds:
        return Thresholds(entailment=self.entailment_threshold, contradiction=self.contradiction_threshold)

    @property
    def score_request(self) -> ScoreRequest | None:
        """The request for an LLM score of the whole reply, or None if these rules don't need one."""
        if not self.llm_grounding_check:
            return None
        return ScoreRequest(model=self.llm_grounding_model, criteria=self.llm_grounding_criteria)

    # The action on a claim in the reply, according to the claim's label under these thresholds. ``replaceable`` means
    # that the claim's text has not been sent yet.

    def needs_correction(self, claim: ClaimVerdict) -> bool:
        """Return whether the claim is contradicted and would be replaced by its correction if it had one."""
        return self.contradiction_action == "correct" and self.thresholds.label_of(claim) is Label.CONTRADICTED

    def is_corrected(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """Return whether the claim is replaced by its correction."""
        return replaceable and claim.correction is not None and self.needs_correction(claim)

    def is_blocked(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """Return whether the claim is contradicted and ends the reply. A claim that should be corrected but has no
        correction is an ordinary violation."""
        label = self.thresholds.label_of(claim)
        if label is not Label.CONTRADICTED or self.is_corrected(claim, replaceable=replaceable):
            return False
        correct = self.contradiction_action == "correct"
        return (self.action_on_violation if correct else self.contradiction_action) == "block"

    def is_stripped(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """Return whether the claim is unverifiable and its sentence is left out."""
        return (
            self.unverifiable_action == "strip"
            and replaceable
            and self.thresholds.label_of(claim) is Label.UNVERIFIABLE
        )

    def leaves_out_unjudged(self, *, replaceable: bool) -> bool:
        """Return whether unjudged text is left out of the reply."""
        return self.unjudged_action == "strip" and replaceable
