"""The event log in numbers, and the threshold that its scores suggest."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from msgspec import structs

from app.events.records import RequestEvent
from policies.types import Action, Decision, Phase

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]
MakeDecision = Callable[..., Decision]
DAY = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T04:00:00Z"}


async def asked(client: httpx.AsyncClient, path: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(f"/admin/v1/{path}", params=params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.fixture
async def log(
    resources: SimpleNamespace, event: Event, decision: MakeDecision, until: Callable[..., Any]
) -> SimpleNamespace:
    """A hundred requests, one a minute: number N took N+1 ms, every tenth was blocked, every fifth is of agent b."""
    allow = decision(action=Action.ALLOW, reason_code=None, reason="fine", phase=Phase.AFTER_WORKFLOW, latency_ms=4.0)
    for number in range(100):
        blocked = number % 10 == 0
        made = event(
            number * 60,
            agent="b" if number % 5 == 0 else "a",
            status="blocked" if blocked else "completed",
            action="block" if blocked else "allow",
            verdict="has_contradictions" if blocked else "supported",
            total_ms=float(number + 1),
            upstream_ms=None if blocked else 10.0,
            decisions=(decision(latency_ms=float(number + 1)),) if blocked else (allow,),
        )
        beside = replace(allow, policy_id="pol_2", policy_name="beside", action=Action.WARN, reason_code="R")
        score = round(number / 100, 2)
        claims = tuple(
            structs.replace(claim, score=score if claim.position == 0 else min(1.0, score + 0.2))
            for claim in made.claims
        )
        await resources.events.append(replace(made, shadow=(beside,) if number < 3 else (), claims=claims))
    await until(lambda: resources.events.written == 100)
    return resources


async def test_totals_and_percentiles(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    """The nearest-rank percentiles of 1 to 100 are the percentages themselves."""
    found = await asked(client, "stats", **DAY)
    totals = found["totals"]
    assert (found["since"], found["until"]) == (DAY["since"], DAY["until"])
    assert totals["requests"] == 100
    assert totals["actions"] == {"allow": 90, "block": 10}
    assert totals["verdicts"] == {"has_contradictions": 10, "supported": 90}
    assert totals["statuses"] == {"blocked": 10, "completed": 90}
    assert totals["rates"] == {"warn": 0.0, "block": 0.1}
    assert (totals["prompt_tokens"], totals["completion_tokens"]) == (1200, 3400)
    assert totals["latency_ms"]["total"] == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
    assert totals["latency_ms"]["upstream"] == {"p50": 10.0, "p95": 10.0, "p99": 10.0, "max": 10.0}
    after, before = found["phases"]
    assert (after["phase"], after["category"], after["decisions"]) == ("after_workflow", "retrieval", 93)
    assert after["actions"] == {"allow": 90, "warn": 3}
    assert before["reason_codes"] == {"RETRIEVAL_STALE_SOURCE": 10}
    assert before["latency_ms"] == {"p50": 41.0, "p95": 91.0, "p99": 91.0, "max": 91.0}


async def test_groups_and_filters(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    groups = (await asked(client, "stats", by="agent", **DAY))["groups"]
    assert [(group["key"], group["requests"], group["actions"]) for group in groups] == [
        ("a", 80, {"allow": 80}),
        ("b", 20, {"allow": 10, "block": 10}),
    ]
    assert groups[1]["latency_ms"]["total"]["max"] == 96.0
    policies = (await asked(client, "stats", by="policy", **DAY))["groups"]
    assert [(row["policy_id"], row["policy_name"], row["shadow"], row["decisions"]) for row in policies] == [
        ("pol_1", "strict", False, 100),
        ("pol_2", "beside", True, 3),
    ]
    assert (await asked(client, "stats", agent="b", action="block", **DAY))["totals"]["requests"] == 10
    assert (await asked(client, "stats", policy="pol_2", **DAY))["totals"]["requests"] == 3
    assert (await asked(client, "stats", by="model", agent="none", **DAY)) == {
        **DAY,
        "phases": [],
        "groups": [],
        "totals": {
            "requests": 0,
            **{name: {} for name in ("actions", "verdicts", "statuses")},
            "rates": {"warn": None, "block": None},
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "trust_score": None,
            "mean_ms": {},
        },
    }


async def test_buckets_have_no_gaps(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    buckets = (await asked(client, "stats", bucket="hour", **DAY))["buckets"]
    assert [(bucket["start"][11:16], bucket["requests"]) for bucket in buckets] == [
        ("00:00", 60),
        ("01:00", 40),
        ("02:00", 0),
        ("03:00", 0),
    ]
    assert buckets[0]["actions"] == {"allow": 54, "block": 6}
    odd = {"since": "2026-01-01T00:30:30Z", "until": "2026-01-01T01:00:01Z"}
    assert [
        (bucket["start"][11:16], bucket["requests"])
        for bucket in (await asked(client, "stats", bucket="hour", **odd))["buckets"]
    ] == [("00:00", 29), ("01:00", 1)]


async def test_the_last_day_is_the_default(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    assert (await asked(client, "stats"))["totals"]["requests"] == 0


@pytest.mark.parametrize(
    ("params", "loc"),
    [
        ({"bucket": "minute", "since": "2025-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, ["query", "until"]),
        ({"bucket": "hour", "since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, ["query", "until"]),
        ({"bucket": "year"}, ["query", "bucket"]),
        ({"by": "key"}, ["query", "by"]),
        ({"agents": "a"}, ["query", "agents"]),
    ],
)
async def test_bad_parameters_are_named(
    client: httpx.AsyncClient, resources: SimpleNamespace, params: dict[str, str], loc: list[str]
) -> None:
    answer = await client.get("/admin/v1/stats", params=params)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["loc"] == loc


async def test_a_threshold_lets_pass_all_good_runs_but_the_percentile(
    client: httpx.AsyncClient, log: SimpleNamespace
) -> None:
    """The lowest scores of the ninety runs allowed are 0.01, 0.02, … without every tenth; the fifth percentile of them
    is the fifth, 0.05, under which lie four. Of the ten that were blocked, 0.00 alone lies under it."""
    found = await asked(client, "calibration", **DAY)
    assert found["threshold"] == 0.05
    assert found["runs"] == {"good": 90, "bad": 10}
    assert found["would_block"] == {"good": 4, "bad": 1}
    assert len(found["histogram"]) == 20
    assert found["histogram"][0] == {"from": 0.0, "to": 0.05, "good": 4, "bad": 1}
    assert sum(bin["good"] for bin in found["histogram"]) == 90
    assert sum(bin["bad"] for bin in found["histogram"]) == 10
    half = await asked(client, "calibration", percentile=50, **DAY)
    assert half["threshold"] == 0.49
    assert half["would_block"] == {"good": 44, "bad": 5}
    average = await asked(client, "calibration", score="average", percentile=99.9, **DAY)
    assert average["threshold"] == pytest.approx((0.99 + 1.0 + 1.0) / 3)


async def test_marks_overrule_what_was_decided(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    """Number 50 was blocked for nothing, number 51 should have been."""
    for number, correct in ((50, False), (51, False), (52, True)):
        body = {"request_id": f"req_{number * 60:06d}", "correct": correct}
        assert (await client.post("/admin/v1/feedback", json=body)).status_code == 201
    assert (await asked(client, "calibration", **DAY))["runs"] == {"good": 90, "bad": 10}
    marked = await asked(client, "calibration", good="marked", **DAY)
    assert marked["runs"] == {"good": 2, "bad": 10}
    assert marked["threshold"] == 0.5
    assert marked["would_block"] == {"good": 0, "bad": 5}
    # Of the hundred runs with a score each hundredth, 52 lie under 0.52: 50 as one that was good, 51 as one that was
    # bad, and 52 not yet.
    assert [marked["thresholds"][step] for step in (0, 52, 53)] == [
        {"threshold": 0.0, "runs": 0, "good": 0, "bad": 0, "marked_good": 0, "marked_bad": 0},
        {"threshold": 0.52, "runs": 52, "good": 1, "bad": 6, "marked_good": 1, "marked_bad": 1},
        {"threshold": 0.53, "runs": 53, "good": 2, "bad": 6, "marked_good": 2, "marked_bad": 1},
    ]
    assert marked["totals"] == {"runs": 100, "good": 2, "bad": 10, "marked_good": 2, "marked_bad": 1}


async def test_without_a_good_run_there_is_no_threshold(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    found = await asked(client, "calibration", agent="nobody")
    assert (found["threshold"], found["would_block"], found["runs"]) == (None, None, {"good": 0, "bad": 0})
    assert (await client.get("/admin/v1/calibration", params={"percentile": 100})).status_code == 422
