"""Template filters that format numbers, times and text. They show None as a dash."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from markupsafe import Markup

NOTHING = "–"
_UNITS = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))


def count(value: float | None) -> str:
    """Format ``12345`` as ``12,345``."""
    return NOTHING if value is None else f"{value:,.0f}"


def compact(value: float | None) -> str:
    """Abbreviate a large number, such as ``1.5M``, for a chart axis."""
    if value is None or abs(value) < 100_000:
        return count(value)
    unit, divisor = next((unit, divisor) for unit, divisor in _UNITS if abs(value) >= divisor)
    return f"{value / divisor:,.0f}{unit}" if value >= 1_000 * divisor else f"{value / divisor:.3g}{unit}"


def money(value: Decimal | float | None) -> str:
    """Format US dollars as ``$1,234``, ``$12.30`` or ``$0.0042``."""
    if value is None:
        return NOTHING
    amount = float(value)
    if not amount:
        return "$0"
    if amount < 0.0001:
        return "<$0.0001"
    return f"${amount:,.{0 if amount >= 1_000 else 2 if amount >= 0.1 else 4}f}"


def many(value: float | None, one: str, more: str | None = None) -> str:
    """Format a number with its noun: ``1 request``, ``2,000 requests``. ``more`` is the plural; the default is ``one``
    plus "s"."""
    return f"{count(value)} {one if value == 1 else more or one + 's'}"


def percent(value: float | None, digits: int = 1) -> str:
    """Format a fraction as ``12.3%``."""
    return NOTHING if value is None else f"{value * 100:.{digits}f}%"


def whole_percent(value: float | None) -> str:
    """Format a fraction as ``12%``."""
    return percent(value, digits=0)


def number(value: float | None, digits: int = 2) -> str:
    """Format a score as ``0.93``."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def duration(ms: float | None) -> str:
    """Format milliseconds as ``<0.1 ms``, ``0.4 ms``, ``120 ms``, ``1.25 s`` or ``2 min 5 s``."""
    match ms:
        case None:
            return NOTHING
        case 0:
            return "0 ms"
        case _ if ms < 0.05:
            return "<0.1 ms"
        case _ if ms < 10:
            return f"{ms:.1f} ms"
        case _ if ms < 1_000:
            return f"{ms:.0f} ms"
        case _ if ms < 60_000:
            return f"{ms / 1_000:.2f} s"
    minutes, seconds = divmod(round(ms / 1_000), 60)
    return f"{minutes} min {seconds} s"


def size(value: int | None) -> str:
    """Format a number of bytes as ``3.1 MB``."""
    if value is None:
        return NOTHING
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1_000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} TB"


def time(value: datetime | None) -> Markup | str:
    """Return a ``<time>`` element in UTC. app.js converts it to the reader's time zone."""
    if value is None:
        return NOTHING
    value = value.astimezone(UTC)
    return _time_element(value, f"{value.day} {value:%b %H:%M:%S}")


def ago(value: datetime | None) -> Markup | str:
    """Format a time as ``3 min ago``."""
    if value is None:
        return NOTHING
    seconds = max(0, round((datetime.now(UTC) - value).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            text = f"{seconds // length} {unit} ago"
            break
    else:
        text = "just now" if seconds < 5 else f"{seconds} s ago"
    return _time_element(value.astimezone(UTC), text)


def _time_element(value: datetime, text: str) -> Markup:
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        value.isoformat(), f"{value:%Y-%m-%d %H:%M:%S} UTC", text
    )


def clip(text: str | None, length: int = 120) -> str:
    """Shorten ``text`` to ``length`` characters, with an ellipsis if it was longer."""
    if text is None:
        return NOTHING
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def pretty_json(value: Any) -> str:
    """Format ``value`` as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def code_spans(text: str) -> Markup:
    """Format text in backticks as code."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


FILTERS = (
    *(code_spans, count, compact, money, many, percent, whole_percent, number, duration, size, time, ago, clip),
    pretty_json,
)
