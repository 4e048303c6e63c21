"""``/dashboard/calibration``: helps choose a threshold from the scores of logged runs."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from app.analytics.scored_runs import Score, Source
from app.analytics.threshold_calibration import MOST_REQUESTS, Good, calibrate
from app.dashboard.known_values import distinct_values
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import PoliciesDep, ResourcesDep
from app.errors import NotFoundError
from app.events.filters import EventFilter
from app.identity import Role, requires
from app.policy_admin.policy_document import StoredPolicy
from app.policy_admin.policy_store import PolicyStore
from policies.base import RulesError
from policies.grounding.rules import GroundingRules
from policies.registry import parse_rules

router = APIRouter(route_class=DashboardRoute)

LOOKED_AT = (1_000, 5_000, 20_000)
_STEPS = 100
_BARS = 50
_POLICIES = 500
_COUNTED = ("runs", "good", "bad", "marked_good", "marked_bad")


class CalibrationQuery(BaseModel):
    """The page's query parameters. ``policy`` is the id of the policy that needs a threshold."""

    policy: str = ""
    agent: str = ""
    source: Source = "judge"
    score: Score = "lowest"
    good: Good = "allowed"
    percentile: Annotated[float, Field(gt=0, lt=100)] = 5.0
    most: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = LOOKED_AT[1]
    threshold: Annotated[float | None, Field(ge=0, le=1)] = None


class ThresholdDraft(BaseModel):
    """The chosen threshold, to fill in on a policy's form. Without a policy id, it is the form for a new policy."""

    policy: str = ""
    threshold: Annotated[float, Field(ge=0, le=1)]
    source: Source = "judge"
    score: Score = "lowest"
    block: str = ""


@router.get("/calibration")
@requires(Role.VIEWER)
async def show(
    request: Request, resources: ResourcesDep, store: PoliciesDep, query: Annotated[CalibrationQuery, Query()]
) -> Response:
    policies = await store.list(category="grounding", limit=_POLICIES)
    policy = await _policy(store, query.policy)
    found = await calibrate(
        resources.database,
        EventFilter(agent=query.agent.replace("\0", "") or None),
        source=query.source,
        score=query.score,
        good=query.good,
        percentile=query.percentile,
        most=query.most,
    )
    rules = _rules(policy)
    step = _step(query.threshold, found["threshold"], rules)
    return page(
        request,
        "calibration/page.html",
        query=query,
        policy=policy,
        rules=rules,
        policies=policies,
        agents=await distinct_values(resources.database, "agent"),
        looked_at=LOOKED_AT,
        found=found,
        step=step,
        figures=_figures(found, step),
        bars=_bars(found),
        table=[[each[name] for name in _COUNTED] for each in found["thresholds"]],
    )


@router.get("/calibration/draft")
@requires(Role.EDITOR)
async def write_draft(draft: Annotated[ThresholdDraft, Query()]) -> Response:
    """Open the policy's form with the threshold filled in. Nothing is saved."""
    values = {
        "from": "calibration",
        "rules.min_grounding_score": f"{draft.threshold:g}",
        "rules.score_eval_mode": "average" if draft.score == "average" else "all",
        "rules.score_source": draft.source,
    }
    if draft.block:
        values["rules.action_on_violation"] = "block"
    form = f"{quote(draft.policy, safe='')}/edit"
    if not draft.policy:
        form, values = "new", values | {"category": "grounding", "rules.min_citations": "0"}
    return RedirectResponse(f"/dashboard/policies/{form}?{urlencode(values)}", status_code=303)


async def _policy(store: PolicyStore, policy_id: str) -> StoredPolicy | None:
    if not policy_id or "\0" in policy_id:
        return None
    try:
        return await store.get(policy_id)
    except NotFoundError:
        return None


def _rules(policy: StoredPolicy | None) -> Mapping[str, Any]:
    """Return the rules of ``policy`` with all defaults filled in. Without a readable policy, return the default
    rules."""
    try:
        return parse_rules("grounding", {} if policy is None else policy.rules).model_dump(mode="json")
    except RulesError:
        return GroundingRules().model_dump(mode="json")


def _step(asked: float | None, suggested: float | None, rules: Mapping[str, Any]) -> int:
    """Return the initial threshold, in hundredths: the requested one, else the suggested one, else the one in
    ``rules``."""
    if asked is not None:
        return round(asked * _STEPS)
    if suggested is not None:
        return int(suggested * _STEPS + 1e-9)
    current: float = rules["min_grounding_score"]
    return round(current * _STEPS)


def _figures(found: Mapping[str, Any], step: int) -> Mapping[str, Any]:
    """Compute what a threshold would block. calibration.js does the same while the user drags the threshold."""
    under, totals = found["thresholds"][step], found["totals"]
    marked = under["marked_good"] + under["marked_bad"]
    return {
        **{name: under[name] for name in _COUNTED},
        "share": under["runs"] / totals["runs"] if totals["runs"] else None,
        "marked": marked,
        "right": under["marked_bad"] / marked if marked else None,
        "caught": under["marked_bad"] / totals["marked_bad"] if totals["marked_bad"] else None,
    }


def _bars(found: Mapping[str, Any]) -> Sequence[Mapping[str, float]]:
    """Return the histogram. Each bar has a range, and heights above and below the axis in hundredths of the drawing.
    Good and bad runs are scaled separately, because there are usually many more good runs."""
    width = _STEPS // _BARS
    under, totals = found["thresholds"], found["totals"]
    counts = []
    for bar in range(_BARS):
        end = under[(bar + 1) * width] if bar < _BARS - 1 else totals  # The last bar includes scores of exactly 1.
        counts.append({name: end[name] - under[bar * width][name] for name in ("good", "bad")})
    most = {name: max(1, *(count[name] for count in counts)) for name in ("good", "bad")}
    return [
        {
            "from": bar * width / _STEPS,
            "to": (bar + 1) * width / _STEPS,
            **count,
            "up": 48 * count["good"] / most["good"],
            "down": 48 * count["bad"] / most["bad"],
        }
        for bar, count in enumerate(counts)
    ]
