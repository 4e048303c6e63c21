"""Reads runs for operators, who can see the runs of every key."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.db.database import Database
from app.errors import NotFoundError
from app.events.redaction import stored
from app.runs import repository
from app.runs.pinned_policies import PolicyVersions
from app.runs.repository import OPEN, RunFilter, RunRow
from app.runs.run_access import RUN_ID
from app.runs.run_service import RunView
from app.runs.steps import RunStep, with_texts
from app.settings import StoreText

Key = tuple[datetime, str]
"""The end of a page, given by the time and id of its last run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A page of runs. ``next`` is the key to pass as ``after`` for the next page, and is None on the last page."""

    runs: Sequence[RunRow]
    next: Key | None


@dataclass(frozen=True, slots=True)
class RunQueries:
    """Queries runs in a database. All methods raise DatabaseUnavailableError."""

    database: Database

    async def page(self, filter: RunFilter, *, limit: int, after: Key | None = None) -> RunPage:
        """Return up to ``limit`` runs, newest first."""
        async with self.database.read() as connection:
            found = await repository.newest(connection, filter, limit=limit + 1, after=after)
        shown = found[:limit]
        more = len(found) > limit
        return RunPage(runs=shown, next=(shown[-1].created_at, shown[-1].run_id) if more else None)

    async def view(self, run_id: str, store_text: StoreText) -> RunView:
        """Return a run with all steps. An open run still contains text that is needed to complete it. ``store_text``
        determines whether this text is shown. Raises NotFoundError, and RunError if a policy of the run can no longer
        be read."""
        async with self.database.read() as connection:
            run = await repository.find(connection, run_id) if RUN_ID.fullmatch(run_id) else None
            if run is None:
                raise NotFoundError(f"run {run_id!r:.100} does not exist")
            steps = await repository.steps(connection, run_id)
            pinned = await PolicyVersions().of(connection, run)
        if run.status == OPEN and store_text is not StoreText.FULL:
            steps = [_redacted(step, store_text) for step in steps]
        return RunView(run=run, policies=pinned.policies, steps=steps)


def _redacted(step: RunStep, store_text: StoreText) -> RunStep:
    return replace(step, data=with_texts(step.data, lambda text: stored(text, store_text)))
