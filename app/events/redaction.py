"""How the event log keeps texts: in full, hashed or not at all, and what it leaves out of decisions that quote them."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.settings import StoreText
from judges.types import Consistency
from policies.evaluation import without_quotes
from policies.types import Citation, Decision, PolicyInputs

ELLIPSIS = "…"
"""Stands for a text that is not stored."""
_MARKER = re.compile(r"[\[【(]\^?[\d:,† -]{1,16}(?:source)?[\])】]")
"""A citation marker without text of the reply: a number in brackets."""


def stored(text: str | None, how: StoreText) -> str | None:
    """What the event log keeps of a text."""
    if not text or how is StoreText.NONE:
        return None
    if how is StoreText.FULL:
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def redact(value: Any, texts: Sequence[str]) -> Any:
    """``value`` with each of ``texts`` in it, at any depth, replaced by an ellipsis."""
    if isinstance(value, str):
        for text in texts:
            value = value.replace(text, ELLIPSIS)
        return value
    if isinstance(value, Mapping):
        return {name: redact(inner, texts) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact(inner, texts) for inner in value]
    return value


def redact_decision(decision: Decision, texts: Sequence[str]) -> Decision:
    """The decision without the texts of the reply that it quotes."""
    decision = without_quotes(decision)
    reason, metadata = redact(decision.reason, texts), redact(decision.metadata, texts)
    if reason == decision.reason and metadata == decision.metadata:
        return decision
    return replace(decision, reason=reason, metadata=metadata)


def stored_decisions(decisions: Sequence[Decision], texts: Sequence[str], how: StoreText) -> tuple[Decision, ...]:
    """The decisions as the event log keeps them: without ``texts``, unless texts are stored in full."""
    if how is StoreText.FULL:
        return tuple(decisions)
    return tuple(redact_decision(decision, texts) for decision in decisions)


def redact_inputs(inputs: PolicyInputs) -> PolicyInputs:
    """The policy inputs without the texts in them. Claims are stored elsewhere."""
    if not (
        inputs.citations
        or inputs.reported_unsupported
        or inputs.unjudged
        or inputs.consistency
        or inputs.conflicts
        or inputs.llm_scores
    ):
        return inputs
    return replace(
        inputs,
        citations=[_redact_citation(citation) for citation in inputs.citations],
        reported_unsupported=[ELLIPSIS for _ in inputs.reported_unsupported],
        unjudged=[replace(text, text="") for text in inputs.unjudged],
        consistency=redact_consistency(inputs.consistency),
        conflicts=redact_consistency(inputs.conflicts),
        llm_scores=[replace(score, reasoning=None) for score in inputs.llm_scores],
    )


def redact_consistency(found: Consistency | None) -> Consistency | None:
    """The contradictions without the statements that contradict each other."""
    if found is None:
        return None
    contradictions = [
        replace(one, first=replace(one.first, text=ELLIPSIS), second=replace(one.second, text=ELLIPSIS))
        for one in found.contradictions
    ]
    return replace(found, contradictions=contradictions)


def _redact_citation(citation: Citation) -> Citation:
    """A marker that names a document of the request says no more than the document's row does."""
    if citation.reported and citation.document_index is None:
        # Only how many different ones were reported counts.
        return replace(citation, marker=_digest(citation.marker.strip()))
    if citation.document_index is not None or _MARKER.fullmatch(citation.marker):
        return citation
    return replace(citation, marker=ELLIPSIS)


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest() if name else ""
