"""``/dashboard/calibration``: choosing a threshold from the scores of logged runs."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from app.analytics.threshold_calibration import MOST_REQUESTS, Good, Score, calibrate
from app.dashboard.known_values import distinct_values
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import PoliciesDep, ResourcesDep
from app.errors import NotFoundError
from app.events.queries import EventFilter
from app.policy_admin.policy_document import StoredPolicy
from app.policy_admin.policy_store import PolicyStore
from policies.grounding.rules import GroundingRules

router = APIRouter(route_class=DashboardRoute)

LOOKED_AT = (1_000, 5_000, 20_000, MOST_REQUESTS)
_STEPS = 100
_BARS = 50
_POLICIES = 500
_COUNTED = ("runs", "good", "bad", "marked_good", "marked_bad")


class CalibrationQuery(BaseModel):
    """The page's query parameters. ``policy`` is the id of the policy to choose a threshold for."""

    policy: str = ""
    agent: str = ""
    score: Score = "lowest"
    good: Good = "allowed"
    percentile: Annotated[float, Field(gt=0, lt=100)] = 5.0
    most: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = LOOKED_AT[1]
    threshold: Annotated[float | None, Field(ge=0, le=1)] = None


class ThresholdDraft(BaseModel):
    """The threshold to fill into a policy's form or, without a policy id, into the form for a new policy."""

    policy: str = ""
    threshold: Annotated[float, Field(ge=0, le=1)]
    score: Score = "lowest"
    block: str = ""


@router.get("/calibration")
async def show(
    request: Request, resources: ResourcesDep, store: PoliciesDep, query: Annotated[CalibrationQuery, Query()]
) -> Response:
    policies = await store.list(category="grounding", limit=_POLICIES)
    policy = await _policy(store, query.policy)
    found = await calibrate(
        resources.database,
        EventFilter(agent=query.agent.replace("\0", "") or None),
        score=query.score,
        good=query.good,
        percentile=query.percentile,
        most=query.most,
    )
    step = _step(query.threshold, found["threshold"], policy)
    return page(
        request,
        "calibration/page.html",
        query=query,
        policy=policy,
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
async def write_draft(draft: Annotated[ThresholdDraft, Query()]) -> Response:
    """Open the policy's form with the threshold filled in. Nothing is saved."""
    values = {
        "from": "calibration",
        "rules.min_grounding_score": f"{draft.threshold:g}",
        "rules.score_eval_mode": "average" if draft.score == "average" else "all",
        "rules.score_source": "judge",
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


def _step(asked: float | None, suggested: float | None, policy: StoredPolicy | None) -> int:
    """The initial threshold, in hundredths."""
    if asked is not None:
        return round(asked * _STEPS)
    if suggested is not None:
        return int(suggested * _STEPS + 1e-9)
    current: float = GroundingRules().min_grounding_score if policy is None else policy.rules["min_grounding_score"]
    return round(current * _STEPS)


def _figures(found: Mapping[str, Any], step: int) -> Mapping[str, Any]:
    """What a threshold would block. calibration.js computes the same while the threshold is dragged."""
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
    """The histogram: each bar's range and its heights above and below the axis, in hundredths of the drawing. Good and
    bad runs are scaled separately, because there are many good runs and few bad ones."""
    width = _STEPS // _BARS
    under, totals = found["thresholds"], found["totals"]
    counts = []
    for bar in range(_BARS):
        end = under[(bar + 1) * width] if bar < _BARS - 1 else totals  # The last bar includes a score of 1.
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
