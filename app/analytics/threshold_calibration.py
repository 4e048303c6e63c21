"""Where to put a threshold: the scores of good runs, and what a threshold taken from them would have blocked."""

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
class Run:
    """A judged request and its score. ``flagged``: a policy in force did not allow it."""

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
    """The scores of good and of other runs, the threshold that the given percentile of the good ones lies under, and
    what other thresholds would block.

    ``score``: what of a run's claims counts, as ``score_eval_mode`` does (``lowest`` for ``all``). ``good``: runs that
    were ``allowed`` and that nobody marked as wrong, or only those that were ``marked`` as right. ``most``: so many
    requests are looked at, the newest. Raises DatabaseUnavailableError.
    """
    runs = await _runs(database, filter, score, most)
    marks = await FeedbackStore(database).verdicts([run.request_id for run in runs])
    return await asyncio.to_thread(_calibrated, runs, marks, good, percentile)


async def _runs(database: Database, filter: EventFilter, score: Score, most: int) -> list[Run]:
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
        # As the score check of policies takes them: not where no judge came to a verdict.
        .where(claims.c.label != Label.NOT_A_CLAIM.value, claims.c.reason.is_(None), claims.c.score.is_not(None))
        .group_by(newest.c.request_id, newest.c.action)
    )
    async with database.read() as connection:
        found = (await connection.execute(query)).all()
    return [Run(request_id, float(score), action != Action.ALLOW.value) for request_id, action, score in found]


def _calibrated(runs: Sequence[Run], marks: Mapping[str, bool], good: Good, percentile: float) -> dict[str, Any]:
    fine = sorted(run.score for run in runs if _is_good(run, marks.get(run.request_id), good))
    bad = sorted(run.score for run in runs if _is_bad(run, marks.get(run.request_id)))
    marked = [(run, marks[run.request_id]) for run in runs if run.request_id in marks]
    counted = {
        "runs": sorted(run.score for run in runs),
        "good": fine,
        "bad": bad,
        "marked_good": sorted(run.score for run, correct in marked if _is_good(run, correct, good)),
        "marked_bad": sorted(run.score for run, correct in marked if _is_bad(run, correct)),
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


def _is_good(run: Run, correct: bool | None, good: Good) -> bool:
    if correct is not None:
        return correct is not run.flagged
    return good == "allowed" and not run.flagged


def _is_bad(run: Run, correct: bool | None) -> bool:
    """Flagged, unless somebody said that this was wrong; or allowed, and somebody said that this was."""
    return run.flagged if correct is None else correct is run.flagged


def _within(scores: Sequence[float], bin: int) -> int:
    end = len(scores) if bin == _BINS - 1 else bisect_left(scores, (bin + 1) / _BINS)
    return end - bisect_left(scores, bin / _BINS)
