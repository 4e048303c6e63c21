"""Types of query parameters that come from filter forms, where an empty field is sent as an empty string."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

from app.api.admin.common import CursorText, Word


def _none_if_empty(value: Any) -> Any:
    return value.strip() or None if isinstance(value, str) else value


def _parse_time(value: Any) -> Any:
    """Parse a time. Without a time zone, as sent by ``datetime-local`` inputs, it is in UTC."""
    value = _none_if_empty(value)
    if not isinstance(value, str):
        return value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("not a valid time; write it as 2026-05-31T18:30") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


NoneIfEmpty = BeforeValidator(_none_if_empty)
OptionalWord = Annotated[Word | None, NoneIfEmpty]
OptionalTime = Annotated[datetime | None, BeforeValidator(_parse_time)]
OptionalCursor = Annotated[CursorText | None, NoneIfEmpty]
