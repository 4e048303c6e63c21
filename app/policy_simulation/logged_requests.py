"""Simulates a policy on requests in the event log."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from app.db.database import Database
from app.events.queries import EventFilter, Key
from app.events.replay_data import read_log
from app.policy_simulation.comparison import DecisionBrief, SimulatedOutcome, SimulatedRequest, SimulationSummary
from app.policy_simulation.log_reader import LoggedRequest, RawPage, read_pages
from policies.engine import PolicyEngine
from policies.replay import replay
from policies.types import Aliases, Policy

KeyNames = Callable[[str | None], Aliases]
"""Returns the names that a policy's scope may match, for a gateway key given by its prefix."""


async def simulate_logged(
    database: Database,
    engine: PolicyEngine,
    candidate: Policy,
    filter: EventFilter,
    *,
    limit: int,
    show: int,
    key_names: KeyNames,
    after: Key | None = None,
) -> tuple[SimulationSummary, Key | None]:
    """Replay up to ``limit`` requests with the policies in ``engine``, with ``candidate`` enforced in place of the
    policy with the same id. Return the comparison and the key to continue from, which is None if there are no more
    requests.

    The work is done in a thread, page by page. Raises DatabaseUnavailableError.
    """
    summary = SimulationSummary(show=show)
    with_it = with_candidate(engine, candidate)
    seen = 0
    async for page in read_pages(database, filter, limit=limit, after=after):
        await asyncio.to_thread(_compare, page, with_it, key_names, summary)
        seen += len(page.requests)
        after = page.last
    return summary, after if seen >= limit else None


def with_candidate(engine: PolicyEngine, candidate: Policy) -> PolicyEngine:
    """Return ``engine`` with ``candidate`` enforced on every request in its scope, in place of the policy with the same
    id."""
    others = [policy for policy in engine.enabled if policy.id != candidate.id]
    return PolicyEngine([*others, replace(candidate, enabled=True, mode="enforce", canary_percent=100)])


def _compare(page: RawPage, engine: PolicyEngine, key_names: KeyNames, summary: SimulationSummary) -> None:
    for request in page.parse():
        simulated = _simulated(request, engine, key_names)
        if simulated is None:
            summary.unreadable += 1
        else:
            summary.add(simulated)


def _simulated(request: LoggedRequest, engine: PolicyEngine, key_names: KeyNames) -> SimulatedRequest | None:
    log = read_log(request.rows)
    if log is None:
        return None
    policies = engine.in_scope(
        agent=request.agent, model=request.model, key=key_names(request.key_prefix), unit=request.unit
    )
    replayed = replay(policies, log)
    return SimulatedRequest(
        request_id=request.request_id,
        ts=request.ts,
        agent=request.agent,
        model=request.model,
        before=SimulatedOutcome.of(request.action, request.decisions),
        after=SimulatedOutcome.of(replayed.action.value, map(DecisionBrief.of, replayed.decisions)),
        doubts=sorted(replayed.doubts),
    )
