"""Feedback through the admin API, and the resulting quality of each policy."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from msgspec import structs

from app.events.records import RequestEvent
from policies.types import Action, Decision

pytestmark = pytest.mark.anyio

URL = "/admin/v1/feedback"


@pytest.fixture
async def log(
    resources: SimpleNamespace,
    event: Callable[..., RequestEvent],
    decision: Callable[..., Decision],
    until: Callable[..., Any],
) -> SimpleNamespace:
    """Three requests that one policy blocked, and one that it allowed."""
    for number in range(4):
        made = decision() if number < 3 else decision(action=Action.ALLOW, reason_code=None)
        await resources.events.append(
            replace(
                event(number, decisions=(made,)), shadow=(structs.replace(made, policy_id="pol_2", policy_name="new"),)
            )
        )
    await until(lambda: resources.events.written == 4)
    return resources


async def test_feedback_is_stored_and_listed(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    made = []
    for number, correct in ((0, True), (1, False), (2, True)):
        body = {"request_id": f"req_{number:06d}", "correct": correct, "note": "seen it"}
        answer = await client.post(URL, json=body)
        assert answer.status_code == 201
        assert answer.json().items() >= {**body, "about": "decision", "decision_id": None}.items()
        made.append(answer.json())
    listed = (await client.get(URL)).json()
    assert [item["id"] for item in listed["items"]] == [item["id"] for item in reversed(made)]
    assert listed["next_cursor"] is None
    first = (await client.get(URL, params={"limit": 2})).json()
    rest = (await client.get(URL, params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [*first["items"], *rest["items"]] == listed["items"]
    assert [item["request_id"] for item in (await client.get(URL, params={"correct": False})).json()["items"]] == [
        "req_000001"
    ]
    reply = {"request_id": "req_000001", "about": "reply", "correct": False}
    assert (await client.post(URL, json=reply)).json().items() >= reply.items()
    assert len((await client.get(URL, params={"about": "reply"})).json()["items"]) == 1
    assert len((await client.get(URL, params={"about": "decision"})).json()["items"]) == 3
    of_one = (await client.get(URL, params={"request_id": "req_000002"})).json()["items"]
    assert [item["correct"] for item in of_one] == [True]


async def test_feedback_is_audited_without_its_note(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    """The note may quote the request, so it isn't in the audit log, which is kept longer. Rejected feedback isn't
    logged.
    """
    body = {"request_id": "req_000001", "decision_id": "req_000001.00000", "correct": False, "note": "he said so"}
    made = (await client.post(URL, json=body)).json()
    assert (await client.post(URL, json={**body, "decision_id": "of nobody"})).status_code == 422
    (line,) = (await client.get("/admin/v1/audit", params={"action": "feedback.create"})).json()["items"]
    assert (line["target"], line["before"]) == ("req_000001", None)
    assert line["after"] == {"id": made["id"], "about": "decision", "decision_id": "req_000001.00000", "correct": False}
    assert line["actor"].startswith("token:")


async def test_precision_and_recall_of_each_policy(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    """Two of three alarms were right, and the one request allowed should have been blocked."""
    for number, correct in ((0, True), (1, True), (2, False), (3, False)):
        await client.post(URL, json={"request_id": f"req_{number:06d}", "correct": correct})
    items = (await client.get(f"{URL}/quality")).json()["items"]
    assert [(item["policy_name"], item["shadow"]) for item in items] == [("new", True), ("strict", False)]
    for item in items:
        assert (item["true_positives"], item["false_positives"]) == (2, 1)
        assert (item["false_negatives"], item["true_negatives"]) == (1, 0)
        assert item["precision"] == item["recall"] == pytest.approx(2 / 3, abs=1e-6)
    later = (await client.get(f"{URL}/quality", params={"since": "2026-01-01T00:00:03Z"})).json()["items"]
    assert [(item["precision"], item["recall"]) for item in later] == [(None, 0.0), (None, 0.0)]
    await client.post(URL, json={"request_id": "req_000003", "decision_id": "req_000003.00000", "correct": True})
    strict = (await client.get(f"{URL}/quality")).json()["items"][1]
    assert (strict["true_negatives"], strict["false_negatives"], strict["recall"]) == (1, 0, 1.0)


@pytest.mark.parametrize(
    ("body", "status", "loc"),
    [
        ({"request_id": "req_404", "correct": True}, 404, None),
        ({"request_id": "req_000001", "decision_id": "req_000002.00000", "correct": True}, 422, ["decision_id"]),
        (
            {"request_id": "req_000001", "about": "reply", "decision_id": "req_000001.00000", "correct": True},
            422,
            ["decision_id"],
        ),
        ({"request_id": "req_000001", "about": "answer", "correct": True}, 422, ["about"]),
        ({"request_id": "req_000001"}, 422, ["correct"]),
        ({"request_id": "req_000001", "correct": "yes"}, 422, ["correct"]),
        ({"request_id": "req_000001", "correct": True, "note": "a\0b"}, 422, ["note"]),
        ({"request_id": "req_000001", "correct": True, "who": "me"}, 422, ["who"]),
    ],
)
async def test_invalid_feedback_is_rejected(
    client: httpx.AsyncClient, log: SimpleNamespace, body: dict[str, Any], status: int, loc: list[str] | None
) -> None:
    answer = await client.post(URL, json=body)
    assert answer.status_code == status, answer.text
    if loc is not None:
        assert answer.json()["errors"][0]["loc"] == loc
    assert (await client.get(URL)).json()["items"] == []
