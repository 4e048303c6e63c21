"""Governed requests that belong to a run: its policies apply to them, and they count in the run's decision."""

from typing import Any

import pytest

from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.mock_upstream import json_reply
from tests.support.gateways.run_client import Body, Run, blocked

LEAVE = "Permanent staff receive 25 days of annual leave."
BOAT = "They also get a boat."
MESSAGES = [{"role": "user", "content": "How much leave?"}]
DOCUMENTS = [
    {"id": "hr-7", "text": LEAVE, "source": "hr.pdf", "relevance_score": 0.9, "age_days": 3},
    {"id": "it-1", "text": "Approval takes five days.", "source": "it.pdf", "relevance_score": 0.8, "age_days": 3},
]


def ask(gateway: Gateway, run: Run, text: str, *, stream: bool = False, headers: Any = None, **grounding: Any) -> Any:
    """Have the upstream answer ``text`` to a request of the run; return the client's reply."""
    gateway.upstream.script(answer(text, stream=stream))
    body = {
        "model": "gpt-4o-mini",
        "messages": MESSAGES,
        "documents": DOCUMENTS,
        "grounding": {**({} if headers else {"run_id": run.id}), **grounding},
        "stream": stream,
    }
    with gateway.call(body, headers=headers) as call:
        return call.reading() if stream else call.json()


