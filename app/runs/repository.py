"""Reads and writes the database rows for runs, within the caller's transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, insert, literal, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database
from app.db.tables import policy_versions, run_steps, runs
from app.events.serialization import plain
from app.policy_admin.policy_document import PolicyVersion, StoredPolicy
from app.runs.steps import RunStep
from policies.evaluation import strictest
from policies.types import Action

OPEN = "open"
COMPLETED = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run. ``version`` is the number of the last step, and ``size`` is the total size of all steps in bytes.
    ``policies`` lists the id and version of each policy that the run started with. ``key`` contains the names of the
    run's gateway key. ``counts`` contains the number of recorded items of each kind. ``action`` is the strictest action
    so far."""

    run_id: str
    agent: str | None
    model: str | None
    key: tuple[str, ...] | None
    key_prefix: str | None
    status: str
    action: str = Action.ALLOW.value
    version: int
    policies: Sequence[tuple[str, int]]
    size: int
    counts: Mapping[str, int]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Selects runs. None matches any value. ``since`` (inclusive) and ``until`` (exclusive) limit the start time."""

    since: datetime | None = None
    until: datetime | None = None
    agent: str | None = None
    model: str | None = None
    status: str | None = None
    action: str | None = None


async def create(database: Database, connection: AsyncConnection, run: RunRow, first: RunStep) -> bool:
    """Create a run with its first step. Return False if a run with this id exists."""
    row = {**_columns(run), "run_id": run.run_id, "created_at": run.created_at}
    created = await connection.execute(database.insert_ignore(runs), row)
    if not created.rowcount:
        return False
    await connection.execute(insert(run_steps), _step_row(run.run_id, first))
    return True


async def find(connection: AsyncConnection, run_id: str, *, lock: bool = False) -> RunRow | None:
    """Return the run, or None if it does not exist. With ``lock``, no other transaction can change the run until this
    one ends."""
    query = select(runs).where(runs.c.run_id == run_id)
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    return None if row is None else _run(row._mapping)


async def newest(
    connection: AsyncConnection, filter: RunFilter, *, limit: int, after: tuple[datetime, str] | None = None
) -> list[RunRow]:
    """Return up to ``limit`` runs, newest first, starting after the run with the time and id ``after``."""
    query = select(runs).where(*_conditions(filter))
    query = query.order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(limit)
    if after is not None:
        query = query.where(tuple_(runs.c.created_at, runs.c.run_id) < tuple_(*map(literal, after)))
    return [_run(row._mapping) for row in (await connection.execute(query)).all()]


async def steps(connection: AsyncConnection, run_id: str) -> list[RunStep]:
    """Return a run's steps, in order."""
    query = select(run_steps).where(run_steps.c.run_id == run_id).order_by(run_steps.c.seq)
    found = (await connection.execute(query)).all()
    return [_step(row._mapping) for row in found]


async def step_with_key(connection: AsyncConnection, run_id: str, key: str) -> RunStep | None:
    """Return the run's step with the idempotency key ``key``, or None."""
    query = select(run_steps).where(run_steps.c.run_id == run_id, run_steps.c.key == key)
    row = (await connection.execute(query)).first()
    return None if row is None else _step(row._mapping)


async def append(
    connection: AsyncConnection,
    run: RunRow,
    step: RunStep,
    *,
    size: int,
    counts: Mapping[str, int],
    status: str = OPEN,
) -> RunRow:
    """Add a step to a locked run, and return the updated run with ``counts``."""
    changed = replace(
        run,
        version=step.seq,
        size=run.size + size,
        counts=counts,
        status=status,
        action=action_of(step.decisions, Action(run.action)),
        updated_at=step.ts,
    )
    of_version = (runs.c.run_id == run.run_id) & (runs.c.version == run.version)
    await connection.execute(update(runs).where(of_version).values(_columns(changed)))
    # The step number is part of the primary key. Even without the lock, the insert would therefore fail rather than
    # overwrite a step.
    await connection.execute(insert(run_steps), _step_row(run.run_id, step))
    return changed


async def replace_data(connection: AsyncConnection, run_id: str, step: RunStep) -> None:
    """Replace the data of a step."""
    of_step = (run_steps.c.run_id == run_id) & (run_steps.c.seq == step.seq)
    await connection.execute(update(run_steps).where(of_step).values(data=plain(step.data)))


async def policies(connection: AsyncConnection, wanted: Sequence[tuple[str, int]]) -> list[StoredPolicy]:
    """Return the given policy versions."""
    key = tuple_(policy_versions.c.policy_id, policy_versions.c.version)
    found = (await connection.execute(select(policy_versions).where(key.in_(wanted)))).all()
    return [_stored(PolicyVersion(**row._mapping)) for row in found]


def action_of(decisions: Sequence[Mapping[str, Any]], earlier: Action = Action.ALLOW) -> str:
    """Return the strictest action among ``earlier`` and those of ``decisions``, which are in JSON form."""
    return strictest([earlier, *(Action(decision["action"]) for decision in decisions)]).value


def _conditions(filter: RunFilter) -> list[ColumnElement[bool]]:
    columns: dict[str, ColumnElement[Any]] = {
        "agent": runs.c.agent,
        "status": runs.c.status,
        **{name: runs.c.state[name].as_string() for name in ("model", "action")},
    }
    wanted = [column == value for name, column in columns.items() if (value := getattr(filter, name)) is not None]
    if filter.since is not None:
        wanted.append(runs.c.created_at >= filter.since)
    if filter.until is not None:
        wanted.append(runs.c.created_at < filter.until)
    return wanted


def _run(row: RowMapping) -> RunRow:
    values: dict[str, Any] = dict(row)
    state = values.pop("state")
    key = None if state["key"] is None else tuple(state["key"])
    policies = [(policy_id, version) for policy_id, version in state["policies"]]
    shared = {name: state[name] for name in ("model", "size", "counts")}
    # Runs that an earlier version stored have no action.
    action = state.get("action", Action.ALLOW.value)
    return RunRow(**values, **shared, action=action, key=key, policies=policies)


def _step(row: RowMapping) -> RunStep:
    return RunStep(**{str(name): value for name, value in row.items() if name != "run_id"})


def _stored(version: PolicyVersion) -> StoredPolicy:
    shared = {name: getattr(version, name) for name in StoredPolicy.__slots__ if hasattr(version, name)}
    return StoredPolicy(id=version.policy_id, created_at=version.ts, updated_at=version.ts, **shared)


def _columns(run: RunRow) -> dict[str, object]:
    return {
        "agent": plain(run.agent),
        "key_prefix": run.key_prefix,
        "status": run.status,
        "version": run.version,
        "state": plain({name: getattr(run, name) for name in ("model", "key", "policies", "size", "counts", "action")}),
        "updated_at": run.updated_at,
    }


def _step_row(run_id: str, step: RunStep) -> dict[str, object]:
    return {
        "run_id": run_id,
        "seq": step.seq,
        "ts": step.ts,
        "kind": step.kind,
        "key": step.key,
        "data": plain(step.data),
        "decisions": plain(step.decisions),
    }
