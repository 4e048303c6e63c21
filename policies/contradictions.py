"""The checks that rest on statements held against each other: the claims of a reply, the sentences of documents.

Comparing takes time and policies do not wait: whoever asks them compares beforehand and puts what came of it into the
record.
"""

from collections.abc import Collection, Iterator
from typing import Any

from judges.types import Chunk, Consistency, Contradiction, Stated
from policies.grounding_rules import GroundingRules
from policies.retrieval_rules import RetrievalRules
from policies.types import Action, Record, Violation

LEAST_CONFLICT = 0.7
"""The score from which on two documents count as contradicting each other."""


def inconsistent(rules: GroundingRules, record: Record) -> Iterator[Violation]:
    """Claims of the reply that contradict each other, or claims of earlier replies of its run; or a warning where they
    could not be compared, since that never blocks."""
    found = record.consistency if rules.factual_consistency_check else None
    if found is None:
        return
    if found.reason not in (None, "unavailable"):
        yield Violation(
            action=Action.WARN,
            reason=f"Claims not compared with each other: {found.reason}",
            reason_code="GROUNDING_NOT_CHECKED",
            metadata={"not_compared": found.reason},
        )
    for contradiction in found.contradictions:
        if contradiction.score >= rules.contradiction_threshold:
            first, second = contradiction.first, contradiction.second
            yield Violation(
                action=Action(rules.action_on_violation),
                reason=f'Claims contradict each other: "{first.text}" / "{second.text}"',
                reason_code="GROUNDING_INCONSISTENT",
                metadata={"claims": [_claim(first), _claim(second)], "score": contradiction.score},
            )


def conflicts(rules: RetrievalRules, record: Record, gone: Collection[int]) -> Iterator[Violation]:
    """Documents that contradict each other, of those that are left without ``gone``. They are only warned of: which of
    the two is right, no policy can know."""
    if not rules.check_conflicts or record.conflicts is None:
        return
    for contradiction in record.conflicts.contradictions:
        indices = (contradiction.first.document_index, contradiction.second.document_index)
        if contradiction.score >= LEAST_CONFLICT and not any(index is None or index in gone for index in indices):
            yield _conflict(record, contradiction)


def left_out(rules: RetrievalRules | GroundingRules, found: Consistency | None) -> dict[str, Any]:
    """What the decision says of a comparison that was not made, or not of every pair."""
    wanted = rules.check_conflicts if isinstance(rules, RetrievalRules) else rules.factual_consistency_check
    if found is None or not wanted:
        return {}
    told: dict[str, Any] = {} if found.reason is None else {"not_compared": found.reason}
    return {**told, "pairs_skipped": found.skipped} if found.skipped else told


def _conflict(record: Record, contradiction: Contradiction) -> Violation:
    both = [(record.chunks[side.document_index or 0], side) for side in (contradiction.first, contradiction.second)]
    (one, first), (other, second) = both
    names = (one.id, other.id) if one.source is None or one.source == other.source else (one.source, other.source)
    return Violation(
        action=Action.WARN,
        reason=f"Documents '{names[0]}' and '{names[1] or other.id}' contradict each other: "
        f'"{first.text}" / "{second.text}"',
        reason_code="RETRIEVAL_CONFLICT",
        metadata={"documents": [_sentence(chunk, side) for chunk, side in both], "score": contradiction.score},
    )


def _sentence(chunk: Chunk, side: Stated) -> dict[str, Any]:
    return {
        "document_id": chunk.id,
        "document_index": side.document_index,
        "source": chunk.source,
        "sentence": side.text,
        "span": [side.span.start, side.span.end],
    }


def _claim(side: Stated) -> dict[str, Any]:
    """A claim of an earlier reply has no place in this one."""
    return {
        "claim": side.text,
        "span": None if side.earlier else [side.span.start, side.span.end],
        "earlier": side.earlier,
    }
