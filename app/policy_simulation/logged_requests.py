"""Simulates a policy on requests in the event log."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from app.db.database import Database
from app.events.filters import EventFilter, Key
from app.events.replay_data import read_log
from app.policy_simulation.comparison import DecisionBrief, SimulatedOutcome, SimulatedRequest, SimulationSummary
from app.policy_simulation.log_reader import RawPage, StoredRequest, read_pages
from policies.policy_selection import PolicyEngine
from policies.replay import ReplayResult, replay
from policies.types import Aliases, Policy

Names = Callable[[str | None], Aliases]
"""Returns the names that a policy's scope may match, for a model or the prefix of a gateway key."""


async def simulate_logged(
    database: Database,
    engine: PolicyEngine,
    candidate: Policy,
    filter: EventFilter,
    *,
    limit: int,
    show: int,
    key_names: Names,
    model_names: Names,
    after: Key | None = None,
) -> tuple[SimulationSummary, Key | None]:
    """Replay up to ``limit`` requests twice: with the policies in ``engine``, and with ``candidate`` enforced in place
    of the policy with the same id. Every difference is therefore due to ``candidate``, even if other policies were in
    force when a request was logged. Return the comparison and the key to continue from, which is None if there are no
    more requests.

    The requests are processed page by page in a thread. Raises DatabaseUnavailableError.
    """
    summary = SimulationSummary(show=show)
    with_it = with_candidate(engine, candidate)
    seen = 0
    async for page in read_pages(database, filter, limit=limit, after=after):
        await asyncio.to_thread(_compare, page, (engine, with_it), (key_names, model_names), summary)
        seen += len(page.requests)
        after = page.last
    return summary, after if seen >= limit else None


def with_candidate(engine: PolicyEngine, candidate: Policy) -> PolicyEngine:
    """Return ``engine`` with ``candidate`` enforced on every request in its scope, in place of the policy with the same
    id."""
    others = [policy for policy in engine.enabled if policy.id != candidate.id]
    return PolicyEngine([*others, replace(candidate, enabled=True, mode="enforce", canary_percent=100)])


def _compare(
    page: RawPage, engines: tuple[PolicyEngine, PolicyEngine], names: tuple[Names, Names], summary: SimulationSummary
) -> None:
    for request in page.parse():
        simulated = _simulated(request, engines, names)
        if simulated is None:
            summary.unreadable += 1
        else:
            summary.add(simulated)


def _simulated(
    request: StoredRequest, engines: tuple[PolicyEngine, PolicyEngine], names: tuple[Names, Names]
) -> SimulatedRequest | None:
    log = read_log(request.rows)
    if log is None:
        return None
    key_names, model_names = names
    key, model = key_names(request.key_prefix), model_names(request.model)
    today, then = [engine.in_scope(agent=request.agent, model=model, key=key, unit=request.unit) for engine in engines]
    before = replay(today, log)
    same = then.policies == today.policies
    after = before if same else replay(then, log)
    return SimulatedRequest(
        request_id=request.request_id,
        ts=request.ts,
        agent=request.agent,
        model=request.model,
        before=_outcome(before),
        after=_outcome(after),
        # If the candidate doesn't apply to a request, it can't change the outcome.
        doubts=() if same else sorted(before.doubts | after.doubts),
    )


def _outcome(replayed: ReplayResult) -> SimulatedOutcome:
    return SimulatedOutcome.of(replayed.action.value, map(DecisionBrief.of, replayed.decisions))
