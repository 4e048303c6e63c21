"""Pages out of templates: escaped by default, with the filters and the static files that all of them use."""

import hashlib
import json
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.dashboard.trace.text import shown

THEMES = ("auto", "light", "dark")
THEME_COOKIE = "groundlane_theme"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An entry of the navigation: a page and all that lie below it."""

    path: str
    name: str
    icon: str


SECTIONS = (
    Section(path="/dashboard/", name="Overview", icon="overview"),
    Section(path="/dashboard/requests", name="Requests", icon="requests"),
    Section(path="/dashboard/policies", name="Policies", icon="policies"),
    Section(path="/dashboard/calibration", name="Calibration", icon="calibration"),
    Section(path="/dashboard/playground", name="Playground", icon="playground"),
    Section(path="/dashboard/keys", name="Keys", icon="keys"),
    Section(path="/dashboard/system", name="System", icon="system"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """A file that every browser may have."""

    body: bytes
    media_type: str


def _load_static() -> dict[str, Static]:
    folder = files("app.dashboard").joinpath("static")
    loaded = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_file() and not file.name.startswith("."):
            media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            if media_type.startswith("text/"):
                media_type += "; charset=utf-8"
            loaded[file.name] = Static(body=file.read_bytes(), media_type=media_type)
    return loaded


STATIC: Mapping[str, Static] = _load_static()
STATIC_VERSION = hashlib.sha256(b"".join(file.body for file in STATIC.values())).hexdigest()[:12]
"""Stands in the path of every file, so that browsers can keep them for good and modules find each other."""


def static(name: str) -> str:
    """The URL of a file in ``static/``. Raises KeyError where there is none."""
    if name not in STATIC:
        raise KeyError(name)
    return f"/dashboard/static/{STATIC_VERSION}/{name}"


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """The page that ``template`` makes of ``context``.

    Every template has besides: ``operator`` (None: nobody signed in), ``csrf``, ``theme``, ``path`` and ``sections``.
    """
    operator = getattr(request.state, "operator", None)
    theme = request.cookies.get(THEME_COOKIE, "auto")
    given = {
        "operator": operator,
        "csrf": "" if operator is None else operator.csrf,
        "theme": theme if theme in THEMES else "auto",
        "path": request.url.path,
        "sections": SECTIONS,
    }
    return HTMLResponse(_TEMPLATES.get_template(template).render(given | context), status_code=status)


def render(template: str, **context: Any) -> str:
    """A piece of a page."""
    return _TEMPLATES.get_template(template).render(context)


# Filters. Every one takes None, which is shown as a dash.

NOTHING = "–"


def count(value: float | None) -> str:
    """``12345`` as ``12,345``."""
    return NOTHING if value is None else f"{value:,.0f}"


def many(value: float | None, one: str, more: str | None = None) -> str:
    """How many of something: ``1 request``, ``2,000 requests``. ``more``: where it does not end on an s."""
    return f"{count(value)} {one if value == 1 else more or one + 's'}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share of one as ``12.3%``."""
    return NOTHING if value is None else f"{value * 100:.{digits}f}%"


def number(value: float | None, digits: int = 2) -> str:
    """A score as ``0.93``."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def duration(ms: float | None) -> str:
    """Milliseconds as ``0.4 ms``, ``120 ms``, ``1.25 s`` or ``2 min 5 s``."""
    match ms:
        case None:
            return NOTHING
        case 0:
            return "0 ms"
        case _ if ms < 10:
            return f"{ms:.1f} ms"
        case _ if ms < 1_000:
            return f"{ms:.0f} ms"
        case _ if ms < 60_000:
            return f"{ms / 1_000:.2f} s"
    minutes, seconds = divmod(round(ms / 1_000), 60)
    return f"{minutes} min {seconds} s"


def size(value: int | None) -> str:
    """Bytes as ``3.1 MB``."""
    if value is None:
        return NOTHING
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1_000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} TB"


def time(value: datetime | None) -> Markup | str:
    """A time as an element that says it in UTC; a script shows it in the reader's own zone."""
    if value is None:
        return NOTHING
    value = value.astimezone(UTC)
    shown = f"{value.day} {value:%b %H:%M:%S}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        value.isoformat(), f"{value:%Y-%m-%d %H:%M:%S} UTC", shown
    )


def ago(value: datetime | None) -> Markup | str:
    """A time as ``3 min ago``."""
    if value is None:
        return NOTHING
    seconds = max(0, round((datetime.now(UTC) - value).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            shown = f"{seconds // length} {unit} ago"
            break
    else:
        shown = "just now" if seconds < 5 else f"{seconds} s ago"
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC", shown
    )


def clip(text: str | None, length: int = 120) -> str:
    """The begin of a text, with an ellipsis where more was left out."""
    if text is None:
        return NOTHING
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def pretty_json(value: Any) -> str:
    """JSON for people."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("app.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (count, many, percent, number, duration, size, time, ago, clip, pretty_json, shown)
    environment.filters.update({filter.__name__: filter for filter in filters})
    environment.globals["static"] = static
    return environment


_TEMPLATES = _environment()
