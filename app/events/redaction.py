"""Redacts the event log. Text is stored in full, hashed or not at all, and is removed from decisions that quote it."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from app.settings import StoreText
from judges.types import Consistency
from policies.reason_texts import ELLIPSIS, redacted_marker, without_text
from policies.types import Citation, Decision, PolicyInputs


def stored(text: str | None, how: StoreText) -> str | None:
    """Return the text as the event log stores it."""
    if not text or how is StoreText.NONE:
        return None
    if how is StoreText.FULL:
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def stored_decisions(decisions: Sequence[Decision], how: StoreText) -> tuple[Decision, ...]:
    """Return the decisions as the event log stores them. Quoted text is removed unless text is stored in full."""
    if how is StoreText.FULL:
        return tuple(decisions)
    return tuple(without_text(decision) for decision in decisions)


def redact_inputs(inputs: PolicyInputs) -> PolicyInputs:
    """Remove the text from policy inputs. Claims are removed too, because they are stored elsewhere."""
    if not (
        inputs.citations
        or inputs.reported_unsupported
        or inputs.unjudged
        or inputs.consistency
        or inputs.conflicts
        or inputs.llm_scores
        or inputs.question_parts
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
        question_parts=inputs.question_parts and [replace(part, text=ELLIPSIS) for part in inputs.question_parts],
    )


def redact_consistency(found: Consistency | None) -> Consistency | None:
    """Remove the contradicting statements from the contradictions."""
    if found is None:
        return None
    contradictions = [
        replace(one, first=replace(one.first, text=ELLIPSIS), second=replace(one.second, text=ELLIPSIS))
        for one in found.contradictions
    ]
    return replace(found, contradictions=contradictions)


def _redact_citation(citation: Citation) -> Citation:
    if citation.reported and citation.document_index is None:
        # Policies only count the distinct sources reported by the caller, so a hash of each name is enough.
        return replace(citation, marker=_digest(citation.marker.strip()))
    return replace(citation, marker=redacted_marker(citation.marker))


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest() if name else ""
