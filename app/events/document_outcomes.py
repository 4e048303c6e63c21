"""The outcome of each document of a logged request."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policies.types import Action, Phase

KEPT, DROPPED, REFUSED, NOT_SENT = "kept", "dropped", "refused", "not_sent"
"""``refused`` means that the request was blocked because of the document. ``not_sent`` means that no policy objected to
the document, but the request was blocked before the model was called."""

_BLOCK = Action.BLOCK.value
_BEFORE = Phase.BEFORE_WORKFLOW.value


def with_outcomes(
    documents: Sequence[Mapping[str, Any]], *, blocked: bool, decisions: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Add ``outcome`` to each row of ``documents``, and the reason to each refused document. ``blocked`` means that the
    request was blocked before the model was called. ``decisions`` contains all decision rows of the request."""
    refused = dict(_refused(decisions)) if blocked else {}
    return [{**row, **_outcome(row, refused, blocked=blocked)} for row in documents]


def _outcome(row: Mapping[str, Any], refused: Mapping[int, str], *, blocked: bool) -> dict[str, Any]:
    if row["position"] in refused:
        return {"outcome": REFUSED, "reason": refused[row["position"]]}
    if not row["kept"]:
        return {"outcome": DROPPED}
    return {"outcome": NOT_SENT if blocked else KEPT}


def _refused(decisions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Return the reason for each document that caused a policy to block the request, by document position."""
    for decision in decisions:
        if decision["shadow"] or decision["phase"] != _BEFORE or decision["action"] != _BLOCK:
            continue
        # A decision with a single violation has no list of violations. Its metadata describes the violation.
        metadata = decision["metadata"] or {}
        for violation in metadata.get("violations") or [{**decision, "metadata": metadata}]:
            position = (violation.get("metadata") or {}).get("document_index")
            if violation["action"] == _BLOCK and isinstance(position, int):
                yield position, violation["reason"]
