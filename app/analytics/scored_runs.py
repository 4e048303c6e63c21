"""Reads the scores of logged runs. A run is either a single request or all the steps recorded under ``/v1/runs``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from statistics import fmean
from typing import Any, Literal

from sqlalchemy import ColumnElement, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database
from app.db.tables import REPORTS_SCORES, requests, run_steps, runs
from app.events.filters import EventFilter
from app.events.sql_conditions import requests_matching, within
from policies.types import Action

Score = Literal["lowest", "average"]
Source = Literal["judge", "reported", "retrieval"]
"""The source of the scores: the judge (per claim), the caller, or retrieval (per document)."""

_REPORTED = ("choices", 0, "record", "reported_scores")
"""The path of the reported scores in a request's ``extra``."""
_HOLDS: Mapping[Source, Sequence[str]] = {"reported": ("grounding_scores",), "retrieval": ("documents", "document")}
"""The fields of a step's data that hold scores."""
_OF_RUNS = "runs."
"""The prefix of ``api`` for the steps of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """A run and its score. ``flags`` maps the id of each request in the run to whether an enforced policy flagged
    it."""

    ts: datetime
    flags: Mapping[str, bool]
    score: float

    @property
    def flagged(self) -> bool:
        return any(self.flags.values())


async def scored_runs(
    database: Database, filter: EventFilter, *, source: Source, score: Score, most: int
) -> list[ScoredRun]:
    """Return up to ``most`` runs that have scores from ``source``, newest first. For ``judge``, each request is a run,
    because the judge scores each request separately. Raises DatabaseUnavailableError."""
    newest = _newest(filter, most)
    async with database.read() as connection:
        match source:
            case "judge":
                return await _of_each_request(connection, requests.c[f"{score}_claim_score"], newest)
            case "reported":
                alone = await _reported(connection, filter, score, most)
            case "retrieval":
                alone = await _of_each_request(
                    connection, requests.c[f"{score}_relevance_score"], newest.where(*_alone())
                )
        found = [*alone, *await _recorded(connection, filter, source, score, most)]
    return sorted(found, key=lambda run: run.ts, reverse=True)[:most]


async def _of_each_request(connection: AsyncConnection, column: ColumnElement[float], newest: Any) -> list[ScoredRun]:
    """Return the requests that ``newest`` selects and that have a score in ``column``."""
    rows = (await connection.execute(newest.add_columns(column))).all()
    return _of_requests(row for row in rows if row[-1] is not None)


async def _reported(connection: AsyncConnection, filter: EventFilter, score: Score, most: int) -> list[ScoredRun]:
    scores = requests.c.extra[_REPORTED]
    reports = text(REPORTS_SCORES[connection.dialect.name])
    query = _newest(filter, most).add_columns(scores.label("scores")).where(*_alone(), reports)
    found = (await connection.execute(query)).all()
    return _of_requests([(id, ts, action, _score(scores, score)) for id, ts, action, scores in found if scores])


async def _recorded(
    connection: AsyncConnection, filter: EventFilter, source: Source, score: Score, most: int
) -> list[ScoredRun]:
    """Return the runs with steps under ``/v1/runs``."""
    newest = select(runs.c.run_id).where(*_of_runs(filter)).order_by(runs.c.created_at.desc()).limit(most).subquery()
    step = run_steps.alias()
    holds_scores = or_(*(step.c.data[name].as_string().is_not(None) for name in _HOLDS[source]))
    query = (
        select(runs.c.run_id, runs.c.created_at, run_steps.c.seq, run_steps.c.data, run_steps.c.decisions)
        .join(newest, newest.c.run_id == runs.c.run_id)
        .join(run_steps, run_steps.c.run_id == runs.c.run_id)
        .where(select(step.c.seq).where(step.c.run_id == runs.c.run_id, holds_scores).exists())
        .order_by(run_steps.c.run_id, run_steps.c.seq)
    )
    found = []
    for _, steps in groupby((await connection.execute(query)).all(), key=lambda row: row.run_id):
        recorded = list(steps)
        if scores := [each for step in recorded for each in _scores_in(step.data, source)]:
            # Steps recorded by earlier versions have no request id.
            flags = {step.data.get("request_id", f"step {step.seq}"): _is_flagged(step.decisions) for step in recorded}
            found.append(ScoredRun(ts=recorded[0].created_at, flags=flags, score=_score(scores, score)))
    return found


def _is_flagged(decisions: Sequence[Mapping[str, Any]]) -> bool:
    return any(decision["action"] != Action.ALLOW.value for decision in decisions)


def _scores_in(data: Mapping[str, Any], source: Source) -> Iterable[float]:
    if source == "reported":
        yield from data.get("grounding_scores", ())
        return
    for document in (*data.get("documents", ()), *((data["document"],) if "document" in data else ())):
        if document["relevance_score"] is not None:
            yield document["relevance_score"]


def _newest(filter: EventFilter, most: int) -> Any:
    columns = requests.c
    query = requests_matching(filter, columns.request_id, columns.ts, columns.action)
    return query.order_by(columns.ts.desc(), columns.request_id.desc()).limit(most)


def _alone() -> list[ColumnElement[bool]]:
    """Return the conditions for requests that aren't part of a run with steps."""
    in_run = select(runs.c.run_id).where(runs.c.run_id == requests.c.run_id).exists()
    return [~requests.c.api.startswith(_OF_RUNS), or_(requests.c.run_id.is_(None), ~in_run)]


def _of_runs(filter: EventFilter) -> list[ColumnElement[bool]]:
    """Translate ``filter`` to conditions on runs. A run matches a condition on decisions if one of its requests
    does."""
    wanted = within(filter, runs.c.created_at)
    if filter.run_id is not None:
        wanted.append(runs.c.run_id == filter.run_id)
    if filter.agent is not None:
        wanted.append(runs.c.agent == filter.agent)
    if filter.model is not None or filter.action or filter.policy or filter.phase or filter.reason_code:
        matching = requests_matching(filter, requests.c.run_id).where(requests.c.run_id == runs.c.run_id)
        wanted.append(matching.exists())
    return wanted


def _score(scores: Sequence[float], score: Score) -> float:
    return min(scores) if score == "lowest" else fmean(scores)


def _of_requests(rows: Iterable[Any]) -> list[ScoredRun]:
    allow = Action.ALLOW.value
    return [
        ScoredRun(ts=ts, flags={request_id: action != allow}, score=float(score))
        for request_id, ts, action, score in rows
    ]
