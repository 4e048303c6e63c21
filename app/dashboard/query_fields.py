"""Types for query parameters from filter forms. Browsers send an empty field as an empty string."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, FiniteFloat

from app.api.admin.common import CursorText
from app.field_types import Word


def _none_if_empty(value: Any) -> Any:
    return value.strip() or None if isinstance(value, str) else value


def _parse_time(value: Any) -> Any:
    """Parse a time. A time without a time zone, such as one from a ``datetime-local`` input, is in UTC."""
    value = _none_if_empty(value)
    if not isinstance(value, str):
        return value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("not a valid time; use the format 2026-05-31T18:30") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


NoneIfEmpty = BeforeValidator(_none_if_empty)
OptionalWord = Annotated[Word | None, NoneIfEmpty]
OptionalTime = Annotated[datetime | None, BeforeValidator(_parse_time)]
OptionalNumber = Annotated[FiniteFloat | None, NoneIfEmpty]
OptionalCursor = Annotated[CursorText | None, NoneIfEmpty]
