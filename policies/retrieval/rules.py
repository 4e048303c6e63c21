"""The rules of the category ``retrieval``."""

from typing import Annotated, Literal

from pydantic import Field

from policies.base import Rules, Text

LARGEST = 2**63 - 1
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Names = Annotated[tuple[Text, ...], Field(strict=False)]
"""JSON has lists only; the names in them are strict all the same."""


class RetrievalRules(Rules):
    """Rules for the documents of a request or run."""

    min_relevance_score: Share = Field(0.7, description="Lowest acceptable relevance score; an equal one passes")
    max_source_age_days: Count = Field(90, description="Oldest acceptable document, in days; an equal age passes")
    min_chunks: Count = Field(1, description="Fewest documents")
    max_chunks: int = Field(10, ge=1, le=LARGEST, description="Most documents")
    allowed_collections: Names = Field((), description="If not empty, the only collections allowed")
    blocked_sources: Names = Field((), description="Source identifiers that are never allowed, matched exactly")
    require_source_diversity: bool = Field(False, description="No single source may dominate")
    max_single_source_ratio: Share = Field(
        0.6, description="Largest share of one source, with require_source_diversity"
    )
    action_on_low_relevance: Literal["warn", "block", "drop"] = Field(
        "warn", description="What a score below min_relevance_score does; drop takes the document out"
    )
    action_on_stale_source: Literal["warn", "block", "drop"] = Field(
        "block", description="What an age over max_source_age_days does; drop takes the document out"
    )
    action_on_chunk_violation: Literal["warn", "block", "drop"] = Field(
        "warn", description="What too few or too many documents do; drop keeps the max_chunks most relevant"
    )
    action_on_blocked_source: Literal["block", "drop"] = Field(
        "block", description="What a source of blocked_sources does; drop takes the document out"
    )
    action_on_disallowed_collection: Literal["block", "drop"] = Field(
        "block", description="What a collection outside allowed_collections does; drop takes the document out"
    )
    action_on_domination: Literal["warn", "block", "drop"] = Field(
        "warn",
        description="What a dominating source does; drop takes out its least relevant documents until the ratio holds",
    )
    on_missing_metadata: Literal["ignore", "warn", "block"] = Field(
        "ignore", description="What a document does that lacks the score, age, collection or source that a rule needs"
    )
    require_documents: bool = Field(
        False, description="A request without any document is a violation; else it is not evaluated"
    )
    check_conflicts: bool = Field(
        False, description="Sentences of the documents are held against each other; those that contradict are warned of"
    )