@pytest.mark.parametrize("stream", [False, True])
def test_request_adds_its_documents_claims_and_citations(gateway: Gateway, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    rules = {"min_citations": 2, "max_unsupported_claims": 0}
    with Run(gateway, gateway.agent(retrieval={}, grounding=rules)) as run:
        ask(gateway, run, f"{LEAVE} [1] {BOAT}", stream=stream)
        view = run.view()
        run.grounded(citations=["Legal Review"])
        end = run.complete()
    assert view["recorded"] == {
        "documents": 2,
        "grounding_scores": 0,
        "citations": 0,
        "unsupported_claims": 0,
        "claims": 2,
        "requests": 1,
    }
    assert [document["source"] for document in view["documents"]] == ["hr.pdf", "it.pdf"]
    assert view["trust_score"] == 0.5
    retrieval, audit = end["decisions"]
    assert (retrieval["phase"], retrieval["metadata"]) == ("after_workflow", {"chunk_count": 2})
    assert audit["reason"] == "Unsupported claims (1) exceeds max (0)"
    assert audit["metadata"]["claims"] == [BOAT]
    assert audit["metadata"]["citation_count"] == 2


def test_withheld_text_is_no_part_of_the_run(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    with Run(gateway, gateway.agent(grounding={"unverifiable_action": "strip", "min_citations": 0})) as run:
        ask(gateway, run, f"{LEAVE} {BOAT}")
        view = run.view()
    assert (view["recorded"]["claims"], view["trust_score"]) == (1, 1.0)


def test_several_requests_are_evaluated_together_and_a_document_counts_once(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    rules = {"min_citations": 2, "max_unverifiable_ratio": 0.4, "unverifiable_action": "block"}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        for text in (f"{LEAVE} [1]", "Approval takes five days. [2]", f"{LEAVE} [1]"):
            ask(gateway, run, text)
        ask(gateway, run, "How can I help you?")
        end = run.complete()
    assert end["recorded"] | {"documents": 2, "claims": 3, "requests": 4} == end["recorded"]
    assert (end["action"], end["decisions"][0]["reason"]) == ("allow", "Grounding audit passed (2 citations)")


def test_contradiction_in_one_request_blocks_the_run(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    rules = {"min_citations": 0, "contradiction_action": "block", "stream_mode": "live"}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        ask(gateway, run, f"{LEAVE} {BOAT}", stream=True)
        end = run.complete()
    reason, code, metadata = blocked(end)
    assert reason == f"Claim contradicts source 'hr.pdf': \"{BOAT}\""
    assert (code, metadata["best_source"]["document_id"]) == ("GROUNDING_CONTRADICTION", "hr-7")


def test_contradictions_between_requests_are_also_reported_at_the_end(gateway: Gateway) -> None:
    other = "Permanent staff receive 40 days of annual leave."
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}
    with Run(gateway, gateway.agent(grounding={"factual_consistency_check": True, "min_citations": 0})) as run:
        for text in (LEAVE, other):
            ask(gateway, run, text)
        end = run.complete()
    audit = end["decisions"][-1]
    assert f'Claims contradict each other: "{LEAVE}" / "{other}"' in audit["reason"]
    assert "GROUNDING_INCONSISTENT" in {violation["reason_code"] for violation in audit["metadata"]["violations"]}


def test_valid_citations_of_a_request_are_valid_in_the_run(gateway: Gateway) -> None:
    rules = {"require_valid_citations": True, "min_citations": 2, "action_on_violation": "block"}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        first = ask(gateway, run, f"{LEAVE} [1][2]")
        second = ask(gateway, run, f"{LEAVE} [2] {LEAVE} [1]")
        end = run.complete()
    assert [reply["grounding"]["action"] for reply in (first, second)] == [end["action"]] * 2


def test_reported_findings_of_a_request_count_in_the_run(gateway: Gateway) -> None:
    reported = {"citations": ["Memo 4"], "unsupported_claims": ["It rains."], "output_confidence": 0.3}
    rules = {"max_unsupported_claims": 0, "abstention_threshold": 0.2, "min_citations": 2}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        ask(gateway, run, LEAVE, reported=reported)
        run.grounded(citations=["hr-7"])
        end = run.complete()
        view = run.view()
    assert end["decisions"][0]["metadata"]["claims"] == ["It rains."]
    assert (end["decisions"][0]["metadata"]["citation_count"], view["output_confidence"]) == (2, 0.3)


def test_run_can_be_named_by_header_and_gives_the_request_its_agent(gateway: Gateway) -> None:
    agent = gateway.agent(grounding={"min_citations": 0})
    with Run(gateway, agent) as run:
        reply = ask(gateway, run, LEAVE, headers={"X-Groundlane-Run-Id": run.id})
        view = run.view()
    assert view["requests"] == [reply["grounding"]["request_id"]]
    assert gateway.trace(reply["grounding"]["request_id"]).request["agent"] == agent
    assert [d["request_id"] for d in view["decisions"]][1:] == view["requests"] * 3


def test_request_blocked_by_its_documents_adds_itself_but_no_documents(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={"max_source_age_days": 1})) as run:
        error = ask(gateway, run, LEAVE)
        view = run.view()
    assert error["error"]["code"] == "RETRIEVAL_STALE_SOURCE"
    assert (view["recorded"]["requests"], view["recorded"]["documents"], view["action"]) == (1, 0, "block")


def test_failed_upstream_call_adds_nothing(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(grounding={})) as run:
        gateway.upstream.script(json_reply({"error": {"message": "no"}}, status=400))
        body = {"model": "m", "messages": MESSAGES, "documents": DOCUMENTS, "grounding": {"run_id": run.id}}
        with gateway.call(body) as call:
            assert call.status == 400
        eventually(lambda: run.view()["requests"] or None, "the request in its run")
        assert run.view()["recorded"]["documents"] == 0


def refused(gateway: Gateway, grounding: Body) -> tuple[int, str | None, str | None]:
    """Status, param and code of the error for a request; nothing must reach the upstream."""
    seen = len(gateway.upstream.exchanges)
    with gateway.call({"model": "m", "messages": MESSAGES, "grounding": grounding}) as call:
        status, error = call.status, call.json()["error"]
    assert len(gateway.upstream.exchanges) == seen
    return status, error["param"], error["code"]


def test_request_of_an_unknown_run_is_rejected(gateway: Gateway) -> None:
    assert refused(gateway, {"run_id": "run_" + "0" * 32}) == (404, "grounding.run_id", "run_not_found")


def test_request_of_a_complete_run_is_rejected(gateway: Gateway) -> None:
    with Run(gateway, None) as run:
        run.complete()
    assert refused(gateway, {"run_id": run.id}) == (409, "grounding.run_id", "run_completed")


def test_request_of_another_agent_is_rejected(gateway: Gateway) -> None:
    with Run(gateway, "one") as run:
        assert refused(gateway, {"run_id": run.id, "agent": "two"}) == (400, "grounding.agent", None)


def test_run_id_of_the_caller_is_only_logged(gateway: Gateway) -> None:
    gateway.upstream.script(answer("Hello.", stream=False))
    with gateway.call({"model": "m", "messages": MESSAGES, "grounding": {"run_id": "nightly-7"}}) as call:
        assert call.status == 200
        assert gateway.trace(call.request_id).request["run_id"] == "nightly-7"
