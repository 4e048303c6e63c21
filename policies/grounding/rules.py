"""The rules of the category ``grounding``."""

from typing import Annotated, Literal

from pydantic import Field

from judges.types import ClaimVerdict, Label, ScoreRequest, Thresholds
from policies.base import Rules, Text

LARGEST = 2**63 - 1
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Regenerations = Annotated[int, Field(ge=0, le=5)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]


class GroundingRules(Rules):
    """Rules for the reply to a request, or for a run."""

    require_source_grounding: bool = Field(False, description="A reply with no citation at all is a violation")
    min_grounding_score: Share = Field(0.7, description="Lowest acceptable score of a claim; an equal one passes")
    min_citations: Count = Field(1, description="Fewest distinct documents cited")
    max_unsupported_claims: Count | None = Field(
        None, description="Most claims without support in a source; null: no limit, 0: none tolerated"
    )
    factual_consistency_check: bool = Field(
        False, description="Claims of the reply, and of its run, that contradict each other are a violation"
    )
    abstention_threshold: Share | None = Field(
        None, description="An output confidence (the caller's, else the trust score) below it is a violation"
    )
    abstention_response: Text | None = Field(None, description="What the user gets in place of a blocked reply")
    action_on_violation: Literal["warn", "block"] = Field("warn", description="What a violation does")
    score_relevance_floor: Share | None = Field(None, description="Scores below it are left out of the score check")
    score_eval_mode: Literal["all", "average", "top_n"] = Field(
        "all", description="Which scores must reach min_grounding_score: each one, their mean, or the highest"
    )
    score_top_n: Positive = Field(3, description="How many of the highest scores top_n checks")
    llm_grounding_check: bool = Field(False, description="The LLM judge scores the reply as a whole")
    llm_grounding_model: Text = Field("gpt-4o-mini", min_length=1, description="Model of the LLM judge")
    llm_grounding_threshold: Share = Field(0.7, description="Lowest acceptable score of the LLM judge")
    llm_grounding_criteria: Text = Field("", description="Appended to the prompt of the LLM judge")
    llm_grounding_phase: Literal["mid_execution", "after_workflow", "both"] = Field(
        "mid_execution", description="In which phase's decision the score of the LLM judge counts"
    )
    entailment_threshold: Share = Field(0.7, description="A claim is supported at or above this probability")
    contradiction_threshold: Share = Field(
        0.7, description="A claim is contradicted at or above this probability, where it is above that of support"
    )
    max_unverifiable_ratio: Share = Field(0.5, description="Largest share of claims that no source speaks to")
    contradiction_action: Literal["flag", "block", "correct"] = Field(
        "flag",
        description="What a contradicted claim does; correct puts the judge's correction in its place if there is one, "
        "else does what action_on_violation says",
    )
    max_regenerations: Regenerations = Field(
        0,
        description="How often a reply may be asked for anew from where a sentence fails; each time is one call more",
    )
    unverifiable_action: Literal["flag", "block", "strip"] = Field(
        "flag", description="What too many unverifiable claims do; strip leaves out each sentence that makes one"
    )
    max_sources_per_claim: Positive = Field(5, description="Most pieces of evidence a claim is judged against")
    max_claims: Positive | None = Field(None, description="Most claims judged in a reply; null: every one")
    stream_mode: Literal["hold", "live", "final"] = Field(
        "hold", description="Text goes out sentence by sentence once checked, at once, or whole at the end"
    )
    score_source: Literal["judge", "reported", "retrieval"] = Field(
        "judge",
        description="Whose scores min_grounding_score is for: the judge's (the caller's where none judged), "
        "the caller's, or the documents' relevance",
    )
    require_valid_citations: bool = Field(
        False, description="A marker that names no document, or one that does not support its sentence, is a violation"
    )
    on_block: Literal["replace", "error"] = Field("replace", description="What the client gets for a blocked reply")
    on_judge_unavailable: Literal["allow", "block"] = Field(
        "allow", description="What happens to a reply with documents that no judge could look at"
    )
    evidence_from_tools: bool = Field(False, description="What tool messages say counts among the documents")

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(entailment=self.entailment_threshold, contradiction=self.contradiction_threshold)

    @property
    def score_request(self) -> ScoreRequest | None:
        """What these rules ask an LLM of a whole reply; None: nothing."""
        if not self.llm_grounding_check:
            return None
        return ScoreRequest(model=self.llm_grounding_model, criteria=self.llm_grounding_criteria)

    def label(self, claim: ClaimVerdict) -> Label:
        """What this policy holds of ``claim``, by its own thresholds."""
        return claim.at(self.thresholds)

    def corrects(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """Whether the correction of ``claim`` is to stand in its place, if what went out can still be another."""
        wanted = self.contradiction_action == "correct" and self.label(claim) is Label.CONTRADICTED
        return wanted and replaceable and claim.correction is not None
