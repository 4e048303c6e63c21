"""Governed requests that belong to a run: ruled by its policies, and part of what it is judged by."""

from typing import Any

import pytest

from judges.types import Label
from tests.support.live_gateway import Gateway, eventually
from tests.support.mock_upstream import json_reply
from tests.support.run_client import Body, Run, blocked
from tests.support.scripted_answers import answer

LEAVE = "Permanent staff receive 25 days of annual leave."
BOAT = "They also get a boat."
MESSAGES = [{"role": "user", "content": "How much leave?"}]
DOCUMENTS = [
    {"id": "hr-7", "text": LEAVE, "source": "hr.pdf", "relevance_score": 0.9, "age_days": 3},
    {"id": "it-1", "text": "Approval takes five days.", "source": "it.pdf", "relevance_score": 0.8, "age_days": 3},
]


def ask(gateway: Gateway, run: Run, text: str, *, stream: bool = False, headers: Any = None, **grounding: Any) -> Any:
    """Have the upstream say ``text`` in answer to a request of the run; return what the client gets."""
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
def test_a_request_adds_its_documents_claims_and_citations(gateway: Gateway, stream: bool) -> None:
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


def test_what_was_withheld_from_the_client_is_no_part_of_the_run(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    with Run(gateway, gateway.agent(grounding={"unverifiable_action": "strip", "min_citations": 0})) as run:
        ask(gateway, run, f"{LEAVE} {BOAT}")
        view = run.view()
    assert (view["recorded"]["claims"], view["trust_score"]) == (1, 1.0)


def test_several_requests_are_judged_together_and_a_document_counts_once(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    rules = {"min_citations": 2, "max_unverifiable_ratio": 0.4, "unverifiable_action": "block"}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        for text in (f"{LEAVE} [1]", "Approval takes five days. [2]", f"{LEAVE} [1]"):
            ask(gateway, run, text)
        ask(gateway, run, "How can I help you?")
        end = run.complete()
    assert end["recorded"] | {"documents": 2, "claims": 3, "requests": 4} == end["recorded"]
    assert (end["action"], end["decisions"][0]["reason"]) == ("allow", "Grounding audit passed (2 citations)")


def test_a_contradiction_in_one_request_blocks_the_run(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    rules = {"min_citations": 0, "contradiction_action": "block", "stream_mode": "live"}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        ask(gateway, run, f"{LEAVE} {BOAT}", stream=True)
        end = run.complete()
    reason, code, metadata = blocked(end)
    assert reason == f"Claim contradicts source 'hr.pdf': \"{BOAT}\""
    assert (code, metadata["best_source"]["document_id"]) == ("GROUNDING_CONTRADICTION", "hr-7")


def test_claims_of_two_requests_that_contradict_each_other_are_told_at_the_end_too(gateway: Gateway) -> None:
    other = "Permanent staff receive 40 days of annual leave."
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}
    with Run(gateway, gateway.agent(grounding={"factual_consistency_check": True, "min_citations": 0})) as run:
        for text in (LEAVE, other):
            ask(gateway, run, text)
        end = run.complete()
    audit = end["decisions"][-1]
    assert f'Claims contradict each other: "{LEAVE}" / "{other}"' in audit["reason"]
    assert "GROUNDING_INCONSISTENT" in {violation["reason_code"] for violation in audit["metadata"]["violations"]}


def test_citations_that_hold_in_their_request_hold_in_the_run(gateway: Gateway) -> None:
    rules = {"require_valid_citations": True, "min_citations": 2, "action_on_violation": "block"}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        first = ask(gateway, run, f"{LEAVE} [1][2]")
        second = ask(gateway, run, f"{LEAVE} [2] {LEAVE} [1]")
        end = run.complete()
    assert [reply["grounding"]["action"] for reply in (first, second)] == [end["action"]] * 2


def test_what_the_caller_reports_with_a_request_counts_in_the_run(gateway: Gateway) -> None:
    reported = {"citations": ["Memo 4"], "unsupported_claims": ["It rains."], "output_confidence": 0.3}
    rules = {"max_unsupported_claims": 0, "abstention_threshold": 0.2, "min_citations": 2}
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        ask(gateway, run, LEAVE, reported=reported)
        run.grounded(citations=["hr-7"])
        end = run.complete()
        view = run.view()
    assert end["decisions"][0]["metadata"]["claims"] == ["It rains."]
    assert (end["decisions"][0]["metadata"]["citation_count"], view["output_confidence"]) == (2, 0.3)


def test_the_run_may_be_named_by_header_and_gives_the_request_its_agent(gateway: Gateway) -> None:
    agent = gateway.agent(grounding={"min_citations": 0})
    with Run(gateway, agent) as run:
        reply = ask(gateway, run, LEAVE, headers={"X-Groundlane-Run-Id": run.id})
        view = run.view()
    assert view["requests"] == [reply["grounding"]["request_id"]]
    assert gateway.trace(reply["grounding"]["request_id"]).request["agent"] == agent
    assert [d["request_id"] for d in view["decisions"]][1:] == view["requests"] * 3


def test_a_request_blocked_by_its_documents_is_in_the_run_and_its_documents_are_not(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(retrieval={"max_source_age_days": 1})) as run:
        error = ask(gateway, run, LEAVE)
        view = run.view()
    assert error["error"]["code"] == "RETRIEVAL_STALE_SOURCE"
    assert (view["recorded"]["requests"], view["recorded"]["documents"], view["action"]) == (1, 0, "block")


def test_an_upstream_that_fails_adds_nothing(gateway: Gateway) -> None:
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


def test_a_request_of_a_run_that_is_not_there_is_refused(gateway: Gateway) -> None:
    assert refused(gateway, {"run_id": "run_" + "0" * 32}) == (404, "grounding.run_id", "run_not_found")


def test_a_request_of_a_complete_run_is_refused(gateway: Gateway) -> None:
    with Run(gateway, None) as run:
        run.complete()
    assert refused(gateway, {"run_id": run.id}) == (409, "grounding.run_id", "run_completed")


def test_a_request_of_another_agent_is_refused(gateway: Gateway) -> None:
    with Run(gateway, "one") as run:
        assert refused(gateway, {"run_id": run.id, "agent": "two"}) == (400, "grounding.agent", None)


def test_a_name_of_the_callers_own_is_only_logged(gateway: Gateway) -> None:
    gateway.upstream.script(answer("Hello.", stream=False))
    with gateway.call({"model": "m", "messages": MESSAGES, "grounding": {"run_id": "nightly-7"}}) as call:
        assert call.status == 200
        assert gateway.trace(call.request_id).request["run_id"] == "nightly-7"
