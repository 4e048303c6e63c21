"""Selects the policies of a run. Their versions are pinned when the run starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import RunError
from app.policy_admin import policy_rows
from app.runs import repository
from app.runs.repository import RunRow
from policies.base import RulesError
from policies.policy_selection import PolicyEngine, PolicySet
from policies.types import Aliases, Policy

_log = structlog.stdlib.get_logger(__name__)
_MOST_CACHED = 1_000


@dataclass(frozen=True, slots=True)
class PinnedPolicies:
    """The policies that apply to a run: the versions that it started with, even if they have changed since, and
    policies that were added later."""

    policies: tuple[Policy, ...]
    engine: PolicyEngine

    @classmethod
    def at_start(cls, enabled: Sequence[Policy], *, agent: str | None, key: Aliases) -> "PinnedPolicies":
        """Select the ``enabled`` policies that apply to a run of ``agent``. The models in their scope are ignored,
        because each request names its own model."""
        policies = (
            policy for policy in enabled if replace(policy.scope, models=()).covers(agent=agent, model=None, key=key)
        )
        return cls.of(tuple(policies))

    @classmethod
    def of(cls, policies: tuple[Policy, ...]) -> "PinnedPolicies":
        return cls(policies, PolicyEngine(policies))

    def joined(self, enabled: Sequence[Policy], *, agent: str | None, key: Aliases) -> "PinnedPolicies":
        """Return these policies, and any policies in ``enabled`` that were created or changed after the run started. If
        two versions of a policy then apply, the stricter one decides."""
        known = [replace(policy, version=0) for policy in self.policies]
        current = PinnedPolicies.at_start(enabled, agent=agent, key=key).policies
        newer = tuple(policy for policy in current if replace(policy, version=0) not in known)
        return PinnedPolicies.of((*self.policies, *newer)) if newer else self

    def in_scope(self, run: RunRow, *, model: Aliases) -> PolicySet:
        """Select the policies that apply to the records of the run itself. ``model`` contains the names of the run's
        model. The run is the unit of canary assignment."""
        return self.engine.in_scope(agent=run.agent, model=model, key=run.key, unit=run.run_id)


@dataclass(slots=True)
class PolicyVersions:
    """Reads policy versions. A version never changes, so recently read versions are cached."""

    _read: dict[tuple[str, int], Policy] = field(default_factory=dict)

    async def of(self, connection: AsyncConnection, run: RunRow) -> PinnedPolicies:
        """Return the policies that ``run`` started with. Raises RunError if one of the policies can no longer be read.
        The run must not continue without it."""
        missing = [policy for policy in run.policies if policy not in self._read]
        fresh = await self._fetch(connection, missing) if missing else {}
        found = [self._read.get(policy) or fresh.get(policy) for policy in run.policies]
        known = tuple(policy for policy in found if policy is not None)
        if len(known) < len(found):
            raise RunError(
                f"The run {run.run_id} started with a policy that can no longer be read. Start a new run.",
                code="run_unreadable",
                status=HTTPStatus.CONFLICT,
            )
        return PinnedPolicies.of(known)

    async def _fetch(
        self, connection: AsyncConnection, wanted: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], Policy]:
        fetched: dict[tuple[str, int], Policy] = {}
        for stored in await repository.policies(connection, wanted):
            try:
                fetched[stored.id, stored.version] = policy_rows.as_policy(stored)
            except RulesError as error:
                _log.error("policy_unreadable", policy_id=stored.id, version=stored.version, error=str(error))
        for version, policy in fetched.items():
            if len(self._read) >= _MOST_CACHED:
                self._read.pop(next(iter(self._read)))
            self._read[version] = policy
        return fetched
