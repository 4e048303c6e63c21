"""Checks documents against blocked sources and allowed collections."""

from collections.abc import Iterator

from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import document_violation, missing_metadata
from policies.types import PolicyInputs, Violation


def check_source(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    """Check that the document does not come from one of ``blocked_sources``."""
    source = inputs.chunks[index].source
    if source is None:
        if rules.blocked_sources or rules.require_source_diversity:
            rule = "blocked_sources" if rules.blocked_sources else "require_source_diversity"
            yield from missing_metadata(rules, inputs, index, missing="source", rule=rule)
    elif source in rules.blocked_sources:
        yield document_violation(
            rules.action_on_blocked_source,
            inputs,
            index,
            reason=f"Retrieved from blocked source '{source}'",
            reason_code="RETRIEVAL_BLOCKED_SOURCE",
            metadata={"blocked_source": source},
        )


def check_collection(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    """Check that the document's collection is one of ``allowed_collections``."""
    if not rules.allowed_collections:
        return
    collection = inputs.chunks[index].collection
    if collection is None:
        yield from missing_metadata(rules, inputs, index, missing="collection", rule="allowed_collections")
    elif collection not in rules.allowed_collections:
        yield document_violation(
            rules.action_on_disallowed_collection,
            inputs,
            index,
            reason=f"Collection '{collection}' not in allowed list",
            reason_code="RETRIEVAL_COLLECTION",
            metadata={"collection": collection, "allowed": list(rules.allowed_collections)},
        )
