"""Checks whether a document is stale."""

from collections.abc import Iterator

from policies import reason_texts
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import document_violation, missing_metadata
from policies.types import PolicyInputs, Violation


def check_source_age(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    """Check that the document is at most ``max_source_age_days`` days old."""
    age = inputs.chunks[index].age_days
    if age is None:
        yield from missing_metadata(rules, inputs, index, missing="age", rule="max_source_age_days")
    elif age > rules.max_source_age_days:
        yield document_violation(
            rules.action_on_stale_source,
            inputs,
            index,
            reason=f"Source age ({reason_texts.number(age)} days) exceeds max ({rules.max_source_age_days} days)",
            reason_code="RETRIEVAL_STALE_SOURCE",
            metadata={"age_days": reason_texts.whole(age), "max_age": rules.max_source_age_days},
        )
