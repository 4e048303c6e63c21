"""The admin API. Every operation requires an admin token whose role permits it."""

from fastapi import APIRouter, Depends

from app.api.admin import (
    alerts,
    audit,
    events,
    keys,
    policies,
    runs,
    secrets,
    simulate,
    stats,
    status,
    upstreams,
    views,
)
from app.api.admin.access import budgets, tokens
from app.api.admin.common import guarded_only
from app.api.admin.quality import feedback, review

router = APIRouter(prefix="/admin/v1", dependencies=[Depends(guarded_only)])
router.include_router(policies.router)
router.include_router(status.router)
router.include_router(simulate.router)
router.include_router(events.router)
router.include_router(runs.router)
router.include_router(stats.router)
router.include_router(feedback.router)
router.include_router(upstreams.router)
router.include_router(keys.router)
router.include_router(secrets.router)
router.include_router(audit.router)
router.include_router(tokens.router)
router.include_router(budgets.router)
router.include_router(alerts.router)
router.include_router(review.router)
router.include_router(views.router)
