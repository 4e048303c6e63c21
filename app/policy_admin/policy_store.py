"""Stores policies. Requests read them from memory. Changes are written to the database and announced to all workers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import structlog
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import POLICY_REVISION, policies, policy_versions
from app.errors import NotFoundError
from app.policy_admin import policy_rows
from app.policy_admin.policy_document import PolicyDraft, PolicyVersion, StoredPolicy, patched
from app.worker_sync.change_notifications import announce_change
from policies.base import RulesError
from policies.policy_selection import PolicyEngine
from policies.types import Policy

_log = structlog.stdlib.get_logger(__name__)


class PolicyStore:
    """Stores all policies in a database. Requests read them from memory and don't need the database.

    The owner of the store must call ``refresh`` at startup, before the gateway serves requests, and whenever another
    process has changed a policy. A change made through the store takes effect in this worker before the method returns.
    Methods that make changes raise DatabaseUnavailableError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._engine = PolicyEngine(())
        self._loaded: dict[str, Policy] = {}
        self._unreadable: dict[str, str] = {}
        self._watchers: list[Callable[[], None]] = []
        self._loading = asyncio.Lock()
        self._ready = False

    @property
    def engine(self) -> PolicyEngine:
        """An immutable snapshot of the policies in force. Read this property once per request."""
        return self._engine

    @property
    def ready(self) -> bool:
        """True once the policies have been read."""
        return self._ready

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Errors in stored policies whose rules this version cannot parse, by policy id."""
        return dict(self._unreadable)

    @property
    def loaded_versions(self) -> Mapping[str, int]:
        """The version of each policy that this worker has loaded, by id."""
        return {policy.id: policy.version for policy in self._loaded.values()}

    def watch(self, callback: Callable[[], None]) -> None:
        """Register ``callback``, which is called each time newly loaded policies take effect."""
        self._watchers.append(callback)

    async def refresh(self) -> None:
        """Load the policies now. Raises DatabaseUnavailableError."""
        async with self._loading:
            async with self._database.read() as connection:
                found = (await connection.execute(select(policies))).all()
            self._take([StoredPolicy(**row._mapping) for row in found])
            self._ready = True

    def _take(self, stored: Sequence[StoredPolicy]) -> None:
        loaded: dict[str, Policy] = {}
        unreadable: dict[str, str] = {}
        for policy in stored:
            try:
                loaded[policy.id] = policy_rows.as_policy(policy)
            except RulesError as error:
                unreadable[policy.id] = str(error)
                # A policy must not silently stop being enforced: the last readable version stays in force.
                if policy.id in self._loaded:
                    loaded[policy.id] = self._loaded[policy.id]
                if policy.id not in self._unreadable:
                    _log.error("policy_unreadable", policy_id=policy.id, error=str(error))
        self._engine, self._loaded, self._unreadable = PolicyEngine(list(loaded.values())), loaded, unreadable
        for callback in self._watchers:
            callback()

    # Reading.

    async def list(
        self,
        *,
        category: str | None = None,
        enabled: bool | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Sequence[StoredPolicy]:
        """Return up to ``limit`` policies, sorted by name, starting after the name ``after``."""
        query = select(policies).order_by(policies.c.name).limit(limit)
        for column, value in ((policies.c.category, category), (policies.c.enabled, enabled), (policies.c.name, name)):
            if value is not None:
                query = query.where(column == value)
        if after is not None:
            query = query.where(policies.c.name > after)
        async with self._database.read() as connection:
            return [StoredPolicy(**row._mapping) for row in (await connection.execute(query)).all()]

    async def id_of(self, name_or_id: str) -> str:
        """Return the id of the policy with that name. If no policy has that name, return ``name_or_id`` unchanged."""
        named = await self.list(name=name_or_id, limit=1)
        return named[0].id if named else name_or_id

    async def get(self, policy_id: str) -> StoredPolicy:
        """Return the policy. Raises NotFoundError."""
        async with self._database.read() as connection:
            return await policy_rows.get(connection, policy_id)

    async def versions(self, policy_id: str, *, before: int | None = None, limit: int = 50) -> Sequence[PolicyVersion]:
        """Return up to ``limit`` versions older than ``before``, newest first. Deleted policies keep their versions.

        Raises NotFoundError.
        """
        query = select(policy_versions).where(policy_versions.c.policy_id == policy_id)
        if before is not None:
            query = query.where(policy_versions.c.version < before)
        async with self._database.read() as connection:
            found = (await connection.execute(query.order_by(policy_versions.c.version.desc()).limit(limit))).all()
        if not found and before is None:
            raise policy_rows.policy_not_found(policy_id)
        return [PolicyVersion(**row._mapping) for row in found]

    # The methods that make changes. ``expected`` is the version that the caller has seen. If the policy has changed
    # since then, PreconditionError is raised.

    async def create(self, draft: PolicyDraft) -> StoredPolicy:
        """Create a policy. Raises ConflictError if the name is taken."""
        now = datetime.now(UTC)
        new = StoredPolicy(id=f"pol_{uuid4().hex}", version=1, created_at=now, updated_at=now, **asdict(draft))
        async with self._changing() as connection:
            await policy_rows.check_name(connection, new)
            await connection.execute(insert(policies), asdict(new))
            await policy_rows.keep_version(connection, new, "create")
        return new

    async def replace(self, policy_id: str, draft: PolicyDraft, *, expected: int | None = None) -> StoredPolicy:
        """Replace the policy with ``draft``. Raises NotFoundError, PreconditionError, or ConflictError if the name is
        taken."""
        return await self._update(policy_id, lambda _: draft, expected)

    async def patch(self, policy_id: str, patch: Mapping[str, Any], *, expected: int | None = None) -> StoredPolicy:
        """Apply a JSON merge patch. Raises InvalidAdminRequestError and the errors of ``replace``."""
        return await self._update(policy_id, lambda current: patched(current, patch), expected)

    async def rollback(self, policy_id: str, version: int, *, expected: int | None = None) -> StoredPolicy:
        """Restore ``version`` as a new version. Raises the errors of ``replace``. Raises InvalidAdminRequestError if
        the rules of that version are no longer valid."""
        async with self._database.read() as connection:
            query = select(policy_versions).where(
                policy_versions.c.policy_id == policy_id, policy_versions.c.version == version
            )
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NotFoundError(f"policy {policy_id!r} has no version {version}")
        earlier = {field.name: row._mapping[field.name] for field in fields(PolicyDraft)}
        # The empty patch validates the old version against the current rules.
        return await self._update(policy_id, lambda _: patched(PolicyDraft(**earlier), {}), expected, "rollback")

    async def delete(self, policy_id: str, *, expected: int | None = None) -> None:
        """Delete the policy but keep its versions. Raises NotFoundError or PreconditionError."""
        async with self._changing() as connection:
            current = await policy_rows.get(connection, policy_id, expected)
            await connection.execute(delete(policies).where(policies.c.id == policy_id))
            last = replace(current, version=current.version + 1, updated_at=datetime.now(UTC))
            await policy_rows.keep_version(connection, last, "delete", before=current)

    async def _update(
        self,
        policy_id: str,
        change: Callable[[PolicyDraft], PolicyDraft],
        expected: int | None,
        label: str = "update",
    ) -> StoredPolicy:
        async with self._changing() as connection:
            current = await policy_rows.get(connection, policy_id, expected)
            changed = replace(
                current, **asdict(change(current.draft())), version=current.version + 1, updated_at=datetime.now(UTC)
            )
            await policy_rows.check_name(connection, changed)
            await connection.execute(update(policies).where(policies.c.id == policy_id), asdict(changed))
            await policy_rows.keep_version(connection, changed, label, before=current)
        return changed

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[AsyncConnection]:
        async with self._database.write() as connection:
            await announce_change(self._database, connection, POLICY_REVISION)
            yield connection
        try:
            await self.refresh()
        except DatabaseUnavailableError:
            _log.warning("policy_refresh_failed")  # The change is already stored. The next refresh loads it.
