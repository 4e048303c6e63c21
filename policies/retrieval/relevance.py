"""Checks whether documents are relevant enough, and sorts them by relevance."""

from collections.abc import Iterator, Sequence

from judges.types import Chunk
from policies import number_format
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import document_violation, missing_metadata
from policies.types import PolicyInputs, Violation


def check_relevance(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    """Check that the document's relevance score is at least ``min_relevance_score``."""
    score = inputs.chunks[index].relevance_score
    if score is None:
        if rules.min_relevance_score > 0:
            yield from missing_metadata(rules, inputs, index, missing="relevance score", rule="min_relevance_score")
    elif score < rules.min_relevance_score:
        yield document_violation(
            rules.action_on_low_relevance,
            inputs,
            index,
            reason=f"Retrieval relevance ({number_format.score(score)}) below threshold "
            f"({number_format.score(rules.min_relevance_score)})",
            reason_code="RETRIEVAL_LOW_RELEVANCE",
            metadata={"relevance_score": score, "threshold": rules.min_relevance_score},
        )


def by_relevance(chunks: Sequence[Chunk], indices: Sequence[int]) -> list[int]:
    """Sort ``indices``, most relevant first. Documents with equal scores keep their order."""
    return sorted(indices, key=lambda index: irrelevance(chunks[index]))


def irrelevance(chunk: Chunk) -> float:
    """Sort key: higher is less relevant. A missing score counts as the lowest."""
    return 1.0 if chunk.relevance_score is None else -chunk.relevance_score
