"""Converts a library's documents for the gateway. Only known and valid metadata is sent, so that an unexpected field in
an index doesn't cause the gateway to reject the request."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

_FIELDS: Mapping[str, Sequence[str]] = {
    "source": ("source", "filename", "file_name", "file_path", "file_id"),
    "collection": ("collection",),
    "title": ("title",),
    "url": ("url",),
}
_SCORES = ("relevance_score", "score", "similarity", "relevance")
_DATES = ("updated_at", "published_at", "created_at", "last_modified_date", "creation_date")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ].*)?")


def document(
    text: str, *, id: str | None = None, score: Any = None, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Convert a retrieved document for the gateway. ``score`` is the library's relevance score. Scores outside 0 to 1,
    such as BM25 scores and distances, are ignored."""
    known = metadata or {}
    fields: dict[str, Any] = {"id": id, "text": text, **{name: _text(known, names) for name, names in _FIELDS.items()}}
    fields["relevance_score"] = _share(score if score is not None else _first(known, _SCORES))
    fields["age_days"] = _age(known.get("age_days"))
    if fields["age_days"] is None:
        fields["updated_at"] = next((stamp for name in _DATES if (stamp := _stamp(known.get(name)))), None)
    return {name: value for name, value in fields.items() if value is not None}


def _first(known: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((value for name in names if (value := known.get(name)) is not None), None)


def _text(known: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((value for name in names if isinstance(value := known.get(name), str) and value), None)


def _share(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and 0 <= number <= 1 else None


def _age(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number >= 0 else None


def _number(value: Any) -> float | None:
    """Convert a number of any type, including NumPy types, to a float. Return None for any other value."""
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _stamp(value: Any) -> str | None:
    """Convert a date or time to text that the gateway accepts. Return None if it is invalid or in the future."""
    if isinstance(value, date):  # includes datetime
        value = value.isoformat()
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        stamp = datetime.fromisoformat(value.upper())
    except ValueError:
        return None
    stamp = stamp if stamp.tzinfo is not None else stamp.replace(tzinfo=UTC)
    return value if stamp <= datetime.now(UTC) + timedelta(days=1) else None
