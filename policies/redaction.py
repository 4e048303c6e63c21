"""Removes quoted text from decisions: text from a reply, its markers, a document, or an LLM's comments on them.

Whole fields are replaced. Other fields are not searched, so that a claim that says "low" cannot alter an ``allow``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from policies.types import Decision

ELLIPSIS = "…"
"""The replacement for removed text."""
TEXT_FIELDS = frozenset({"claim", "claims", "correction", "marker", "reasoning", "sentence"})
"""The metadata keys that quote text. If a rule quotes text under other keys, add them here."""
_NUMBER = r"\d{1,3}(?:[:,–-] ?\d{1,3}){0,4}"
_NUMBERED = re.compile(rf"[\[【［(]\^?{_NUMBER}(?:†(?:source)?)?[\]】］)]")


def redacted_marker(marker: str) -> str:
    """Remove text from a citation marker. A number in brackets is kept."""
    return marker if _NUMBERED.fullmatch(marker) else ELLIPSIS


def without_text(decision: Decision, hides: Callable[[str], bool] = lambda _: True) -> Decision:
    """Remove the quoted texts that ``hides`` selects from ``decision``.

    Reasons that quote text are replaced by ``Violation.without_text``, and metadata values by an ellipsis.
    """

    def redacted(name: str, value: Any) -> Any:
        match value:
            case Mapping():
                return {key: redacted(key, inner) for key, inner in value.items()}
            case list() | tuple():
                return [redacted(name, inner) for inner in value]
            case str() if value in decision.quotes:
                return decision.quotes[value] if hides(value) else value
            case str() if name in TEXT_FIELDS and hides(value):
                return redacted_marker(value) if name == "marker" else ELLIPSIS
        return value

    metadata = redacted("metadata", decision.metadata)
    reason = redacted("reason", decision.reason)
    quotes = {quoted: less for quoted, less in decision.quotes.items() if not hides(quoted)}
    if (reason, metadata, quotes) == (decision.reason, decision.metadata, decision.quotes):
        return decision
    return replace(decision, reason=reason, metadata=metadata, quotes=quotes)
