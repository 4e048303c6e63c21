"""Checks whether documents are relevant enough, and sorts them by relevance."""

from collections.abc import Iterator, Sequence
from math import inf

from judges.types import Chunk
from policies import reason_texts
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import document_violation, missing_metadata
from policies.types import PolicyInputs, Violation


def check_relevance(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    """Check that the document's relevance score is at least ``min_relevance_score``."""
    score, threshold = inputs.chunks[index].relevance_score, rules.min_relevance_score
    if score is None:
        if threshold > 0 or rules.relevance_scale == "any":
            yield from missing_metadata(rules, inputs, index, missing="relevance score", rule="min_relevance_score")
    elif score < threshold:
        yield document_violation(
            rules.action_on_low_relevance,
            inputs,
            index,
            reason=f"Retrieval relevance ({reason_texts.score_beside(score, threshold)}) below threshold "
            f"({reason_texts.threshold(threshold)})",
            reason_code="RETRIEVAL_LOW_RELEVANCE",
            metadata={"relevance_score": score, "threshold": threshold},
        )


def by_relevance(chunks: Sequence[Chunk], indices: Sequence[int]) -> list[int]:
    """Sort ``indices``, most relevant first. Documents with equal scores keep their order."""
    return sorted(indices, key=lambda index: irrelevance(chunks[index]))


def irrelevance(chunk: Chunk) -> float:
    """Sort key: higher is less relevant. A missing score counts as the lowest."""
    return inf if chunk.relevance_score is None else -chunk.relevance_score
