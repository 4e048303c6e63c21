"""The admin API. All paths require the admin token."""

from fastapi import APIRouter, Depends

from app.api.admin import audit, events, feedback, keys, policies, secrets, simulate, stats, status, upstreams
from app.dependencies import require_admin

router = APIRouter(prefix="/admin/v1", dependencies=[Depends(require_admin)])
router.include_router(policies.router)
router.include_router(status.router)
router.include_router(simulate.router)
router.include_router(events.router)
router.include_router(stats.router)
router.include_router(feedback.router)
router.include_router(upstreams.router)
router.include_router(keys.router)
router.include_router(secrets.router)
router.include_router(audit.router)
