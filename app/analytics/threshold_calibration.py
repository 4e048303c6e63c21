"""Derives a threshold from the scores of good requests, and computes what it would have blocked."""

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from sqlalchemy import and_, func, select

from app.db.database import Database
from app.db.tables import claims, requests
from app.events.feedback import FeedbackStore
from app.events.queries import EventFilter, requests_matching, within
from judges.types import Label
from policies.types import Action

MOST_REQUESTS = 100_000
_BINS = 20
_STEPS = 100

Score = Literal["lowest", "average"]
Good = Literal["allowed", "marked"]


@dataclass(frozen=True, slots=True)
class ScoredRequest:
    """A judged request and its score. ``flagged`` means that an enforced policy did not allow it."""

    request_id: str
    score: float
    flagged: bool


async def calibrate(
    database: Database,
    filter: EventFilter,
    *,
    score: Score,
    good: Good,
    percentile: float,
    most: int = MOST_REQUESTS,
) -> dict[str, Any]:
    """Return the scores of good and bad requests, the threshold at the given percentile of the good scores, and what
    other thresholds would block.

    ``score`` selects how a request's scores are combined, like ``score_eval_mode`` (``lowest`` for ``all``). ``good``
    selects the good requests: those ``allowed`` without feedback that this was wrong, or only those ``marked`` as
    right. At most ``most`` requests are read, newest first. Raises DatabaseUnavailableError.
    """
    scored = await _scored_requests(database, filter, score, most)
    marks = await FeedbackStore(database).verdicts([one.request_id for one in scored])
    return await asyncio.to_thread(_calibrated, scored, marks, good, percentile)


async def _scored_requests(database: Database, filter: EventFilter, score: Score, most: int) -> list[ScoredRequest]:
    columns = requests.c
    newest = (
        requests_matching(filter, columns.request_id, columns.ts, columns.action)
        .order_by(columns.ts.desc(), columns.request_id.desc())
        .limit(most)
        .subquery()
    )
    value = func.min(claims.c.score) if score == "lowest" else func.avg(claims.c.score)
    query = (
        select(newest.c.request_id, newest.c.action, value)
        .join(claims, and_(claims.c.request_id == newest.c.request_id, claims.c.ts == newest.c.ts))
        .where(*within(filter, claims.c.ts))
        # As in the policies' score check, claims without a verdict don't count.
        .where(claims.c.label != Label.NOT_A_CLAIM.value, claims.c.reason.is_(None), claims.c.score.is_not(None))
        .group_by(newest.c.request_id, newest.c.action)
    )
    async with database.read() as connection:
        found = (await connection.execute(query)).all()
    return [
        ScoredRequest(request_id, float(score), action != Action.ALLOW.value) for request_id, action, score in found
    ]


def _calibrated(
    scored: Sequence[ScoredRequest], marks: Mapping[str, bool], good: Good, percentile: float
) -> dict[str, Any]:
    fine = sorted(one.score for one in scored if _is_good(one, marks.get(one.request_id), good))
    bad = sorted(one.score for one in scored if _is_bad(one, marks.get(one.request_id)))
    marked = [(one, marks[one.request_id]) for one in scored if one.request_id in marks]
    counted = {
        "runs": sorted(one.score for one in scored),
        "good": fine,
        "bad": bad,
        "marked_good": sorted(one.score for one, correct in marked if _is_good(one, correct, good)),
        "marked_bad": sorted(one.score for one, correct in marked if _is_bad(one, correct)),
    }
    threshold = fine[max(0, ceil(len(fine) * percentile / 100) - 1)] if fine else None
    return {
        "percentile": percentile,
        "threshold": threshold,
        "runs": {"good": len(fine), "bad": len(bad)},
        # An equal score passes.
        "would_block": None
        if threshold is None
        else {"good": bisect_left(fine, threshold), "bad": bisect_left(bad, threshold)},
        "histogram": [
            {"from": low / _BINS, "to": (low + 1) / _BINS, "good": _within(fine, low), "bad": _within(bad, low)}
            for low in range(_BINS)
        ],
        "thresholds": [
            {"threshold": step / _STEPS}
            | {name: bisect_left(scores, step / _STEPS) for name, scores in counted.items()}
            for step in range(_STEPS + 1)
        ],
        "totals": {name: len(scores) for name, scores in counted.items()},
    }


def _is_good(one: ScoredRequest, correct: bool | None, good: Good) -> bool:
    if correct is not None:
        return correct is not one.flagged
    return good == "allowed" and not one.flagged


def _is_bad(one: ScoredRequest, correct: bool | None) -> bool:
    """Whether the request is bad: flagged, unless feedback says that this was wrong, or allowed, although feedback says
    that this was wrong."""
    return one.flagged if correct is None else correct is one.flagged


def _within(scores: Sequence[float], bin: int) -> int:
    end = len(scores) if bin == _BINS - 1 else bisect_left(scores, (bin + 1) / _BINS)
    return end - bisect_left(scores, bin / _BINS)
