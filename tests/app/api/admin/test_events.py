"""The event log in the admin API."""

import csv
import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.events.records import RequestEvent
from policies.types import Action, Decision, Phase

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]
MakeDecision = Callable[..., Decision]


@pytest.fixture
async def log(
    resources: SimpleNamespace, event: Event, decision: MakeDecision, until: Callable[..., Any]
) -> SimpleNamespace:
    """Ten requests, one per second from midnight on. Odd ones have a different agent and model, and were allowed."""
    for number in range(10):
        odd = number % 2 == 1
        allow = decision(
            policy_id="pol_2",
            action=Action.ALLOW,
            phase=Phase.AFTER_WORKFLOW,
            category="grounding",
            reason="Grounding audit passed (3 citations)",
            reason_code=None,
        )
        await resources.events.append(
            event(
                number,
                agent="=cmd()" if odd else "research",
                model="claude" if odd else "gpt-4o",
                action="allow" if odd else "block",
                run_id=f"run_{number}",
                decisions=(allow,) if odd else (decision(), allow),
            )
        )
    await until(lambda: resources.events.written == 10)
    return resources


async def listed(client: httpx.AsyncClient, kind: str, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get(f"/admin/v1/{kind}", params=params)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["request_id"].removeprefix("req_")) for row in rows]


async def test_request_row_has_the_fields_of_the_contract(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    (row,) = await listed(client, "requests", limit=1)
    assert (
        row.items()
        >= {
            "request_id": "req_000009",
            "ts": "2026-01-01T00:00:09Z",
            "api": "chat",
            "model": "claude",
            "agent": "=cmd()",
            "key_prefix": "gl-abc",
            "stream": True,
            "status": "completed",
            "action": "allow",
            "verdict": "has_contradictions",
            "trust_score": 0.5,
            "documents": 1,
            "sentences": 2,
            "prompt_tokens": 12,
            "completion_tokens": 34,
            "upstream_ms": 100.5,
            "judge_ms": 7.25,
            "total_ms": 120.0,
            "finish_reason": "stop",
            "error": None,
        }.items()
    )
    assert "prompt" not in row


async def test_event_row_is_a_decision_and_names_its_request(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    (row,) = await listed(client, "events", action="block", limit=1)
    assert row == {
        "id": "req_000008.00000",
        "request_id": "req_000008",
        "run_id": "run_8",
        "ts": "2026-01-01T00:00:08Z",
        "agent": "research",
        "model": "gpt-4o",
        "policy_id": "pol_1",
        "policy_version": 3,
        "policy_name": "strict",
        "category": "retrieval",
        "phase": "before_workflow",
        "action": "block",
        "reason": "Source age (400 days) exceeds max (90 days)",
        "reason_code": "RETRIEVAL_STALE_SOURCE",
        "metadata": {"age_days": 400, "max_age": 90},
        "latency_ms": 0.2,
        "shadow": False,
    }


@pytest.mark.parametrize(
    ("params", "of_requests", "of_events"),
    [
        ({}, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], [9, 8, 8, 7, 6, 6, 5, 4, 4, 3, 2, 2, 1, 0, 0]),
        ({"agent": "research"}, [8, 6, 4, 2, 0], [8, 8, 6, 6, 4, 4, 2, 2, 0, 0]),
        ({"model": "claude"}, [9, 7, 5, 3, 1], [9, 7, 5, 3, 1]),
        ({"action": "block"}, [8, 6, 4, 2, 0], [8, 6, 4, 2, 0]),
        ({"policy": "pol_1"}, [8, 6, 4, 2, 0], [8, 6, 4, 2, 0]),
        ({"phase": "before_workflow"}, [8, 6, 4, 2, 0], [8, 6, 4, 2, 0]),
        ({"reason_code": "RETRIEVAL_STALE_SOURCE"}, [8, 6, 4, 2, 0], [8, 6, 4, 2, 0]),
        ({"policy": "pol_1", "phase": "after_workflow"}, [], []),
        ({"run_id": "run_3"}, [3], [3]),
        ({"since": "2026-01-01T00:00:07Z"}, [9, 8, 7], [9, 8, 8, 7]),
        ({"until": "2026-01-01T00:00:02Z"}, [1, 0], [1, 0, 0]),
        ({"since": "2026-01-01T02:00:03+02:00", "until": "2026-01-01T00:00:04Z"}, [3], [3]),
        ({"agent": "nobody"}, [], []),
    ],
)
async def test_filters(
    client: httpx.AsyncClient,
    log: SimpleNamespace,
    params: dict[str, str],
    of_requests: list[int],
    of_events: list[int],
) -> None:
    assert numbers(await listed(client, "requests", **params)) == of_requests
    assert numbers(await listed(client, "events", **params)) == of_events


@pytest.mark.parametrize("kind", ["requests", "events"])
@pytest.mark.parametrize("limit", [1, 2, 4, 100])
async def test_pages_are_complete_and_do_not_overlap(
    client: httpx.AsyncClient, log: SimpleNamespace, event: Event, kind: str, limit: int
) -> None:
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"limit": limit, "until": "2026-01-02T00:00:00Z"} | (
            {"cursor": cursor} if cursor else {}
        )
        body = (await client.get(f"/admin/v1/{kind}", params=params)).json()
        rows += body["items"]
        if (cursor := body["next_cursor"]) is None:
            break
        # Requests that arrive meanwhile are newer, and shift no page.
        await log.events.append(event(200_000 + len(rows)))
    ids = [row["id" if kind == "events" else "request_id"] for row in rows]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == len(ids) == (15 if kind == "events" else 10)


