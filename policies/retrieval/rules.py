"""The rules of the category ``retrieval``."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from policies.base import Rules, Text

LARGEST = 2**63 - 1
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
NameList = Annotated[tuple[Text, ...], Field(strict=False)]
"""A list of names. The names are validated strictly, but the list isn't, so that a JSON list is accepted as a tuple."""


class RetrievalRules(Rules):
    """Rules for the documents of a request or run."""

    relevance_scale: Literal["unit", "any"] = Field(
        "unit",
        description="Range of relevance scores. unit: 0 to 1; any: any number, such as a BM25 score or a dot product",
    )
    min_relevance_score: float = Field(0.7, description="Minimum relevance score; an equal score passes")
    max_source_age_days: Count = Field(90, description="Maximum document age in days; an equal age passes")
    min_chunks: Count = Field(1, description="Minimum number of documents")
    max_chunks: int = Field(10, ge=1, le=LARGEST, description="Maximum number of documents")
    allowed_collections: NameList = Field((), description="Allowed collections; empty: all")
    blocked_sources: NameList = Field((), description="Identifiers of blocked sources, matched exactly")
    require_source_diversity: bool = Field(
        False, description="Limit the share of each source to max_single_source_ratio"
    )
    max_single_source_ratio: Share = Field(
        0.6, description="Maximum share of documents from one source, if require_source_diversity is on"
    )
    action_on_low_relevance: Literal["warn", "block", "drop"] = Field(
        "warn", description="Action if a document's score is below min_relevance_score; drop removes it"
    )
    action_on_stale_source: Literal["warn", "block", "drop"] = Field(
        "block", description="Action if a document is older than max_source_age_days; drop removes it"
    )
    action_on_chunk_violation: Literal["warn", "block", "drop"] = Field(
        "warn", description="Action if there are too few or too many documents; drop keeps the max_chunks most relevant"
    )
    action_on_blocked_source: Literal["block", "drop"] = Field(
        "block", description="Action if a document is from blocked_sources; drop removes it"
    )
    action_on_disallowed_collection: Literal["block", "drop"] = Field(
        "block", description="Action if a document's collection isn't in allowed_collections; drop removes it"
    )
    action_on_domination: Literal["warn", "block", "drop"] = Field(
        "warn",
        description="Action if one source dominates; drop removes its least relevant documents "
        "until it no longer dominates",
    )
    on_all_dropped: Literal["refuse", "warn"] = Field(
        "refuse",
        description="Action if every document is dropped: refuse the request, or send it without documents and warn",
    )
    on_missing_metadata: Literal["ignore", "warn", "block"] = Field(
        "ignore", description="Action if a document lacks the score, age, collection or source that a rule needs"
    )
    on_injected_instructions: Literal["ignore", "warn", "drop"] = Field(
        "ignore",
        description="Action if a document contains instructions to the model or to the judge; drop removes it",
    )
    require_documents: bool = Field(
        False, description="A request without documents is a violation; if false, such a request is not evaluated"
    )
    check_conflicts: bool = Field(False, description="Compare the documents and warn if they contradict each other")

    @field_validator("min_relevance_score")
    @classmethod
    def _on_the_scale(cls, threshold: float, info: ValidationInfo) -> float:
        if info.data.get("relevance_scale") == "unit" and not 0 <= threshold <= 1:
            bound = "greater than or equal to 0" if threshold < 0 else "less than or equal to 1"
            raise ValueError(f"Input should be {bound}, unless relevance_scale is 'any'")
        return threshold

    @property
    def drops(self) -> bool:
        """Whether at least one rule drops documents."""
        return "drop" in (
            self.action_on_low_relevance,
            self.action_on_stale_source,
            self.action_on_chunk_violation,
            self.action_on_blocked_source,
            self.action_on_disallowed_collection,
            self.action_on_domination,
            self.on_injected_instructions,
        )
