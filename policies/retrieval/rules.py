"""The rules of the category ``retrieval``."""

from typing import Annotated, Literal

from pydantic import Field

from policies.base import Rules, Text

LARGEST = 2**63 - 1
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
NameList = Annotated[tuple[Text, ...], Field(strict=False)]
"""Not strict, so that a JSON list is accepted; the names in it are strict."""


class RetrievalRules(Rules):
    """Rules for the documents of a request or run."""

    min_relevance_score: Share = Field(0.7, description="Lowest acceptable relevance score; an equal score passes")
    max_source_age_days: Count = Field(90, description="Maximum document age in days; an equal age passes")
    min_chunks: Count = Field(1, description="Minimum number of documents")
    max_chunks: int = Field(10, ge=1, le=LARGEST, description="Maximum number of documents")
    allowed_collections: NameList = Field((), description="Allowed collections; empty: all")
    blocked_sources: NameList = Field((), description="Blocked source identifiers, matched exactly")
    require_source_diversity: bool = Field(
        False, description="Limit the share of each source to max_single_source_ratio"
    )
    max_single_source_ratio: Share = Field(
        0.6, description="Maximum share of documents from one source, if require_source_diversity is on"
    )
    action_on_low_relevance: Literal["warn", "block", "drop"] = Field(
        "warn", description="Action on a score below min_relevance_score; drop removes the document"
    )
    action_on_stale_source: Literal["warn", "block", "drop"] = Field(
        "block", description="Action on an age above max_source_age_days; drop removes the document"
    )
    action_on_chunk_violation: Literal["warn", "block", "drop"] = Field(
        "warn", description="Action on too few or too many documents; drop keeps the max_chunks most relevant"
    )
    action_on_blocked_source: Literal["block", "drop"] = Field(
        "block", description="Action on a document from blocked_sources; drop removes it"
    )
    action_on_disallowed_collection: Literal["block", "drop"] = Field(
        "block", description="Action on a collection outside allowed_collections; drop removes the document"
    )
    action_on_domination: Literal["warn", "block", "drop"] = Field(
        "warn",
        description="Action on a dominating source; drop removes its least relevant documents until the ratio holds",
    )
    on_missing_metadata: Literal["ignore", "warn", "block"] = Field(
        "ignore", description="Action on a document without the score, age, collection or source that a rule needs"
    )
    require_documents: bool = Field(
        False, description="A request without documents is a violation; otherwise it is not evaluated"
    )
    check_conflicts: bool = Field(
        False, description="Compare the documents with each other and warn if they contradict"
    )