async def test_requests_of_the_same_moment_are_all_listed(
    client: httpx.AsyncClient, resources: SimpleNamespace, event: Event, until: Callable[..., Any]
) -> None:
    for number in range(5):
        await resources.events.append(event(number, ts=event(0).request.ts))
    await until(lambda: resources.events.written == 5)
    first = (await client.get("/admin/v1/requests", params={"limit": 3})).json()
    rest = (await client.get("/admin/v1/requests", params={"limit": 3, "cursor": first["next_cursor"]})).json()
    assert numbers(first["items"] + rest["items"]) == [4, 3, 2, 1, 0]


async def test_trace_contains_everything_about_a_request(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    trace = (await client.get("/admin/v1/requests/req_000004")).json()
    assert trace["request"]["request_id"] == "req_000004"
    assert {"prompt", "reply"} <= set(trace["request"])
    assert [document["document_id"] for document in trace["documents"]] == ["d1"]
    assert [decision["action"] for decision in trace["decisions"]] == ["block", "allow"]
    assert [
        (sentence["choice"], sentence["index"], sentence["label"], sentence["judge_ms"], len(sentence["claims"]))
        for sentence in trace["sentences"]
    ] == [(0, 0, "contradicted", 3.5, 2), (0, 1, "supported", 3.5, 1)]
    assert [claim["label"] for claim in trace["sentences"][0]["claims"]] == ["supported", "contradicted"]
    missing = await client.get("/admin/v1/requests/req_nothing")
    assert (missing.status_code, missing.json()["detail"]) == (404, "request 'req_nothing' does not exist")


@pytest.mark.parametrize(("kind", "rows"), [("requests", 10), ("events", 15)])
async def test_exports_contain_every_row(client: httpx.AsyncClient, log: SimpleNamespace, kind: str, rows: int) -> None:
    lines = await client.get(f"/admin/v1/{kind}/export")
    assert lines.headers["content-type"] == "application/jsonl"
    assert lines.headers["content-disposition"] == f'attachment; filename="groundlane-{kind}.jsonl"'
    exported = [json.loads(line) for line in lines.text.splitlines()]
    assert exported == await listed(client, kind)
    table = await client.get(f"/admin/v1/{kind}/export", params={"format": "csv"})
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    read = list(csv.DictReader(io.StringIO(table.text)))
    assert len(read) == rows
    assert list(read[0]) == list(exported[0])
    assert [row["request_id"] for row in read] == [row["request_id"] for row in exported]
    assert read[0]["ts"] == "2026-01-01T00:00:09Z"


async def test_claims_are_exported_with_their_request(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    lines = await client.get("/admin/v1/claims/export")
    claims = [json.loads(line) for line in lines.text.splitlines()]
    assert len(claims) == 30
    assert [claim["position"] for claim in claims] == [0, 1, 2] * 10
    assert [claim["ts"] for claim in claims] == sorted((claim["ts"] for claim in claims), reverse=True)
    assert [claim["label"] for claim in claims[:3]] == ["supported", "contradicted", "supported"]
    (request,) = (await client.get("/admin/v1/requests", params={"limit": 1})).json()["items"]
    for name in ("request_id", "ts", "run_id", "agent", "model"):
        assert claims[0][name] == request[name]
    table = await client.get("/admin/v1/claims/export", params={"format": "csv", "action": "block"})
    read = list(csv.DictReader(io.StringIO(table.text)))
    assert list(read[0]) == list(claims[0])
    blocked = await client.get("/admin/v1/requests", params={"action": "block"})
    assert {row["request_id"] for row in read} == {row["request_id"] for row in blocked.json()["items"]}


async def test_export_can_be_filtered_and_empty(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    some = await client.get("/admin/v1/events/export", params={"action": "block"})
    assert len(some.text.splitlines()) == 5
    none = {"agent": "nobody"}
    assert (await client.get("/admin/v1/events/export", params=none)).text == ""
    table = await client.get("/admin/v1/events/export", params=none | {"format": "csv"})
    assert len(table.text.splitlines()) == 1


async def test_export_is_read_page_by_page(
    client: httpx.AsyncClient, log: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.events.queries._EXPORT_PAGE", 3)
    monkeypatch.setattr("app.events.queries._REQUESTS_AT_ONCE", 3)
    monkeypatch.setattr("app.api.admin.export._CHUNK", 100)
    for kind, rows in (("events", 15), ("requests", 10), ("claims", 30)):
        assert len((await client.get(f"/admin/v1/{kind}/export")).text.splitlines()) == rows


async def test_csv_export_contains_no_formula(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    table = await client.get("/admin/v1/requests/export", params={"format": "csv", "agent": "=cmd()"})
    assert {row["agent"] for row in csv.DictReader(io.StringIO(table.text))} == {"'=cmd()"}


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"action": "explode"}, ["query", "action"]),
        ({"phase": "later"}, ["query", "phase"]),
        ({"since": "yesterday"}, ["query", "since"]),
        ({"since": "2026-01-01T00:00:00"}, ["query", "since"]),
        ({"until": "2026-13-01T00:00:00Z"}, ["query", "until"]),
        ({"agnet": "research"}, ["query", "agnet"]),
        ({"agent": "a\0"}, ["query", "agent"]),
        ({"limit": "100000"}, ["query", "limit"]),
        ({"limit": "-1"}, ["query", "limit"]),
        ({"limit": "many"}, ["query", "limit"]),
        ({"cursor": "nonsense"}, ["query", "cursor"]),
        ({"cursor": "WyJhIiwiYiJd"}, ["query", "cursor"]),
        ({"cursor": "WyIyMDI2LTAxLTAxVDAwOjAwOjAwIiwiYiJd"}, ["query", "cursor"]),
    ],
)
@pytest.mark.parametrize("kind", ["requests", "events"])
async def test_bad_query_is_named(
    client: httpx.AsyncClient, kind: str, params: dict[str, str], where: list[str]
) -> None:
    answer = await client.get(f"/admin/v1/{kind}", params=params)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["loc"] == where
    assert where[-1] in answer.json()["detail"]
    if "limit" not in params and "cursor" not in params:
        assert (await client.get(f"/admin/v1/{kind}/export", params=params)).status_code == 422


async def test_unknown_format_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/admin/v1/events/export", params={"format": "xml"})).status_code == 422
