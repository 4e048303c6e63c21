"""Rules about whether the reply answers the question, at the wire."""

from typing import Any

import pytest

from tests.support.gateways.live_gateway import Gateway
from tests.system.policies.asking import LAMP, ask

both = pytest.mark.parametrize("stream", [False, True])
PRICE = "The Orion lamp costs 20 euros."
BRASS = "It is made of brass."
RULES: dict[str, Any] = {"min_citations": 0, "min_answer_relevance": 0.6}


@both
def test_reply_about_the_question_passes(gateway: Gateway, stream: bool) -> None:
    found = ask(gateway, gateway.agent(grounding=RULES), PRICE, stream=stream)
    assert (found.action, found.grounding["answer_relevance"]) == ("allow", 1.0)
    assert found.last["metadata"]["answer_relevance"] == 1.0


@both
@pytest.mark.parametrize("action", ["warn", "block"])
def test_true_statement_about_something_else_is_a_violation(gateway: Gateway, action: str, stream: bool) -> None:
    agent = gateway.agent(grounding={**RULES, "action_on_violation": action})
    found = ask(gateway, agent, BRASS, stream=stream)
    assert (found.action, found.last["reason_code"]) == (action, "GROUNDING_OFF_TOPIC")
    score = found.grounding["answer_relevance"]
    assert found.last["reason"] == f"Answer relevance ({score:.2f}) below minimum (0.6)"
    assert found.last["metadata"]["threshold"] == 0.6
    assert (BRASS in found.text) is (action == "warn")
    assert found.grounding.get("final_because", []) == (["min_answer_relevance"] if action == "block" else [])
    row = gateway.trace(found.grounding["request_id"]).decisions[-1]
    assert row["metadata"]["answer_relevance"] == pytest.approx(score, abs=1e-4)


@both
def test_threshold_zero_only_reports(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding={**RULES, "min_answer_relevance": 0.0, "action_on_violation": "block"})
    found = ask(gateway, agent, BRASS, stream=stream)
    assert found.action == "allow"
    assert found.grounding["answer_relevance"] < 0.6


def test_refusal_is_not_scored(gateway: Gateway) -> None:
    found = ask(gateway, gateway.agent(grounding=RULES), "The documents don't say.", stream=False)
    assert found.action == "allow"
    assert "answer_relevance" not in found.grounding


def test_nothing_is_measured_unless_a_policy_requires_it(gateway: Gateway) -> None:
    found = ask(gateway, gateway.agent(grounding={"min_citations": 0}), BRASS, stream=False)
    assert not {"answer_relevance", "completeness"} & set(found.grounding)


@both
def test_completeness(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding={"min_citations": 0, "report_completeness": True})
    question = "What does the Orion lamp cost, and is it made of brass? Who designed it in Lyon?"
    found = ask(gateway, agent, PRICE, stream=stream, question=question, documents=[LAMP])
    assert found.action == "allow"
    told = found.grounding["completeness"]
    assert told == {"parts": 2, "answered": 1, "unanswered": ["is it made of brass?"]}
    assert found.last["metadata"]["completeness"] == told


def test_simulation_uses_logged_scores_and_doubts_missing_ones(gateway: Gateway) -> None:
    measured = gateway.agent(grounding={**RULES, "min_answer_relevance": 0.0})
    unmeasured = gateway.agent(grounding={"min_citations": 0})
    for agent, uncertain, actions in ((measured, 0, {"allow": {"block": 1}}), (unmeasured, 1, {"allow": {"allow": 1}})):
        ask(gateway, agent, BRASS, stream=False)
        gateway.rows(1, agent=agent)
        document = {
            "name": f"tried on {agent}",
            "category": "grounding",
            "rules": {**RULES, "action_on_violation": "block"},
            "scope": {"agents": [agent]},
        }
        simulated = gateway.admin.post("/policies/simulate", json={"policy": document, "requests": {"agent": agent}})
        assert simulated.status_code == 200, simulated.text
        assert (simulated.json()["uncertain"], simulated.json()["actions"]) == (uncertain, actions)
