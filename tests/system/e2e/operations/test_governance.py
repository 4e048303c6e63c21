"""A policy before enforcement: in shadow, simulated, enforced; each state is visible in the admin API, and only the
last to clients."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from judges.types import Label
from policies.policy_selection import PolicyEngine
from policies.registry import parse_rules
from policies.types import Policy, Scope
from tests.support.apis.scripted_answers import answer, chunk, whole
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply

LEAVE = "Permanent staff receive 40 days of leave."
FINE = "Permanent staff receive 25 days of leave."
DOCUMENT = {"id": "hr", "text": FINE, "source": "hr.pdf", "relevance_score": 0.9, "age_days": 3}
BLOCK = {"contradiction_action": "block", "min_citations": 0}
Body = dict[str, Any]


@pytest.fixture(autouse=True)
def contradicted(gateway: Gateway) -> None:
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}


def ask(gateway: Gateway, agent: str, text: str, **fields: Any) -> tuple[str, Body]:
    """The id of the request, and the body of the reply."""
    gateway.upstream.script(answer(text, stream=False))
    body = request(agent, **fields)
    with gateway.call(body) as call:
        return call.request_id, json.loads(call.read_all())


def request(agent: str, **fields: Any) -> Body:
    messages = [{"role": "user", "content": "How much leave?"}]
    return {"model": "m", "messages": messages, "documents": [DOCUMENT], "grounding": {"agent": agent}, **fields}


def posted(gateway: Gateway, path: str, body: Any, status: int = 200) -> Body:
    # Escaped, so that it can be anything that JSON can write.
    headers = {"content-type": "application/json"}
    response = gateway.admin.post(path, content=json.dumps(body), headers=headers)
    assert response.status_code == status, response.text
    found: Body = response.json()
    return found


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("reasoning", "action"), [("pass", "allow"), ("drop", "allow"), ("judge", "block")])
def test_shadow_policy_judges_reasoning_only_if_configured(
    start_gateway: Callable[..., Gateway], reasoning: str, action: str, stream: bool
) -> None:
    """The text of a reply that passes untouched."""
    gateway, agent = start_gateway(annotate_by_default=False), "agent-shadow"
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}
    gateway.policy("grounding", {**BLOCK, "reasoning_action": reasoning}, mode="shadow")
    gateway.upstream.script(answer(f"<think>{LEAVE}</think>\n\n{FINE}", stream=stream))
    with gateway.call(request(agent, stream=stream)) as call:
        call.read_all()
    decisions = gateway.trace(call.request_id).decisions
    assert [d["action"] for d in decisions if d["phase"] == "mid_execution"] == [action]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_in_a_field_is_judged_if_the_policy_says_so(gateway: Gateway, field: str, stream: bool) -> None:
    agent = f"agent-{field}-{stream}"
    gateway.policy("grounding", {**BLOCK, "reasoning_action": "judge"}, scope={"agents": [agent]})
    for thought, finish in ((FINE, "stop"), (LEAVE, "content_filter")):
        if stream:
            deltas = [
                chunk(0, {"role": "assistant", field: thought}),
                chunk(0, {"content": FINE}),
                chunk(0, {}, "stop"),
            ]
            gateway.upstream.script(Reply(chunks=[*deltas, b"data: [DONE]\n\n"]))
        else:
            gateway.upstream.script(json_reply(whole(FINE, message={field: thought})))
        with gateway.call(request(agent, stream=stream)) as call:
            told = call.read_all().decode().replace('": ', '":')
        assert (LEAVE in told, f'"{field}":' in told) == (False, thought == FINE)
        assert f'"finish_reason":"{finish}"' in told


def test_policy_goes_from_shadow_to_enforced(gateway: Gateway) -> None:
    agent = "agent-from-shadow"
    policy = gateway.policy("grounding", BLOCK, scope={"agents": [agent]}, mode="shadow")
    first, reply = ask(gateway, agent, LEAVE)
    assert reply["choices"][0]["message"]["content"] == LEAVE
    assert (reply["grounding"]["action"], reply["grounding"]["decisions"]) == ("allow", [])
    decisions = gateway.trace(first).decisions
    assert [(d["policy_id"], d["action"], d["shadow"]) for d in decisions] == [
        (policy["id"], "allow", True),
        (policy["id"], "block", True),
    ]
    assert gateway.trace(first).request["action"] == "allow"
    listed = gateway.admin.get("/events", params={"policy": policy["id"], "shadow": True}).json()["items"]
    assert len(listed) == 2
    assert gateway.admin.get("/events", params={"policy": policy["id"], "shadow": False}).json()["items"] == []

    foretold = posted(gateway, f"/policies/{policy['id']}/simulate", {"requests": {"agent": agent}})
    assert foretold["actions"] == {"allow": {"block": 1}}
    assert (foretold["changed"], foretold["uncertain"], foretold["next_cursor"]) == (1, 0, None)
    assert foretold["policy"] == {"id": policy["id"], "name": policy["name"], "version": 1}
    (item,) = foretold["items"]
    assert item["request_id"] == first
    assert item["before"] == {"action": "allow", "decisions": []}

    patched = gateway.admin.patch(f"/policies/{policy['id']}", json={"mode": "enforce"}).json()
    assert (patched["mode"], patched["version"], patched["canary_percent"]) == ("enforce", 2, 100)
    second, reply = ask(gateway, agent, LEAVE)
    assert reply["grounding"]["action"] == "block"
    made = [d for d in gateway.trace(second).decisions if d["action"] == "block"]
    assert [(d["phase"], d["reason"], d["reason_code"]) for d in made] == [
        (d["phase"], d["reason"], d["reason_code"]) for d in item["after"]["decisions"]
    ]
    status = gateway.admin.get(f"/policies/{policy['id']}/status").json()
    assert (status["version"], status["in_force"]) == (2, True)
    assert [worker["version"] for worker in status["workers"]] == [2]


def test_unsaved_policy_is_simulated_on_logged_and_given_requests(gateway: Gateway) -> None:
    agent = gateway.agent(grounding={"min_citations": 0})
    for text in (LEAVE, FINE):
        ask(gateway, agent, text)
    gateway.rows(2, agent=agent)
    candidate = {"name": "stricter", "category": "grounding", "rules": BLOCK}
    logged = posted(gateway, "/policies/simulate", {"policy": candidate, "requests": {"agent": agent, "limit": 1}})
    assert (logged["requests"], logged["actions"]) == (1, {"allow": {"allow": 1}})
    rest = {"agent": agent, "limit": 1, "cursor": logged["next_cursor"]}
    older = posted(gateway, "/policies/simulate", {"policy": candidate, "requests": rest})
    assert (older["requests"], older["actions"]) == (1, {"warn": {"block": 1}})

    before = len(gateway.upstream.exchanges)
    given = [{"request": request(agent, stream=True), "reply": text} for text in (LEAVE, FINE)]
    found = posted(gateway, "/policies/simulate", {"policy": candidate, "given": given})
    assert found["policy"] == {"id": None, "name": "stricter", "version": 0}
    assert found["actions"] == {"allow": {"allow": 1}, "warn": {"block": 1}}
    assert found["items"][0]["after"]["decisions"][-1]["policy_id"] == "unsaved"
    assert len(gateway.upstream.exchanges) == before
    assert len(gateway.admin.get("/requests", params={"agent": agent}).json()["items"]) == 2
    stale = {**DOCUMENT, "age_days": 400}
    gate = {"name": "gate", "category": "retrieval"}
    blocked = posted(
        gateway, "/policies/simulate", {"policy": gate, "given": [{"request": request(agent, documents=[stale])}]}
    )
    assert blocked["actions"] == {"allow": {"block": 1}}


@pytest.mark.parametrize(
    ("path", "body", "status", "loc"),
    [
        ("/policies/simulate", {}, 422, ["policy"]),
        (
            "/policies/simulate",
            {"policy": {"name": "p", "category": "retrieval", "rules": {"min_chunk": 1}}},
            422,
            ["rules", "min_chunk"],
        ),
        (
            "/policies/simulate",
            {"policy": {"name": "p", "category": "retrieval"}, "requests": {"limit": 0}},
            422,
            ["requests", "limit"],
        ),
        (
            "/policies/simulate",
            {"policy": {"name": "p", "category": "retrieval"}, "requests": {"cursor": "x"}},
            422,
            ["query", "cursor"],
        ),
        (
            "/policies/simulate",
            {"policy": {"name": "p", "category": "retrieval"}, "given": [{"request": {"messages": "hi"}}]},
            422,
            ["given", "request", "messages"],
        ),
        ("/policies/simulate", {"policy": {"name": "p", "category": "retrieval"}, "replaces": "pol_0"}, 404, None),
        ("/policies/pol_0/simulate", {}, 404, None),
    ],
)
def test_invalid_fields_are_named(gateway: Gateway, path: str, body: Body, status: int, loc: list[str] | None) -> None:
    found = posted(gateway, path, body, status)
    if loc is not None:
        assert found["errors"][0]["loc"] == loc


@pytest.mark.parametrize(
    ("given", "status", "loc"),
    [
        ({"model": "\ud800"}, 422, ["given", "request", "model"]),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 422, ["given", "request", "messages[0].content"]),
        ({"\ud800": 1}, 422, None),
        ({"documents": [{"text": "x", "relevance_score": 10**400}]}, 422, None),
        ({"documents": [{"text": "x", "metadata": {"a": 10**400}}], "seed": 10**30}, 200, None),
    ],
)
def test_given_request_is_read_like_a_client_request(
    gateway: Gateway, given: Body, status: int, loc: list[str] | None
) -> None:
    """Values that JSON can represent but text and numbers can't are rejected by name, and an overlong number is
    rejected."""
    body = {"policy": {"name": "p", "category": "retrieval"}, "given": [{"request": request("a", **given)}]}
    found = posted(gateway, "/policies/simulate", body, status)
    if loc is not None:
        assert found["errors"][0]["loc"] == loc


def test_lone_surrogate_is_rejected_in_a_reply(gateway: Gateway) -> None:
    given = [{"request": request("a"), "reply": "\ud800"}]
    found = posted(
        gateway, "/policies/simulate", {"policy": {"name": "p", "category": "retrieval"}, "given": given}, 422
    )
    assert found["errors"][0]["loc"][-1] == "reply"


def test_unknown_objects_are_not_found(gateway: Gateway) -> None:
    assert gateway.admin.get("/policies/pol_0/status").status_code == 404


def test_caller_cannot_choose_whether_a_canary_is_enforced(gateway: Gateway) -> None:
    agent = "agent-canary"
    policy = gateway.policy("grounding", BLOCK, scope={"agents": [agent]}, canary_percent=90)
    canary = Policy(
        id=policy["id"],
        name=policy["name"],
        category="grounding",
        rules=parse_rules("grounding", BLOCK),
        scope=Scope(),
        canary_percent=90,
    )
    engine = PolicyEngine([canary])
    label = next(label for label in map(str, range(1_000)) if not engine.in_scope(unit=label).policies)
    actions = [
        ask(gateway, agent, LEAVE, grounding={"agent": agent, "run_id": label})[1]["grounding"]["action"]
        for _ in range(20)
    ]
    assert "block" in actions  # by the requests' own ids; all are allowed once in 10**20 runs


def test_requests_of_a_run_take_part_in_a_canary_together(gateway: Gateway) -> None:
    agent = "agent-canary-runs"
    gateway.policy("grounding", BLOCK, scope={"agents": [agent]}, canary_percent=50)
    for _ in range(4):
        with gateway.call({"agent": agent}, path="/v1/runs") as call:
            run_id = json.loads(call.read_all())["run_id"]
        grounding = {"agent": agent, "run_id": run_id}
        actions = {ask(gateway, agent, LEAVE, grounding=grounding)[1]["grounding"]["action"] for _ in range(5)}
        assert len(actions) == 1
