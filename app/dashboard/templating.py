"""Renders pages from the templates in ``templates/``, with autoescaping on."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from app.dashboard.formatting import FILTERS
from app.dashboard.labels import ACTIONS, CLAIM_VERDICTS, REPLY_VERDICTS, STATUSES
from app.dashboard.static_files import static_url
from app.dashboard.trace.highlighting import breakable, shown
from app.identity import Operator, Role
from app.runs.run_access import RUN_ID

THEMES = ("auto", "light", "dark")
THEME_COOKIE = "groundlane_theme"


@dataclass(frozen=True, slots=True, kw_only=True)
class NavSection:
    """A navigation entry. It is marked as current on ``path`` and all pages below it."""

    path: str
    name: str
    icon: str
    role: Role = Role.VIEWER


SECTIONS = (
    NavSection(path="/dashboard", name="Overview", icon="overview"),
    NavSection(path="/dashboard/requests", name="Requests", icon="requests"),
    NavSection(path="/dashboard/runs", name="Runs", icon="runs"),
    NavSection(path="/dashboard/policies", name="Policies", icon="policies"),
    NavSection(path="/dashboard/calibration", name="Calibration", icon="calibration"),
    NavSection(path="/dashboard/review", name="Review", icon="review", role=Role.EDITOR),
    NavSection(path="/dashboard/alerts", name="Alerts", icon="alerts"),
    NavSection(path="/dashboard/playground", name="Playground", icon="playground", role=Role.EDITOR),
    NavSection(path="/dashboard/keys", name="Keys", icon="keys"),
    NavSection(path="/dashboard/budgets", name="Budgets", icon="budgets"),
    NavSection(path="/dashboard/access", name="Users & tokens", icon="access", role=Role.ADMIN),
    NavSection(path="/dashboard/sessions", name="Sessions", icon="sessions"),
    NavSection(path="/dashboard/system", name="System", icon="system"),
)


def run_url(run_id: str) -> str:
    """Return the URL of a run's page. If the caller chose the run id, return the URL of the run's requests instead."""
    quoted = quote(run_id, safe="")
    return f"/dashboard/runs/{quoted}" if RUN_ID.fullmatch(run_id) else f"/dashboard/requests?run={quoted}"


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Render ``template`` with ``context`` as a response.

    Every template also gets ``operator`` (None if nobody is signed in), ``csrf``, ``theme``, ``path`` and ``sections``.
    """
    operator: Operator | None = getattr(request.state, "operator", None)
    theme = request.cookies.get(THEME_COOKIE, "auto")
    common = {
        "operator": operator,
        "csrf": "" if operator is None else operator.csrf,
        "theme": theme if theme in THEMES else "auto",
        "path": request.url.path,
        "sections": [each for each in SECTIONS if operator is not None and operator.may(each.role)],
    }
    return HTMLResponse(_TEMPLATES.get_template(template).render(common | context), status_code=status)


def render(template: str, **context: Any) -> str:
    """Render a fragment of a page."""
    return _TEMPLATES.get_template(template).render(context)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("app.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update({filter.__name__: filter for filter in (*FILTERS, breakable, shown)})
    environment.globals |= {
        "static_url": static_url,
        "run_url": run_url,
        "action_names": ACTIONS,
        "status_names": STATUSES,
        "claim_verdicts": CLAIM_VERDICTS,
        "verdict_names": REPLY_VERDICTS | CLAIM_VERDICTS,
    }
    return environment


_TEMPLATES = _environment()
