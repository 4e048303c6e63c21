"""Statistics of the event log, and the suggested threshold."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
    """A hundred requests, one per minute: number N took N+1 ms, every tenth was blocked, and every fifth is
    by agent b.
    """
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
        beside = structs.replace(allow, policy_id="pol_2", policy_name="beside", action=Action.WARN, reason_code="R")
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


async def test_default_period_is_the_last_day(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
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
async def test_invalid_parameters_are_named(
    client: httpx.AsyncClient, resources: SimpleNamespace, params: dict[str, str], loc: list[str]
) -> None:
    answer = await client.get("/admin/v1/stats", params=params)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["loc"] == loc


async def test_threshold_passes_all_good_runs_but_the_percentile(
    client: httpx.AsyncClient, log: SimpleNamespace
) -> None:
    """The lowest scores of the ninety allowed runs are 0.01, 0.02, … without every tenth. Their fifth percentile is the
    fifth score, 0.05, and four are below it. Of the ten blocked runs, only 0.00 is below it.
    """
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


async def test_feedback_overrides_the_decision(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    """Number 50 was wrongly blocked, and number 51 was wrongly allowed."""
    for number, correct in ((50, False), (51, False), (52, True)):
        body = {"request_id": f"req_{number * 60:06d}", "correct": correct}
        assert (await client.post("/admin/v1/feedback", json=body)).status_code == 201
    assert (await asked(client, "calibration", **DAY))["runs"] == {"good": 90, "bad": 10}
    marked = await asked(client, "calibration", good="marked", **DAY)
    assert marked["runs"] == {"good": 2, "bad": 10}
    assert marked["threshold"] == 0.5
    assert marked["would_block"] == {"good": 0, "bad": 5}
    # The scores are 0.00 to 0.99, so 52 runs are below 0.52. They include number 50, which was good, and number 51,
    # which was bad, but not number 52.
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


@pytest.fixture
async def spent(resources: SimpleNamespace, event: Event, until: Callable[..., Any]) -> SimpleNamespace:
    """Requests from 00:30 to 05:00, every ten minutes: models with and without a price, by two keys and without one."""
    for number in range(28):
        made = event(
            number,
            ts=datetime(2026, 1, 1, 0, 30, tzinfo=UTC) + timedelta(minutes=10 * number),
            agent="a" if number % 2 else "b",
            model=("gpt-4o", "gpt-4o-mini", "our-llama")[number % 3],
            key_prefix=("gl_one", "gl_two", None, None)[number % 4],
            prompt_tokens=1_000,
            completion_tokens=None if number % 3 == 1 else 500,
        )
        await resources.events.append(made)
    await until(lambda: resources.events.written == 28)
    return resources


# Numbers 3 to 20 are asked for: six requests to each model. A thousand tokens of gpt-4o cost 0.0025 dollars in the
# prompt and 0.01 in the reply; of gpt-4o-mini, 0.00015 in the prompt.
SPENT = {"since": "2026-01-01T01:00:00Z", "until": "2026-01-01T03:55:00Z"}


async def test_tokens_and_their_cost(client: httpx.AsyncClient, spent: SimpleNamespace) -> None:
    found = await asked(client, "usage", **SPENT, by="model", bucket="hour")
    totals = found["totals"]
    assert (totals["requests"], totals["prompt_tokens"], totals["completion_tokens"]) == (18, 18_000, 6_000)
    assert totals["cost_usd"] == pytest.approx(6 * 0.0075 + 6 * 0.00015)
    assert totals["unpriced_tokens"] == {"our-llama": 9_000}
    costs = {group["key"]: group["cost_usd"] for group in found["groups"]}
    assert costs == {"gpt-4o": pytest.approx(0.045), "gpt-4o-mini": pytest.approx(0.0009), "our-llama": None}
    assert list(costs) == ["gpt-4o", "gpt-4o-mini", "our-llama"]
    assert [(bucket["start"], bucket["requests"]) for bucket in found["buckets"]] == [
        (f"2026-01-01T0{hour}:00:00Z", 6) for hour in (1, 2, 3)
    ]
    assert found["prices"]["as_of"] == "2026-01-31"


async def test_tokens_by_key_and_agent(client: httpx.AsyncClient, spent: SimpleNamespace) -> None:
    found = await asked(client, "usage", **SPENT, by="key")
    assert {group["key"]: group["requests"] for group in found["groups"]} == {"gl_one": 5, "gl_two": 4, None: 9}
    found = await asked(client, "usage", **SPENT, by="agent", key="gl_two")
    assert [(group["key"], group["requests"]) for group in found["groups"]] == [("a", 4)]
    assert found["totals"]["requests"] == 4


async def test_usage_from_rollups_equals_usage_from_rows(
    client: httpx.AsyncClient, spent: SimpleNamespace, decision: MakeDecision
) -> None:
    policy = decision().policy_id
    for params in ({}, {"agent": "a"}, {"model": "gpt-4o"}, {"key": "gl_one"}, {"policy": policy}):
        counts = []
        for start in (0, 30):  # With half hours at the ends, the first and the last hour are read row by row.
            span = {"since": f"2026-01-01T00:{start:02}:00Z", "until": f"2026-01-01T06:{start:02}:00Z"}
            found = await asked(client, "usage", **span, by="model", **params)
            counts.append((found["totals"], found["groups"]))
        assert counts[0] == counts[1]
        assert counts[0][0]["requests"] > 0


@pytest.mark.parametrize(
    "params",
    [{"by": "policy"}, {"bucket": "minute"}, {"run_id": "r"}, {"bucket": "hour", "since": "1990-01-01T00:00:00Z"}],
)
async def test_usage_that_cannot_be_computed_is_rejected(client: httpx.AsyncClient, params: dict[str, str]) -> None:
    assert (await client.get("/admin/v1/usage", params=params)).status_code == 422
