"""Runs as an operator sees them: ``GET /admin/v1/runs`` and the steps of one run."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.run_client import Body, Run

REPLY = "Permanent staff receive 25 days of annual leave (hr handbook)."
DOCUMENT = {"id": "hr", "text": REPLY, "source": "hr handbook", "relevance_score": 0.9, "age_days": 3}
StartGateway = Callable[..., Gateway]


def listed(gateway: Gateway, expected: int = 200, /, **params: Any) -> Body:
    response = gateway.admin.get("/runs", params=params)
    assert response.status_code == expected, response.text
    return dict(response.json())


def ids(gateway: Gateway, **params: Any) -> list[str]:
    return [run["run_id"] for run in listed(gateway, **params)["items"]]


def ask(gateway: Gateway, run: Run) -> None:
    gateway.upstream.script(answer(REPLY, stream=False))
    messages = [{"role": "user", "content": "How much leave is there?"}]
    body = {"model": "m", "messages": messages, "documents": [DOCUMENT], "grounding": {"run_id": run.id}}
    with gateway.call(body) as call:
        json.loads(call.read_all())
    eventually(lambda: run.view()["requests"] or None, "request of the run")


@pytest.fixture
def agent(gateway: Gateway) -> str:
    return gateway.agent(grounding={"action_on_violation": "block", "min_citations": 0})


def test_runs_are_listed_from_newest_to_oldest_page_by_page(gateway: Gateway, agent: str) -> None:
    started = []
    for _ in range(5):
        with Run(gateway, agent) as run:
            started.append(run.id)
    seen: list[str] = []
    cursor = None
    while True:
        found = listed(gateway, agent=agent, limit=2, **({"cursor": cursor} if cursor else {}))
        seen += [run["run_id"] for run in found["items"]]
        if (cursor := found["next_cursor"]) is None:
            break
    assert seen == started[::-1]


def test_runs_are_filtered_by_properties_and_outcome(gateway: Gateway, agent: str) -> None:
    with Run(gateway, agent, model="m-7") as blocked, Run(gateway, agent) as completed:
        blocked.grounded(grounding_scores=[0.1])
        completed.complete("It rains.")
    assert ids(gateway, agent=agent) == [completed.id, blocked.id]
    assert ids(gateway, agent=agent, action="block") == [blocked.id]
    assert ids(gateway, agent=agent, action="allow", status="completed") == [completed.id]
    assert ids(gateway, agent=agent, status="open") == [blocked.id]
    assert ids(gateway, agent=agent, model="m-7") == [blocked.id]
    (row,) = listed(gateway, agent=agent, action="block")["items"]
    assert (row["model"], row["status"], row["step"]) == ("m-7", "open", 1)
    assert row["recorded"]["grounding_scores"] == 1
    begun = row["created_at"]
    assert blocked.id in ids(gateway, agent=agent, since=begun)
    assert blocked.id not in ids(gateway, agent=agent, until=begun)


@pytest.mark.parametrize(
    "params", [{"mood": "good"}, {"status": "paused"}, {"action": "cry"}, {"limit": 0}, {"cursor": "x"}, {"since": "7"}]
)
def test_invalid_filter_is_rejected(gateway: Gateway, params: dict[str, Any]) -> None:
    assert listed(gateway, 422, **params)["errors"][0]["loc"] == ["query", *params]


def test_run_is_shown_with_all_its_steps(gateway: Gateway, agent: str) -> None:
    with Run(gateway, agent) as run:
        run.retrieved(id="d", source="faq.pdf", relevance_score=0.9)
        run.grounded(grounding_scores=[0.9], citations=["faq.pdf"])
        ask(gateway, run)
        run.complete({"answer": "25 days"})
        body = gateway.admin.get(f"/runs/{run.id}").json()
        assert {name: body[name] for name in run.view()} == run.view()
    assert [step["kind"] for step in body["steps"]] == ["start", "retrieval", "grounding", "call", "complete"]
    assert [step["step"] for step in body["steps"]] == [0, 1, 2, 3, 4]
    for step in body["steps"]:
        trace = gateway.trace(step["request_id"])
        assert [d["reason"] for d in trace.decisions] == [d["reason"] for d in step["decisions"]]
        assert trace.request["run_id"] == run.id
    start, retrieval, grounding, call, complete = (step["data"] for step in body["steps"])
    assert start == {}
    assert retrieval["document"]["source"] == "faq.pdf"
    assert grounding["grounding_scores"] == [0.9]
    assert [claim["text"] for claim in call["claims"]] == ["Permanent staff receive 25 days of annual leave."]
    assert complete == {"result": {"answer": "25 days"}}


@pytest.mark.parametrize("run_id", ["run_0", f"run_{'0' * 32}"])
def test_unknown_run_is_not_found(gateway: Gateway, run_id: str) -> None:
    assert gateway.admin.get(f"/runs/{run_id}").status_code == 404


@pytest.mark.parametrize("store_text", ["hash", "none"])
def test_open_run_shows_no_text(start_gateway: StartGateway, store_text: str) -> None:
    gateway = start_gateway(store_text=store_text)
    with Run(gateway, gateway.agent(grounding={"min_citations": 1})) as run:
        ask(gateway, run)
        run.grounded(unsupported_claims=["It rains."])
        shown = json.dumps(gateway.admin.get(f"/runs/{run.id}").json())
        assert "25 days" not in shown
        assert "It rains." not in shown
        database = b"".join(path.read_bytes() for path in gateway.database.parent.glob("groundlane.db*"))
        assert b"(hr handbook)" not in database
        assert run.complete()["decisions"][-1]["metadata"]["citation_count"] == 1
