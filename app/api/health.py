"""Liveness, readiness and metrics, for orchestrators and Prometheus."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from app.auth import RateLimiter
from app.db.database import Database, DatabaseUnavailableError
from app.policy_admin.policy_store import PolicyStore
from app.resources import Resources
from app.settings import EventDurability
from judges.checker import GroundingChecker
from judges.llm import LlmJudge

router = APIRouter(tags=["health"])
_PING_LIMIT_S = 2.0
_JUDGE_LIMIT_S = 30.0


class Readiness(StrEnum):
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """The state of one component. If it is ``required``, the gateway can't serve requests without it."""

    ok: bool
    detail: str
    required: bool = False


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """Return 200 as long as the process responds. Nothing else is checked."""
    return {"status": "alive"}


@router.get("/readyz", responses={503: {"description": "Cannot serve"}})
async def ready(request: Request) -> JSONResponse:
    """Report whether the gateway can serve requests, and the state of each component."""
    checks = await check_health(request.state.resources)
    status = readiness(checks)
    shown = {name: {"ok": check.ok, "detail": check.detail} for name, check in checks.items()}
    return JSONResponse(
        {"status": status, "checks": shown}, status_code=503 if status is Readiness.UNAVAILABLE else 200
    )


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics of all workers in the Prometheus text format."""
    resources: Resources = request.state.resources
    return Response(await resources.metrics.scraped(), media_type=CONTENT_TYPE_LATEST)


async def check_health(resources: Resources) -> dict[str, HealthCheck]:
    """Check each component of this process."""
    checks = {
        "database": await check_database(resources.database, resources.settings.event_durability),
        "policies": check_policies(resources.policies),
        "judge": check_judge(resources.checker),
    }
    if resources.settings.redis_url is not None:
        checks["rate_limits"] = await check_limiter(resources.limiter)
    if resources.settings.llm_judge_model is not None:
        checks["llm_judge"] = check_llm_judge(resources.llm)
    return checks


def readiness(checks: dict[str, HealthCheck]) -> Readiness:
    """Return the overall state. If a required component fails, the gateway is unavailable. If an optional component
    fails, the gateway is degraded."""
    missing = [check for check in checks.values() if not check.ok]
    if any(check.required for check in missing):
        return Readiness.UNAVAILABLE
    return Readiness.DEGRADED if missing else Readiness.READY


async def check_database(database: Database, durability: EventDurability) -> HealthCheck:
    """Check the database. It is required if events must be committed before the reply ends."""
    try:
        async with asyncio.timeout(_PING_LIMIT_S):
            await database.ping()
    except TimeoutError:
        return HealthCheck(
            ok=False, detail="the database did not respond in time", required=durability is EventDurability.SYNC
        )
    except DatabaseUnavailableError as error:
        return HealthCheck(ok=False, detail=str(error), required=durability is EventDurability.SYNC)
    return HealthCheck(ok=True, detail=database.dialect)


def check_policies(policies: PolicyStore) -> HealthCheck:
    """Check that the policies were loaded at least once. If this version of the gateway can't read a policy, the last
    readable version of that policy stays active."""
    if not policies.ready:
        return HealthCheck(ok=False, detail="not loaded", required=True)
    loaded = f"{len(policies.loaded_versions)} loaded"
    if unreadable := policies.unreadable:
        return HealthCheck(ok=False, detail=f"{loaded}; unreadable: {', '.join(sorted(unreadable))}")
    return HealthCheck(ok=True, detail=loaded)


def check_judge(checker: GroundingChecker) -> HealthCheck:
    """Check the judge. Without it, replies aren't checked, and policies decide whether unchecked replies may be
    sent."""
    if checker.fault is not None and checker.available:
        others = "" if checker.name in checker.fault else f"; judging only with {checker.name}"
        return HealthCheck(ok=False, detail=f"{checker.fault}{others}")
    if checker.stalled_s > _JUDGE_LIMIT_S:
        return HealthCheck(ok=False, detail=f"{checker.name} has not answered for {checker.stalled_s:.0f} s")
    if checker.available:
        return HealthCheck(ok=True, detail=checker.name)
    return HealthCheck(ok=False, detail=checker.error or "not loaded yet")


async def check_limiter(limiter: RateLimiter) -> HealthCheck:
    """Check Redis. Without it, each worker counts requests separately."""
    fault = await limiter.fault()
    return HealthCheck(ok=fault is None, detail=fault or "shared")


def check_llm_judge(llm: LlmJudge) -> HealthCheck:
    """Check only the configuration of the LLM judge. Its calls can still fail."""
    return HealthCheck(ok=llm.ready, detail=llm.fault or llm.name)
