"""Evaluates retrieval policies, which check that the documents are good enough to answer from.

A gateway request has all its documents from the start and is checked only in ``before_workflow``. A run records
documents one at a time: each document is checked in ``mid_execution`` when it is recorded, and the set as a whole in
``after_workflow``.
"""

from collections.abc import Iterator, Sequence

from policies.base import Category, CategoryResult, DocumentNeeds, comparison_gaps
from policies.retrieval.allowed_sources import check_collection, check_source
from policies.retrieval.document_conflicts import check_conflicts
from policies.retrieval.document_count import check_all_dropped, check_too_few, check_too_many
from policies.retrieval.injected_instructions import check_injected_instructions
from policies.retrieval.relevance import check_relevance
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.source_diversity import check_source_diversity
from policies.retrieval.stale_sources import check_source_age
from policies.types import Action, Phase, PolicyInputs, PolicySubject, Violation

__all__ = ["RETRIEVAL", "RetrievalEvaluator", "RetrievalRules"]

_DOCUMENT_CHECKS = (check_relevance, check_source, check_collection, check_source_age, check_injected_instructions)
"""The checks on a single document, in order of evaluation."""


class RetrievalEvaluator(Category):
    """The category ``retrieval``."""

    name = "retrieval"
    rules = RetrievalRules
    subjects = frozenset({PolicySubject.DOCUMENTS})

    def document_needs(self, rules: RetrievalRules) -> DocumentNeeds:
        """See ``policies.base.Category``."""
        return DocumentNeeds(
            compares=rules.check_conflicts,
            reads_texts=rules.on_injected_instructions != "ignore",
            takes_any_relevance=rules.relevance_scale == "any",
        )

    def evaluate(self, phase: Phase, rules: RetrievalRules, inputs: PolicyInputs) -> CategoryResult | None:
        """See ``policies.base.Category``."""
        if not inputs.chunks and not rules.require_documents:
            return None
        count = len(inputs.chunks)
        match phase:
            case Phase.BEFORE_WORKFLOW if inputs.final:
                violations = tuple(_check_all(rules, inputs))
            case Phase.MID_EXECUTION if inputs.chunks:
                violations = _up_to_block(_check_newest(rules, inputs))
            case Phase.AFTER_WORKFLOW:
                violations = (*check_too_few(rules, count), *check_source_diversity(rules, inputs, ()))
            case _:
                return None
        return CategoryResult(
            violations=violations,
            reason=f"Retrieval quality within policy ({count} chunks)",
            metadata={"chunk_count": count, **(comparison_gaps(inputs.conflicts) if rules.check_conflicts else {})},
        )


def _check_all(rules: RetrievalRules, inputs: PolicyInputs) -> Iterator[Violation]:
    count = len(inputs.chunks)
    too_few = list(check_too_few(rules, count))
    single = [violation for index in range(count) for violation in _check_document(rules, inputs, index)]
    found = [*too_few, *check_too_many(rules, inputs, _dropped(single)), *single]
    found += check_source_diversity(rules, inputs, _dropped(found) | inputs.unfit)
    yield from found
    gone = _dropped(found) | inputs.dropped
    yield from check_all_dropped(rules, count, gone)
    if gone and not too_few:
        yield from check_too_few(rules, count - len(gone))
    yield from check_conflicts(rules, inputs, gone)


def _check_newest(rules: RetrievalRules, inputs: PolicyInputs) -> Iterator[Violation]:
    yield from check_too_many(rules, inputs, ())
    yield from _check_document(rules, inputs, len(inputs.chunks) - 1)


def _check_document(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    for check in _DOCUMENT_CHECKS:
        yield from check(rules, inputs, index)


def _up_to_block(violations: Iterator[Violation]) -> tuple[Violation, ...]:
    """Return ``violations`` up to the first blocking one, which ends the call that recorded the document."""
    found: list[Violation] = []
    for violation in violations:
        found.append(violation)
        if violation.action is Action.BLOCK:
            break
    return tuple(found)


def _dropped(violations: Sequence[Violation]) -> frozenset[int]:
    return frozenset[int]().union(*(violation.drop for violation in violations))


RETRIEVAL = RetrievalEvaluator()
