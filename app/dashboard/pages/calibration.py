"""``/dashboard/calibration``: where a threshold should be, by the scores of the runs that were logged."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from app.analytics.calibration import MOST_REQUESTS, Good, Score, calibrate
from app.dashboard.known_values import seen
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import PoliciesDep, ResourcesDep
from app.errors import NotFoundError
from app.events.queries import EventFilter
from app.policy_admin.document import StoredPolicy
from app.policy_admin.store import PolicyStore

router = APIRouter(route_class=DashboardRoute)

LOOKED_AT = (1_000, 5_000, 20_000, MOST_REQUESTS)
_STEPS = 100
_BARS = 50
_POLICIES = 500
_COUNTED = ("runs", "good", "bad", "marked_good", "marked_bad")


class Asked(BaseModel):
    """What the page was asked for. ``policy``: the id of the one that a threshold is wanted for."""

    policy: str = ""
    agent: str = ""
    score: Score = "lowest"
    good: Good = "allowed"
    percentile: Annotated[float, Field(gt=0, lt=100)] = 5.0
    most: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = LOOKED_AT[1]
    threshold: Annotated[float | None, Field(ge=0, le=1)] = None


class Draft(BaseModel):
    """What is to be written into the form of a policy; without an id, of a new one."""

    policy: str = ""
    threshold: Annotated[float, Field(ge=0, le=1)]
    score: Score = "lowest"
    block: str = ""


@router.get("/calibration")
async def show(
    request: Request, resources: ResourcesDep, store: PoliciesDep, asked: Annotated[Asked, Query()]
) -> Response:
    policies = await store.list(category="grounding", limit=_POLICIES)
    policy = await _policy(store, asked.policy)
    found = await calibrate(
        resources.database,
        EventFilter(agent=asked.agent.replace("\0", "") or None),
        score=asked.score,
        good=asked.good,
        percentile=asked.percentile,
        most=asked.most,
    )
    step = _step(asked.threshold, found["threshold"], policy)
    return page(
        request,
        "calibration.html",
        asked=asked,
        policy=policy,
        policies=policies,
        agents=await seen(resources.database, "agent"),
        looked_at=LOOKED_AT,
        found=found,
        step=step,
        figures=_figures(found, step),
        bars=_bars(found),
        table=[[each[name] for name in _COUNTED] for each in found["thresholds"]],
    )


@router.get("/calibration/draft")
async def write_draft(draft: Annotated[Draft, Query()]) -> Response:
    """Open the form of the policy with the threshold in it; nothing is saved."""
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
    """The threshold to begin with, in hundredths."""
    if asked is not None:
        return round(asked * _STEPS)
    if suggested is not None:
        return int(suggested * _STEPS + 1e-9)
    return round((policy.rules["min_grounding_score"] if policy is not None else 0.7) * _STEPS)


def _figures(found: Mapping[str, Any], step: int) -> Mapping[str, Any]:
    """What a threshold would block; the script of the page does the same while it is dragged."""
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
    """The histogram: each bar's place and its heights above and below the line, in hundredths of the drawing. Good and
    bad have a scale of their own: there are many of the ones and few of the others."""
    width = _STEPS // _BARS
    under, totals = found["thresholds"], found["totals"]
    counts = []
    for bar in range(_BARS):
        end = under[(bar + 1) * width] if bar < _BARS - 1 else totals  # a score of 1 belongs to the last
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
