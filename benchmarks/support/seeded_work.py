"""Adds the work of people and agents to an event log: runs, feedback and entries of the audit log."""

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import Table, func, insert, select

from app.db.access_tables import audit
from app.db.database import Database
from app.db.tables import feedback, requests, run_steps, runs
from app.runs.steps import RunRecord

_ROWS = 1_000
"""The number of rows per statement."""
_SHARES = {"runs": 0.05, "feedback": 0.02, "audit": 0.005}
"""The number of runs, of feedback entries and of audit entries per request."""

Row = dict[str, Any]


async def add_work(database: Database, count: int, agents: Sequence[str], models: Sequence[str]) -> None:
    """Add runs, feedback and audit entries to an event log of ``count`` requests. Raises DatabaseUnavailableError."""
    dice = random.Random(25)
    async with database.read() as connection:
        first, last = (await connection.execute(select(func.min(requests.c.ts), func.max(requests.c.ts)))).one()
        marked = select(requests.c.request_id, requests.c.ts).order_by(requests.c.ts.desc())
        known = (await connection.execute(marked.limit(int(count * _SHARES["feedback"])))).all()
    made = _runs(dice, int(count * _SHARES["runs"]), first, last, agents, models)
    await _insert(database, {runs: (run for run, _ in made)})
    again = _runs(random.Random(25), int(count * _SHARES["runs"]), first, last, agents, models)
    await _insert(database, {run_steps: (step for _, step in again)})
    await _insert(
        database,
        {
            feedback: (_mark(dice, at, id, ts) for at, (id, ts) in enumerate(known)),
            audit: _entries(dice, int(count * _SHARES["audit"]), first, last),
        },
    )


async def _insert(database: Database, rows: Mapping[Table, Iterator[Row]]) -> None:
    async with database.write() as connection:
        for table, each in rows.items():
            while piece := list(islice(each, _ROWS)):
                await connection.execute(insert(table), piece)


def _runs(
    dice: random.Random, count: int, first: datetime, last: datetime, agents: Sequence[str], models: Sequence[str]
) -> Iterator[tuple[Row, Row]]:
    """Yield runs with one step each."""
    for at in range(count):
        ts, run_id = first + (last - first) * (at / count), f"run_{at:032x}"
        action = dice.choices(("allow", "warn", "block"), (90, 8, 2))[0]
        state: Row = {
            "model": dice.choice(models),
            "key": None,
            "policies": [],
            "size": 0,
            "counts": RunRecord().counts,
            "action": action,
        }
        shared = {"created_at": ts, "updated_at": ts + timedelta(seconds=3)}
        status = "open" if at > count - 20 else "completed"
        run = {"run_id": run_id, "agent": dice.choice(agents), "key_prefix": None, "status": status, "version": 1}
        step = {"run_id": run_id, "seq": 1, "ts": ts, "kind": "start", "key": None, "data": {}, "decisions": []}
        yield {**run, "state": state, **shared}, step


def _mark(dice: random.Random, at: int, request_id: str, ts: datetime) -> Row:
    return {
        "id": f"fb_{at:032x}",
        "request_id": request_id,
        "about": dice.choice(("decision", "reply")),
        "decision_id": None,
        "correct": dice.random() < 0.9,
        "note": None,
        "created_at": ts + timedelta(minutes=dice.randint(1, 300)),
    }


def _entries(dice: random.Random, count: int, first: datetime, last: datetime) -> Iterator[Row]:
    for at in range(count):
        actor, action = f"token:{dice.randint(1, 40)}", dice.choice(("key.create", "budget.update", "session.create"))
        ts = first + (last - first) * (at / count)
        row = {"id": f"aud_{at:032x}", "ts": ts, "actor": actor, "action": action, "target": f"thing_{at % 500}"}
        yield {**row, "before": None, "after": {"name": "thing"}}
