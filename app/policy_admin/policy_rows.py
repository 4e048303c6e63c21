"""Reads and writes the database rows for policies, within the caller's transaction."""

from dataclasses import asdict, fields

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth.audit_log import note
from app.db.tables import policies, policy_versions
from app.errors import ConflictError, NotFoundError, PreconditionError
from app.policy_admin.policy_document import StoredPolicy
from policies.registry import parse_rules
from policies.types import Policy, Scope


async def get(connection: AsyncConnection, policy_id: str, expected: int | None = None) -> StoredPolicy:
    """Return the policy. Raises NotFoundError, or PreconditionError if the policy's version is not ``expected``."""
    row = (await connection.execute(select(policies).where(policies.c.id == policy_id))).one_or_none()
    if row is None:
        raise policy_not_found(policy_id)
    policy = StoredPolicy(**row._mapping)
    if expected is not None and expected != policy.version:
        raise PreconditionError(f"policy {policy_id!r} is at version {policy.version}, not {expected}")
    return policy


async def check_name(connection: AsyncConnection, policy: StoredPolicy) -> None:
    """Check that no other policy has the same name. Raises ConflictError."""
    query = select(policies.c.id).where(policies.c.name == policy.name, policies.c.id != policy.id)
    if (await connection.execute(query)).first() is not None:
        raise ConflictError(f"a policy named {policy.name!r} already exists")


async def keep_version(
    connection: AsyncConnection, policy: StoredPolicy, change: str, *, before: StoredPolicy | None = None
) -> None:
    """Store ``policy`` as a version, and record the change from ``before`` in the audit log."""
    await note(
        connection,
        f"policy.{change}",
        policy.id,
        before=None if before is None else asdict(before.draft()),
        after=None if change == "delete" else asdict(policy.draft()),
    )
    row = {**asdict(policy.draft()), "policy_id": policy.id, "version": policy.version}
    await connection.execute(insert(policy_versions), {**row, "change": change, "ts": policy.updated_at})


def as_policy(stored: StoredPolicy) -> Policy:
    """Convert ``stored`` to the form that the engine evaluates. Raises RulesError."""
    scope = Scope(**{field.name: tuple(stored.scope.get(field.name, ())) for field in fields(Scope)})
    rules = parse_rules(stored.category, stored.rules)
    values = asdict(stored.draft()) | {"rules": rules, "scope": scope}
    return Policy(id=stored.id, version=stored.version, **values)


def policy_not_found(policy_id: str) -> NotFoundError:
    """Build the error for a policy that does not exist."""
    return NotFoundError(f"policy {policy_id!r} does not exist")
