"""The rows of the policies, read and written within a transaction of somebody else's."""

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
    """``expected``: the version it must have. Raises NotFoundError or PreconditionError."""
    row = (await connection.execute(select(policies).where(policies.c.id == policy_id))).one_or_none()
    if row is None:
        raise unknown(policy_id)
    policy = StoredPolicy(**row._mapping)
    if expected is not None and expected != policy.version:
        raise PreconditionError(f"policy {policy_id!r} is at version {policy.version}, not {expected}")
    return policy


async def check_name(connection: AsyncConnection, policy: StoredPolicy) -> None:
    """Raises ConflictError if another policy has the name."""
    query = select(policies.c.id).where(policies.c.name == policy.name, policies.c.id != policy.id)
    if (await connection.execute(query)).first() is not None:
        raise ConflictError(f"there is a policy named {policy.name!r} already")


async def keep_version(
    connection: AsyncConnection, policy: StoredPolicy, change: str, *, before: StoredPolicy | None = None
) -> None:
    """Note what ``policy`` is from now on, what it was ``before``, by what kind of change, and who made it."""
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
    """``stored`` as the engine wants it. Raises RulesError."""
    scope = Scope(**{field.name: tuple(stored.scope.get(field.name, ())) for field in fields(Scope)})
    rules = parse_rules(stored.category, stored.rules)
    values = asdict(stored.draft()) | {"rules": rules, "scope": scope}
    return Policy(id=stored.id, version=stored.version, **values)


def unknown(policy_id: str) -> NotFoundError:
    """What is said of a policy that is not there."""
    return NotFoundError(f"there is no policy {policy_id!r}")
