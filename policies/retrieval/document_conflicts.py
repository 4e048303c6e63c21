"""Checks whether documents contradict each other.

Policies do no I/O, so the caller compares the documents first and passes the result in the inputs.
"""

from collections.abc import Collection, Iterator
from typing import Any

from judges.types import Chunk, Contradiction, LocatedStatement
from policies.reason_texts import ELLIPSIS
from policies.retrieval.rules import RetrievalRules
from policies.types import Action, PolicyInputs, Violation

CONFLICT_THRESHOLD = 0.7
"""Two documents count as contradicting each other if their score is at least this high."""


def check_conflicts(rules: RetrievalRules, inputs: PolicyInputs, gone: Collection[int]) -> Iterator[Violation]:
    """Report documents that contradict each other, except those in ``gone``. This is always a warning, because no
    policy can know which of the two documents is right."""
    if not rules.check_conflicts or inputs.conflicts is None:
        return
    for contradiction in inputs.conflicts.contradictions:
        indices = (contradiction.first.document_index, contradiction.second.document_index)
        if contradiction.score >= CONFLICT_THRESHOLD and not any(index is None or index in gone for index in indices):
            yield _conflict(inputs, contradiction)


def _conflict(inputs: PolicyInputs, contradiction: Contradiction) -> Violation:
    both = [(inputs.chunks[side.document_index or 0], side) for side in (contradiction.first, contradiction.second)]
    (one, first), (other, second) = both
    names = (one.id, other.id) if one.source is None or one.source == other.source else (one.source, other.source)
    reason = f"Documents '{names[0]}' and '{names[1] or other.id}' contradict each other: "
    return Violation(
        action=Action.WARN,
        reason=f'{reason}"{first.text}" / "{second.text}"',
        reason_code="RETRIEVAL_CONFLICT",
        metadata={"documents": [_sentence(chunk, side) for chunk, side in both], "score": contradiction.score},
        without_text=f'{reason}"{ELLIPSIS}" / "{ELLIPSIS}"',
    )


def _sentence(chunk: Chunk, side: LocatedStatement) -> dict[str, Any]:
    return {
        "document_id": chunk.id,
        "document_index": side.document_index,
        "source": chunk.source,
        "sentence": side.text,
        "span": [side.span.start, side.span.end],
    }
