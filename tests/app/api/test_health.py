"""Liveness, readiness and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from app.api import health
from app.db.database import DatabaseUnavailableError
from app.observability import Metrics
from app.settings import EventDurability


@dataclass(kw_only=True)
class Parts:
    """The parts of a gateway, each in the state that the test sets."""

    database_error: Exception | None = None
    durability: EventDurability = EventDurability.BATCHED
    policies_ready: bool = True
    unreadable: Mapping[str, str] = field(default_factory=dict)
    judge_error: str | None = None
    judge_stalled_s: float = 0.0
    fault: str | None = None
    llm_model: str | None = None
    llm_fault: str | None = None
    redis_url: str | None = None
    limiter_fault: str | None = None
    metrics: Metrics = field(default_factory=Metrics)

    async def ping(self) -> None:
        if self.database_error is not None:
            raise self.database_error

    async def ask_limiter(self) -> str | None:
        return self.limiter_fault

    def resources(self) -> SimpleNamespace:
        return SimpleNamespace(
            settings=SimpleNamespace(
                event_durability=self.durability, llm_judge_model=self.llm_model, redis_url=self.redis_url
            ),
            limiter=SimpleNamespace(fault=self.ask_limiter),
            database=SimpleNamespace(ping=self.ping, dialect="sqlite"),
            policies=SimpleNamespace(
                ready=self.policies_ready, loaded_versions={"p1": 1, "p2": 4}, unreadable=self.unreadable
            ),
            checker=SimpleNamespace(
                available=self.judge_error is None,
                name="embedded",
                error=self.judge_error,
                fault=self.fault,
                stalled_s=self.judge_stalled_s,
            ),
            llm=SimpleNamespace(ready=self.llm_fault is None, name=self.llm_model, fault=self.llm_fault),
            metrics=self.metrics,
        )


async def get(path: str, parts: Parts) -> httpx.Response:
    app = FastAPI()
    app.include_router(health.router)

    async def with_state(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {"resources": parts.resources()}}, receive, send)

    transport = httpx.ASGITransport(app=with_state)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.get(path)


AWAY = DatabaseUnavailableError("connection refused")


@pytest.mark.anyio
async def test_liveness_depends_on_nothing() -> None:
    response = await get("/healthz", Parts(database_error=AWAY, policies_ready=False, judge_error="gone"))
    assert (response.status_code, response.json()) == (200, {"status": "alive"})


@pytest.mark.anyio
async def test_readiness_names_each_component() -> None:
    response = await get("/readyz", Parts())
    assert response.status_code == 200
    assert response.json() == {
        "status": "ready",
        "checks": {
            "database": {"ok": True, "detail": "sqlite"},
            "policies": {"ok": True, "detail": "2 loaded"},
            "judge": {"ok": True, "detail": "embedded"},
        },
    }


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("parts", "status", "word", "part", "detail"),
    [
        (Parts(fault="no such folder"), 200, "degraded", "judge", "no such folder; judging only with embedded"),
        (Parts(llm_model="gpt-4o-mini", llm_fault="no key"), 200, "degraded", "llm_judge", "no key"),
        (Parts(redis_url="redis://r", limiter_fault="no answer"), 200, "degraded", "rate_limits", "no answer"),
        (Parts(judge_stalled_s=40.0), 200, "degraded", "judge", "embedded has not answered for 40 s"),
        (Parts(judge_error="no such folder"), 200, "degraded", "judge", "no such folder"),
        (Parts(database_error=AWAY), 200, "degraded", "database", "connection refused"),
        (Parts(database_error=TimeoutError()), 200, "degraded", "database", "the database did not respond in time"),
        (
            Parts(database_error=AWAY, durability=EventDurability.SYNC),
            503,
            "unavailable",
            "database",
            "connection refused",
        ),
        (
            Parts(database_error=TimeoutError(), durability=EventDurability.SYNC),
            503,
            "unavailable",
            "database",
            "the database did not respond in time",
        ),
        (Parts(policies_ready=False), 503, "unavailable", "policies", "not loaded"),
        (Parts(unreadable={"p9": "?", "p3": "?"}), 200, "degraded", "policies", "2 loaded; unreadable: p3, p9"),
    ],
    ids=lambda value: None if isinstance(value, Parts) else str(value),
)
async def test_missing_component_degrades_or_ends_service(
    parts: Parts, status: int, word: str, part: str, detail: str
) -> None:
    response = await get("/readyz", parts)
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["status"]) == (status, word)
    assert body["checks"][part] == {"ok": False, "detail": detail}
    assert all(check["ok"] for name, check in body["checks"].items() if name != part)


@pytest.mark.anyio
async def test_judge_loaded_on_first_use_is_reported_as_such() -> None:
    parts = Parts(judge_error="")
    body = (await get("/readyz", parts)).json()
    assert body["checks"]["judge"]["detail"] == "not loaded yet"


@pytest.mark.anyio
async def test_metrics_are_prometheus_text() -> None:
    parts = Parts()
    with parts.metrics.open_stream():
        response = await get("/metrics", parts)
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "groundlane_open_streams 1.0" in response.text
