"""Alive, able to serve, and in numbers: what orchestrators and Prometheus ask for."""

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
class Check:
    """One part. ``required``: without it the gateway cannot serve."""

    ok: bool
    detail: str
    required: bool = False


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """200 while the process answers; asks nothing of anything else."""
    return {"status": "alive"}


@router.get("/readyz", responses={503: {"description": "Cannot serve"}})
async def ready(request: Request) -> JSONResponse:
    """Whether the gateway is able to serve, with each part by name."""
    checks = await look(request.state.resources)
    status = readiness(checks)
    shown = {name: {"ok": check.ok, "detail": check.detail} for name, check in checks.items()}
    return JSONResponse(
        {"status": status, "checks": shown}, status_code=503 if status is Readiness.UNAVAILABLE else 200
    )


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus' text format; with several workers, for all of them."""
    resources: Resources = request.state.resources
    return Response(await resources.metrics.scraped(), media_type=CONTENT_TYPE_LATEST)


async def look(resources: Resources) -> dict[str, Check]:
    """Every part of this process, by name."""
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


def readiness(checks: dict[str, Check]) -> Readiness:
    """The worst of ``checks``: a missing part degrades, a missing required part ends service."""
    missing = [check for check in checks.values() if not check.ok]
    if any(check.required for check in missing):
        return Readiness.UNAVAILABLE
    return Readiness.DEGRADED if missing else Readiness.READY


async def check_database(database: Database, durability: EventDurability) -> Check:
    """Where events may be written later, the gateway serves without a database; where each must be committed before
    the reply ends, it cannot."""
    try:
        async with asyncio.timeout(_PING_LIMIT_S):
            await database.ping()
    except TimeoutError:
        return Check(ok=False, detail="no answer in time", required=durability is EventDurability.SYNC)
    except DatabaseUnavailableError as error:
        return Check(ok=False, detail=str(error), required=durability is EventDurability.SYNC)
    return Check(ok=True, detail=database.dialect)


def check_policies(policies: PolicyStore) -> Check:
    """Policies must have been read once. One that this version does not understand stands as it last was, if at all."""
    if not policies.ready:
        return Check(ok=False, detail="not loaded", required=True)
    loaded = f"{len(policies.loaded_versions)} loaded"
    if unreadable := policies.unreadable:
        return Check(ok=False, detail=f"{loaded}; not understood: {', '.join(sorted(unreadable))}")
    return Check(ok=True, detail=loaded)


def check_judge(checker: GroundingChecker) -> Check:
    """Without a judge replies are not checked; whether they may pass is each policy's own matter."""
    if checker.fault is not None and checker.available:
        return Check(ok=False, detail=f"{checker.fault}; {checker.name} judges alone")
    if checker.stalled_s > _JUDGE_LIMIT_S:
        return Check(ok=False, detail=f"{checker.name} has not answered for {checker.stalled_s:.0f} s")
    if checker.available:
        return Check(ok=True, detail=checker.name)
    return Check(ok=False, detail=checker.error or "not loaded yet")


async def check_limiter(limiter: RateLimiter) -> Check:
    """Without its store limits still hold, for each worker alone."""
    fault = await limiter.fault()
    return Check(ok=fault is None, detail=fault or "shared")


def check_llm_judge(llm: LlmJudge) -> Check:
    """Whether it could be asked: that it answers shows only when it is."""
    return Check(ok=llm.ready, detail=llm.fault or llm.name)
