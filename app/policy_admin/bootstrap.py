"""Creates the policies from the configuration file at startup."""

from collections.abc import Sequence

import structlog

from app.auth.audit_log import acting_as
from app.errors import ConflictError, PreconditionError
from app.policy_admin.policy_document import PolicyDraft
from app.policy_admin.policy_store import PolicyStore

_log = structlog.stdlib.get_logger(__name__)

_ATTEMPTS = 5


async def bootstrap_policies(drafts: Sequence[PolicyDraft], store: PolicyStore) -> None:
    """Create each policy, or replace the existing policy with the same name if it differs. Repeating this changes
    nothing.

    Raises DatabaseUnavailableError. Raises ConflictError or PreconditionError if other processes keep changing the same
    policies.
    """
    with acting_as("config"):
        for draft in drafts:
            if (change := await _put(draft, store, attempts=_ATTEMPTS)) is not None:
                _log.info("policy_bootstrapped", policy=draft.name, change=change)


async def _put(draft: PolicyDraft, store: PolicyStore, *, attempts: int) -> str | None:
    try:
        return await _put_once(draft, store)
    except (ConflictError, PreconditionError):
        # Another worker is doing the same; the next attempt sees its changes.
        if attempts == 1:
            raise
        return await _put(draft, store, attempts=attempts - 1)


async def _put_once(draft: PolicyDraft, store: PolicyStore) -> str | None:
    found = await store.list(name=draft.name, limit=1)
    if not found:
        await store.create(draft)
        return "created"
    if found[0].draft() == draft:
        return None
    await store.replace(found[0].id, draft, expected=found[0].version)
    return "replaced"
