"""``/admin/v1/policies/{id}/status``: which version of a policy each worker has loaded."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path

from app.api.admin.common import AdminRoute
from app.dependencies import PoliciesDep, ResourcesDep
from app.field_types import Word
from app.identity import Role, requires
from app.worker_sync.worker_heartbeat import live_workers

router = APIRouter(prefix="/policies", route_class=AdminRoute, tags=["policies"])


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A worker and the version that it loaded at ``loaded_at``. ``version`` is null if the worker hasn't loaded the
    policy."""

    id: str
    host: str
    pid: int
    version: int | None
    loaded_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStatus:
    """``version`` is the current version. ``in_force`` is true once every worker has loaded it."""

    policy_id: str
    version: int
    updated_at: datetime
    in_force: bool
    workers: list[WorkerStatus]


@router.get("/{policy_id}/status")
@requires(Role.VIEWER)
async def get_status(store: PoliciesDep, resources: ResourcesDep, policy_id: Annotated[Word, Path()]) -> PolicyStatus:
    """Show which version of a policy each worker has loaded. Workers without a heartbeat in the last 20 seconds are
    omitted."""
    policy = await store.get(policy_id)
    workers = [
        WorkerStatus(
            id=worker.id,
            host=worker.host,
            pid=worker.pid,
            version=worker.versions.get(policy_id),
            loaded_at=worker.loaded_at,
            seen_at=worker.seen_at,
        )
        for worker in await live_workers(resources.database)
    ]
    return PolicyStatus(
        policy_id=policy_id,
        version=policy.version,
        updated_at=policy.updated_at,
        in_force=bool(workers) and all(worker.version == policy.version for worker in workers),
        workers=workers,
    )
