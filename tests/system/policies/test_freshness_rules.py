"""Freshness rules at the wire, and that nothing else in the product knows the category."""

import re
from pathlib import Path
from typing import Any

import pytest

from judges.types import Label
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.run_client import Run
from tests.system.policies.asking import LAMP, ask

both = pytest.mark.parametrize("stream", [False, True])
PRICE = "The Orion lamp costs 20 euros."
DELIVERY = "It is delivered within three days."
OLD = {**LAMP, "id": "old", "source": "2021.pdf", "age_days": 400}
STALE = "Supporting source age (400 days) exceeds max (90 days)"
BLOCK: dict[str, Any] = {"action_on_stale_support": "block", "abstention_response": "Our price list is out of date."}
ROOT = Path(__file__).parents[3]


@both
def test_old_support_is_flagged(gateway: Gateway, stream: bool) -> None:
    found = ask(gateway, gateway.agent(freshness={}), f"{PRICE} {DELIVERY}", stream=stream, documents=[OLD])
    assert (found.action, found.text, found.finish) == ("warn", f"{PRICE} {DELIVERY}", "stop")
    (decision,) = found.grounding["decisions"]
    assert (decision["category"], decision["phase"], decision["action"]) == ("freshness", "mid_execution", "warn")
    assert (decision["reason"], decision["reason_code"]) == (f"{STALE}; {STALE}", "FRESHNESS_STALE_SUPPORT")
    assert [each["metadata"]["claim"] for each in decision["metadata"]["violations"]] == [PRICE, DELIVERY]


@both
def test_recent_support_passes(gateway: Gateway, stream: bool) -> None:
    found = ask(gateway, gateway.agent(freshness=BLOCK), PRICE, stream=stream, documents=[OLD, LAMP])
    assert (found.action, found.text, found.reasons) == ("allow", PRICE, ["Age of support within policy (1 claims)"])


@both
def test_old_support_is_blocked_before_it_is_sent(gateway: Gateway, stream: bool) -> None:
    found = ask(gateway, gateway.agent(freshness=BLOCK), f"Hello! {PRICE}", stream=stream, documents=[OLD])
    assert (found.action, found.finish, found.codes) == ("block", "content_filter", ["FRESHNESS_STALE_SUPPORT"])
    assert found.text.endswith(BLOCK["abstention_response"])
    assert PRICE not in found.text
    assert found.last["metadata"]["claim"] == "…"


@both
def test_block_can_be_an_error(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(freshness={**BLOCK, "on_block": "error"})
    found = ask(gateway, agent, PRICE, stream=stream, documents=[OLD])
    assert found.error["code"] == "FRESHNESS_STALE_SUPPORT"
    assert found.error["message"] == STALE


@both
def test_freshness_works_with_the_other_categories(gateway: Gateway, stream: bool) -> None:
    gateway.judge.labels = {"1962": Label.CONTRADICTED}
    agent = gateway.agent(
        retrieval={"action_on_stale_source": "warn"}, freshness={}, grounding={"contradiction_action": "block"}
    )
    found = ask(gateway, agent, f"{PRICE} It was designed in 1962.", stream=stream, documents=[OLD])
    assert (found.action, found.finish) == ("block", "content_filter")
    assert {(each["category"], each["action"]) for each in found.grounding["decisions"]} == {
        ("retrieval", "warn"),
        ("grounding", "allow"),
        ("grounding", "block"),
        ("freshness", "warn"),
    }


def test_documents_without_an_age(gateway: Gateway) -> None:
    undated = {name: value for name, value in LAMP.items() if name != "age_days"}
    agent = gateway.agent(freshness={"on_missing_metadata": "block"})
    assert ask(gateway, agent, PRICE, stream=False, documents=[undated]).codes == ["FRESHNESS_MISSING_AGE"]
    assert ask(gateway, agent, PRICE, stream=False, documents=None).action == "allow"


def test_run(gateway: Gateway) -> None:
    """The claims of the run's requests are checked again when it is complete."""
    agent = gateway.agent(freshness={})
    with Run(gateway, agent) as run:
        ask(gateway, agent, PRICE, stream=False, documents=[OLD], grounding={"run_id": run.id})
        completed = run.complete()
    assert [each["reason_code"] for each in completed["decisions"]] == ["FRESHNESS_STALE_SUPPORT"]


# Around the request


def test_validation_schema_and_warnings(gateway: Gateway) -> None:
    schema = gateway.admin.get("/policies/schema").json()["freshness"]
    assert schema["properties"]["max_support_age_days"]["default"] == 90
    document = {"name": "n", "category": "freshness", "rules": {"max_support_age_day": 3}}
    response = gateway.admin.post("/policies", json=document)
    assert response.status_code == 422
    assert "did you mean 'max_support_age_days'" in response.json()["detail"]
    assert gateway.policy("freshness", BLOCK, scope={"agents": ["nobody"]})["warnings"] == []


def test_events_shadow_and_simulation(gateway: Gateway) -> None:
    agent = f"agent-of-{gateway.policy('freshness', {}, mode='shadow', scope={'agents': ['nobody']})['id']}"
    shadow = gateway.policy("freshness", BLOCK, mode="shadow", scope={"agents": [agent]})
    found = ask(gateway, agent, PRICE, stream=False, documents=[OLD])
    assert (found.action, found.grounding["decisions"]) == ("allow", [])
    (row,) = gateway.trace(found.grounding["request_id"]).decisions
    assert (row["policy_id"], row["shadow"], row["action"], row["reason"]) == (shadow["id"], True, "block", STALE)
    simulated = gateway.admin.post(
        "/policies/simulate",
        json={
            "policy": {"name": "tried", "category": "freshness", "rules": BLOCK, "scope": {"agents": [agent]}},
            "requests": {"agent": agent},
        },
    )
    assert simulated.status_code == 200, simulated.text
    assert simulated.json()["actions"] == {"allow": {"block": 1}}
    assert simulated.json()["uncertain"] == 0


def test_check_of_a_text(gateway: Gateway) -> None:
    policy = gateway.policy("freshness", BLOCK, scope={"agents": ["nobody"]})
    with gateway.call({"text": PRICE, "documents": [OLD], "policy": policy["id"]}, path="/v1/grounding/check") as call:
        checked = call.json()
    assert (checked["action"], checked["grounded"]) == ("block", False)


def test_no_other_code_names_the_category() -> None:
    """The registry lists it in one line; a category that needs an edit elsewhere would show that it isn't open."""
    sources = [path for folder in ("app", "policies", "judges", "sdk/src") for path in (ROOT / folder).rglob("*")]
    naming = [
        path.relative_to(ROOT).as_posix()
        for path in sources
        if path.suffix in (".py", ".html", ".js", ".toml")
        and re.search(r"[\"']freshness[\"']|freshness import", path.read_text("utf-8"))
    ]
    assert sorted(naming) == ["policies/freshness.py", "policies/registry.py"]
