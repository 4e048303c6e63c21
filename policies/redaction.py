"""Decisions without the text that they quote: of a reply, its markers, a document, or an LLM about them.

Text is replaced field by field, as a whole. Nothing is searched for in the fields around it, so that a claim that says
"low" changes no ``allow``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from policies.types import Decision

ELLIPSIS = "…"
"""Replaces a text."""
TEXT_FIELDS = frozenset({"claim", "claims", "correction", "marker", "reasoning", "sentence"})
"""The metadata that quote text. A rule that quotes some in other metadata adds their names here."""
_NUMBER = r"\d{1,3}(?:[:,–-] ?\d{1,3}){0,4}"
_NUMBERED = re.compile(rf"[\[【［(]\^?{_NUMBER}(?:†(?:source)?)?[\]】］)]")


def redacted_marker(marker: str) -> str:
    """A citation marker without text: a number in brackets stays as it is."""
    return marker if _NUMBERED.fullmatch(marker) else ELLIPSIS


def without_text(decision: Decision, hides: Callable[[str], bool] = lambda _: True) -> Decision:
    """``decision`` without the texts that it quotes and that ``hides`` selects.

    Reasons that quote text are replaced by those that do not (``Violation.without_text``), metadata by an ellipsis.
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
