"""Builds violations of retrieval rules, and decides whether a document can be dropped."""

from collections.abc import Collection, Iterator
from typing import Any

from policies.retrieval.rules import RetrievalRules
from policies.types import Action, PolicyInputs, Violation

NOT_DROPPABLE = " (it cannot be dropped, since the gateway does not write the prompt)"


def document_violation(
    action: str, inputs: PolicyInputs, index: int, *, reason: str, reason_code: str, metadata: dict[str, Any]
) -> Violation:
    """Build a violation caused by one document, which is named in the metadata."""
    metadata = {**metadata, "document_id": inputs.chunks[index].id, "document_index": index}
    return _violation(action, inputs, reason=reason, reason_code=reason_code, metadata=metadata, drop=(index,))


def set_violation(
    action: str,
    inputs: PolicyInputs,
    *,
    reason: str,
    reason_code: str,
    metadata: dict[str, Any],
    drop: Collection[int],
    relative: bool = False,
) -> Violation:
    """Build a violation caused by the documents as a set. The metadata lists the dropped documents."""
    if action == "drop" and inputs.injectable:
        metadata = {**metadata, "dropped": [inputs.chunks[index].id for index in sorted(drop)]}
    return _violation(
        action, inputs, reason=reason, reason_code=reason_code, metadata=metadata, drop=drop, relative=relative
    )


def missing_metadata(
    rules: RetrievalRules, inputs: PolicyInputs, index: int, *, missing: str, rule: str
) -> Iterator[Violation]:
    """Build the violation caused by a document that lacks the value (``missing``) that ``rule`` checks."""
    if rules.on_missing_metadata != "ignore":
        yield document_violation(
            rules.on_missing_metadata,
            inputs,
            index,
            reason=f"Document '{inputs.chunks[index].id}' has no {missing} ({rule} needs it)",
            reason_code="RETRIEVAL_MISSING_METADATA",
            metadata={"rule": rule, "missing": missing},
        )


def _violation(
    action: str,
    inputs: PolicyInputs,
    *,
    reason: str,
    reason_code: str,
    metadata: dict[str, Any],
    drop: Collection[int],
    relative: bool = False,
) -> Violation:
    """Build a violation. ``drop`` is possible only if the gateway writes the prompt. Otherwise it becomes ``block``,
    and the reason says so."""
    if action != "drop":
        return Violation(action=Action(action), reason=reason, reason_code=reason_code, metadata=metadata)
    if not inputs.injectable:
        return Violation(action=Action.BLOCK, reason=reason + NOT_DROPPABLE, reason_code=reason_code, metadata=metadata)
    return Violation(
        action=Action.DROP,
        reason=reason,
        reason_code=reason_code,
        metadata=metadata,
        drop=frozenset(drop),
        relative=relative,
    )
