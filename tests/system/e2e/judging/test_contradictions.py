"""What a client and the event log see of contradictory statements, and of invalid citations."""

from typing import Any

import pytest

from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.run_client import Run

LEAVE = "Permanent staff receive 25 days of annual leave."
MORE = "Permanent staff receive 40 days of annual leave."
PARKING = "Bicycles may be parked behind the canteen."
OPEN = {"min_citations": 0, "min_grounding_score": 0.0, "max_unverifiable_ratio": 1.0}


def document(id: str, text: str) -> dict[str, Any]:
    return {"id": id, "text": text, "source": f"{id}.pdf", "relevance_score": 0.9, "age_days": 1}


def ask(
    gateway: Gateway,
    agent: str,
    reply: str,
    documents: list[dict[str, Any]],
    *,
    stream: bool,
    run_id: str | None = None,
) -> dict[str, Any]:
    """The event log's decisions by reason code, with the client's ``grounding`` under ``client``."""
    gateway.upstream.script(answer(reply, stream=stream))
    body = {
        "model": "test-model-1",
        "messages": [{"role": "user", "content": "How much leave is there?"}],
        "stream": stream,
        "documents": documents,
        "grounding": {"agent": agent, "run_id": run_id},
    }
    with gateway.call(body) as call:
        grounding = call.reading().grounding if stream else call.json()["grounding"]
    decisions = gateway.trace(call.request_id).decisions
    return {**{decision["reason_code"]: decision for decision in decisions}, "client": grounding}


@pytest.mark.parametrize("stream", [True, False])
def test_contradicting_claims_of_a_reply_are_reported(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding={**OPEN, "factual_consistency_check": True})
    found = ask(gateway, agent, f"{LEAVE} {PARKING} {MORE}", [document("parking", PARKING)], stream=stream)
    decision = found["GROUNDING_INCONSISTENT"]
    assert decision["reason"] == f'Claims contradict each other: "{LEAVE}" / "{MORE}"'
    assert [claim["claim"] for claim in decision["metadata"]["claims"]] == [LEAVE, MORE]
    assert decision["phase"] == "after_workflow"
    assert found["client"]["action"] == "warn"


@pytest.mark.parametrize("stream", [True, False])
def test_replies_of_a_run_are_compared_without_documents(gateway: Gateway, stream: bool) -> None:
    with Run(gateway, gateway.agent(grounding={**OPEN, "factual_consistency_check": True})) as run:
        first = ask(gateway, run.agent, f"Hello! {LEAVE}", [], stream=stream, run_id=run.id)
        assert first["client"]["action"] == "allow"
        eventually(lambda: run.view()["requests"] or None, "request of the run")
        second = ask(gateway, run.agent, MORE, [], stream=stream, run_id=run.id)
        assert second["client"]["action"] == "warn"
        decision = second["GROUNDING_INCONSISTENT"]
        assert decision["reason"] == f'Claims contradict each other: "{LEAVE}" / "{MORE}"'
        assert [claim["earlier"] for claim in decision["metadata"]["claims"]] == [True, False]
        eventually(lambda: len(run.view()["requests"]) == 2 or None, "second request of the run")
        view = run.view()
        assert (view["recorded"]["claims"], view["trust_score"]) == (0, None)
        (end,) = run.complete()["decisions"]
    assert (end["action"], end["reason_code"]) == ("warn", "GROUNDING_INCONSISTENT")


def test_claim_contradicting_an_earlier_reply_of_the_run_is_reported(gateway: Gateway) -> None:
    agent = gateway.agent(grounding={**OPEN, "factual_consistency_check": True})
    with gateway.call({"agent": agent}, path="/v1/runs") as call:
        run_id = call.json()["run_id"]
    documents = [document("parking", PARKING)]
    first = ask(gateway, agent, f"{LEAVE} {PARKING}", documents, stream=False, run_id=run_id)
    assert "GROUNDING_INCONSISTENT" not in first
    second = ask(gateway, agent, MORE, documents, stream=True, run_id=run_id)
    decision = second["GROUNDING_INCONSISTENT"]
    assert decision["reason"] == f'Claims contradict each other: "{LEAVE}" / "{MORE}"'
    assert [claim["earlier"] for claim in decision["metadata"]["claims"]] == [True, False]


def test_contradicting_documents_are_reported(start_gateway: Any) -> None:
    gateway: Gateway = start_gateway(conflicts_timeout_ms=60_000)
    agent = gateway.agent(retrieval={"check_conflicts": True})
    documents = [document("leave-2021", LEAVE), document("parking", PARKING), document("leave-2026", MORE)]
    found = ask(gateway, agent, PARKING, documents, stream=False)
    reason = f"Documents 'leave-2021.pdf' and 'leave-2026.pdf' contradict each other: \"{LEAVE}\" / \"{MORE}\""
    decision = found["RETRIEVAL_CONFLICT"]
    assert (decision["action"], decision["phase"], decision["reason"]) == ("warn", "before_workflow", reason)
    assert [one["document_id"] for one in decision["metadata"]["documents"]] == ["leave-2021", "leave-2026"]
    assert found["client"]["retrieval"]["warnings"] == [reason]


def test_fabricated_and_misattributed_citations_are_reported(gateway: Gateway) -> None:
    """The judge finds the sentence about parking in no document; the bracketed list isn't a citation."""
    gateway.judge.labels = {"canteen": Label.UNVERIFIABLE}
    agent = gateway.agent(grounding={**OPEN, "require_valid_citations": True})
    reply = f"{LEAVE} [1] {PARKING} [1]\n\nMore in [9], and in years such as [2019]. [sic]"
    found = ask(gateway, agent, reply, [document("hr", LEAVE)], stream=False)
    violations = found["GROUNDING_BAD_CITATION"]["metadata"]["violations"]
    violations = [one for one in violations if one["reason_code"] == "GROUNDING_BAD_CITATION"]
    told = [(one["metadata"]["kind"], one["metadata"]["marker"], one["reason"]) for one in violations]
    assert told == [
        ("misattributed", "[1]", "Citation [1] does not support its sentence"),
        ("fabricated", "[9]", "Citation [9] names no document (1 given)"),
    ]
    assert [claim["citations"] for claim in found["client"]["claims"]][:2] == [["hr"], ["hr"]]
