"""Formats numbers in reason texts, and removes quoted text from them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from policies.types import Decision

_MOST_DIGITS = 17


def score_beside(value: float, limit: float) -> str:
    """Format a score with at least two decimals, and with more if it would otherwise look equal to ``limit``."""
    return f"{value:.{_digits_apart(value, limit, least=2)}f}"


def threshold(value: float) -> str:
    """Format a threshold as given, but with at least two decimals: 0.70, 0.705."""
    rounded = f"{value:.2f}"
    return rounded if float(rounded) == value else number(value)


def number(value: float) -> str:
    """Format ``value`` without a redundant ``.0``: 90, 0.7."""
    return str(whole(value))


def whole(value: float) -> float | int:
    """Convert ``value`` to an int if it is a whole number, so that JSON shows 400 rather than 400.0."""
    return int(value) if float(value).is_integer() else value


def share_beside(ratio: float, limit: float) -> str:
    """Format a measured ratio in percent: as a whole number, or with as many decimals as are needed to distinguish it
    from ``limit``."""
    percent = ratio * 100
    return f"{percent:.{_digits_apart(percent, round(limit * 100, 10), least=0)}f}%"


def limit(ratio: float) -> str:
    """Format a ratio from a rule in percent, with the digits that the rule has."""
    return f"{number(round(ratio * 100, 10))}%"


def _digits_apart(value: float, limit: float, *, least: int) -> int:
    """Return the smallest number of decimals (at least ``least``) with which the rounded ``value`` stays on the same
    side of ``limit``.
    """
    for digits in range(least, _MOST_DIGITS):
        shown = float(f"{value:.{digits}f}")
        if shown < limit if value < limit else shown > limit:
            return digits
    return _MOST_DIGITS


ELLIPSIS = "…"
"""Replaces removed text."""
TEXT_FIELDS = frozenset({"claim", "claims", "correction", "marker", "reasoning", "sentence", "unanswered"})
"""The metadata keys whose values quote text. If a rule quotes text under other keys, add them here."""
_NUMBER = r"\d{1,3}(?:[:,–-] ?\d{1,3}){0,4}"
_NUMBERED = re.compile(rf"[\[【［(]\^?{_NUMBER}(?:†(?:source)?)?[\]】］)]")


def redacted_marker(marker: str) -> str:
    """Remove the text of a citation marker, but keep a number in brackets."""
    return marker if _NUMBERED.fullmatch(marker) else ELLIPSIS


def without_text(decision: Decision, hides: Callable[[str], bool] = lambda _: True) -> Decision:
    """Remove from ``decision`` the quoted texts that ``hides`` selects.

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
