"""What users of the official OpenAI SDK see, synchronous and asynchronous, streamed and not."""

import json
import time
from collections.abc import Callable

import pytest
from openai import BadRequestError

from judges.types import Label
from tests.support.apis.scripted_answers import USAGE, answer, chunk, event, streamed, whole
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply
from tests.system.e2e.sdks.openai_calls import (
    CLOSED,
    DOCUMENTS,
    LIE,
    PLANS,
    SUPPORT,
    Ask,
    ask_sync,
    citation,
    known,
    left,
    raw_body,
    request_of,
)

# The five scenarios


def test_supported_answer_is_unchanged_with_its_verdict(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS + SUPPORT, stream=stream, usage=True))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    seen = ask(agent, DOCUMENTS, fields={"stream_options": {"include_usage": True}} if stream else {})
    assert seen.text == PLANS + SUPPORT
    assert (seen.finish, seen.usage) == ("stop", USAGE)
    assert seen.grounding is not None
    assert seen.grounding["verdict"] == "supported"
    assert seen.grounding["action"] == "allow"
    assert (seen.grounding["trust_score"], seen.grounding["is_trusted"]) == (1.0, True)
    assert (seen.grounding["total_claims"], seen.grounding["supported_count"]) == (2, 2)
    assert seen.grounding["summary"] == "2/2 claims supported"
    assert [kept["id"] for kept in seen.grounding["retrieval"]["kept"]] == ["plans", "support"]
    assert seen.grounding["request_id"] == seen.request_id

    trace = gateway.trace(seen.request_id)
    left(
        trace,
        status="completed",
        action="allow",
        verdict="supported",
        trust_score=1.0,
        documents=2,
        sentences=2,
        stream=stream,
        agent=agent,
        model="test-model-1",
        prompt_tokens=50,
        completion_tokens=20,
        finish_reason="stop",
        error=None,
    )
    assert trace.phases("retrieval") == ["before_workflow"]
    assert trace.phases("grounding") == ["before_workflow", "mid_execution", "after_workflow"]
    assert [claim["label"] for claim in trace.claims] == ["supported", "supported"]
    assert trace.claims[0]["start"] == 0
    assert [document["document_id"] for document in trace.documents] == ["plans", "support"]


def test_annotations_point_at_the_sentence_and_name_the_url(gateway: Gateway, ask: Ask, stream: bool) -> None:
    """A document with a URL creates a url_citation, any other document no annotation; offsets are in code points."""
    first = "Größe 🚆 ist [1] gut. "
    second = "Antwort kommt [2] bald."
    gateway.upstream.script(answer(first + second, stream=stream))
    agent = gateway.agent(grounding=CLOSED)
    seen = ask(agent, DOCUMENTS)
    assert seen.text == first + second
    assert {annotation["type"] for annotation in seen.annotations} == {"url_citation"}
    of_urls = [citation(annotation) for annotation in seen.annotations]
    assert {entry["url"] for entry in of_urls} == {"https://docs.test/plans"}
    assert {entry["title"] for entry in of_urls} == {"Plans"}
    assert first.strip() in {seen.text[entry["start_index"] : entry["end_index"]] for entry in of_urls}
    assert seen.grounding is not None
    assert [claim["citations"] for claim in seen.grounding["claims"]] == [["plans"], ["support"]]


def test_contradicted_sentence_never_reaches_the_client(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=stream, usage=True))
    agent = gateway.agent(retrieval={}, grounding={**CLOSED, "abstention_response": "Please ask our staff."})
    seen = ask(agent, DOCUMENTS, fields={"stream_options": {"include_usage": True}} if stream else {})
    assert "boat" not in seen.text
    assert "includes" not in seen.text
    assert seen.text.endswith("Please ask our staff.")
    assert seen.finish == "content_filter"
    assert seen.usage is not None
    assert seen.usage["total_tokens"] > 0
    assert seen.grounding is not None
    assert (seen.grounding["action"], seen.grounding["verdict"]) == ("block", "has_contradictions")
    assert "boat" not in json.dumps(seen.grounding["claims"])

    trace = gateway.trace(seen.request_id)
    left(trace, status="blocked", action="block", verdict="has_contradictions", finish_reason="content_filter")
    assert trace.phases("retrieval") == ["before_workflow"]
    phases = trace.phases("grounding")
    assert phases[:2] == ["before_workflow", "mid_execution"]
    blocking = [decision for decision in trace.decisions if decision["action"] == "block"]
    assert blocking[0]["reason_code"] == "GROUNDING_CONTRADICTION"
    assert (trace.claims[-1]["label"], trace.claims[-1]["delivered"]) == ("contradicted", False)


def test_mid_stream_block_ends_the_upstream_call_and_the_phases(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    chunks = streamed(PLANS + LIE + " " + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(chunks) - 5)
        reading = call.reading()
    assert exchange.peer_closed.wait(5)
    assert reading.finishes() == ["content_filter"]
    assert gateway.trace(call.request_id).phases("grounding") == ["before_workflow", "mid_execution"]


def test_blocked_stream_has_usage_without_an_upstream_report(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(Reply(chunks=streamed(LIE + " " + SUPPORT, usage=True)[:-4], gated=False))
    agent = gateway.agent(grounding=CLOSED)
    body = {**raw_body(agent), "stream": True, "stream_options": {"include_usage": True}}
    with gateway.call(body) as call:
        reading = call.reading()
    (usage,) = reading.usages
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 0
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]


def test_stale_document_blocks_before_the_call(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    documents = [DOCUMENTS[0], {**DOCUMENTS[1], "age_days": 400}]
    with pytest.raises(BadRequestError) as caught:
        ask(agent, documents)
    error = caught.value
    assert (error.status_code, error.code, error.type) == (400, "RETRIEVAL_STALE_SOURCE", "retrieval_policy_violation")
    assert error.param == "documents[1]"
    body = error.body
    assert isinstance(body, dict)
    assert body["message"] == "Source age (400 days) exceeds max (90 days)"
    assert [violation["action"] for violation in body["violations"]] == ["block"]
    assert gateway.upstream.exchanges == []

    trace = gateway.trace(error.response.headers["x-groundlane-request-id"])
    left(trace, status="blocked", http_status=400, action="block", documents=2)
    assert trace.phases("retrieval") == ["before_workflow"]
    assert trace.claims == []


@pytest.mark.parametrize("where", ["system", "user"])
def test_dropped_document_is_not_in_the_prompt(gateway: Gateway, ask: Ask, stream: bool, where: str) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={"action_on_stale_source": "drop"}, grounding=CLOSED)
    documents = [DOCUMENTS[0], {**DOCUMENTS[1], "age_days": 400}]
    seen = ask(agent, documents, inject=where)
    prompt = gateway.upstream.wait_exchange().body.decode()
    assert DOCUMENTS[0]["text"] in prompt
    assert DOCUMENTS[1]["text"] not in prompt
    assert "[1]" in prompt
    assert set(gateway.upstream.wait_exchange().json) == {"model", "messages"} | ({"stream"} if stream else set())
    assert seen.text == PLANS
    assert seen.grounding is not None
    assert [kept["id"] for kept in seen.grounding["retrieval"]["kept"]] == ["plans"]
    assert [dropped["id"] for dropped in seen.grounding["retrieval"]["dropped"]] == ["support"]
    trace = gateway.trace(seen.request_id)
    assert [(document["document_id"], document["kept"]) for document in trace.documents] == [
        ("plans", True),
        ("support", False),
    ]
    assert [decision["action"] for decision in trace.decisions if decision["category"] == "retrieval"] == ["drop"]


def test_drop_becomes_block_if_the_caller_wrote_the_prompt(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={"action_on_stale_source": "drop"})
    with pytest.raises(BadRequestError) as caught:
        ask(agent, [{**DOCUMENTS[0], "age_days": 400}])
    assert caught.value.code == "RETRIEVAL_STALE_SOURCE"
    assert gateway.upstream.exchanges == []


def test_bytes_are_unchanged_without_documents(gateway: Gateway, stream: bool) -> None:
    reply = answer(PLANS + SUPPORT, stream=stream, usage=True)
    gateway.upstream.script(reply)
    body = {key: value for key, value in raw_body(None).items() if key not in {"documents", "grounding"}}
    with gateway.call({**body, "stream": stream}) as call:
        assert call.read_all() == b"".join(reply.chunks)
    trace = gateway.trace(call.request_id)
    left(trace, status="completed", documents=0, verdict="no_sources", prompt_tokens=50, completion_tokens=20)
    assert (trace.decisions, trace.claims, trace.documents) == ([], [], [])


# Without a policy


def test_documents_without_a_policy_are_annotated_and_never_blocked(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=stream))
    seen = ask(None, DOCUMENTS)
    assert seen.text == PLANS + LIE
    assert seen.finish == "stop"
    assert seen.annotations
    assert seen.grounding is not None
    assert seen.grounding["verdict"] == "has_contradictions"
    assert gateway.trace(seen.request_id).decisions == []


def test_default_annotation_can_be_turned_off(start_gateway: Callable[..., Gateway], stream: bool) -> None:
    gateway = start_gateway(annotate_by_default=False)
    reply = answer(PLANS, stream=stream)
    gateway.upstream.script(reply)
    with gateway.call({**raw_body(None), "stream": stream}) as call:
        assert call.read_all() == b"".join(reply.chunks)
    assert gateway.judge.claims == []


def test_policy_without_documents_reports_no_sources(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    seen = ask(agent)
    assert seen.text == PLANS
    assert seen.grounding is not None
    assert seen.grounding["verdict"] == "no_sources"
    assert gateway.judge.claims == []
    trace = gateway.trace(seen.request_id)
    assert trace.phases("retrieval") == []
    left(trace, status="completed", verdict="no_sources")


def test_required_documents_are_enforced(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={"require_documents": True, "action_on_chunk_violation": "block"})
    with pytest.raises(BadRequestError) as caught:
        ask(agent)
    assert caught.value.type == "retrieval_policy_violation"
    assert gateway.upstream.exchanges == []


# Headers, policies in force, many pieces


def test_whole_reply_has_verdict_headers(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    gateway.upstream.script(answer(PLANS + LIE, stream=False))
    agent = gateway.agent(grounding={"min_citations": 0})
    with gateway.call({**raw_body(agent), "stream": False}) as call:
        body = call.json()
    assert call.header("x-groundlane-request-id") == body["grounding"]["request_id"]
    assert call.header("x-groundlane-action") == body["grounding"]["action"]
    assert call.header("x-groundlane-verdict") == "has_unverifiable"
    assert float(call.header("x-groundlane-trust-score") or -1) == 0.5


def test_agent_can_be_sent_as_a_header(gateway: Gateway) -> None:
    gateway.upstream.script(answer(PLANS, stream=False))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call(raw_body(None), headers={"x-groundlane-agent": agent}) as call:
        assert call.json()["grounding"]["decisions"]
    assert gateway.trace(call.request_id).request["agent"] == agent
    assert gateway.upstream.wait_exchange().header("x-groundlane-agent") is None


def test_other_upstream_fields_are_kept(gateway: Gateway) -> None:
    gateway.upstream.script(answer(PLANS, stream=False))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call(raw_body(agent)) as call:
        body = call.json()
    grounding = body.pop("grounding")
    annotations = body["choices"][0]["message"].pop("annotations")
    assert (grounding["verdict"], bool(annotations)) == ("supported", True)
    assert body == known(whole(PLANS))


def test_policy_change_takes_effect_within_a_second(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(policy_poll_s=0.5)
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=False))
    policy = gateway.policy("grounding", {"min_citations": 0}, scope={"agents": ["a"]})

    def finish() -> str:
        with gateway.call(raw_body("a")) as call:
            return str(call.json()["choices"][0]["finish_reason"])

    assert finish() == "stop"
    etag = gateway.admin.get(f"/policies/{policy['id']}").headers["etag"]
    changed = gateway.admin.patch(
        f"/policies/{policy['id']}",
        json={"rules": {**policy["rules"], "contradiction_action": "block"}},
        headers={"if-match": etag},
    )
    assert changed.status_code == 200, changed.text
    began = time.monotonic()
    while finish() != "content_filter":
        assert time.monotonic() - began < 1.0
    version = changed.json()["version"]
    assert version == policy["version"] + 1
    gateway.admin.delete(f"/policies/{policy['id']}", headers={"if-match": changed.headers["etag"]}).raise_for_status()
    began = time.monotonic()
    while finish() != "stop":
        assert time.monotonic() - began < 1.0


def test_reported_scores_are_checked(gateway: Gateway) -> None:
    gateway.upstream.script(answer(PLANS, stream=False))
    rules = {"min_citations": 0, "score_source": "reported", "action_on_violation": "block"}
    agent = gateway.agent(grounding=rules)
    with gateway.call(raw_body(agent, reported={"grounding_scores": [0.9, 0.42]})) as call:
        body = call.json()
    assert body["choices"][0]["finish_reason"] == "content_filter"
    reasons = [decision["reason"] for decision in body["grounding"]["decisions"]]
    assert "Grounding score (0.42) below threshold (0.7)" in reasons


def test_unknown_event_is_left_out_under_a_policy(gateway: Gateway) -> None:
    odd = event({"id": "x", "object": "vendor.note", "choices": [], "note": "hello"})
    chunks = [chunk(0, {"role": "assistant"}), odd, *streamed(PLANS)[1:]]
    gateway.upstream.script(Reply(chunks=chunks))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        reading = call.reading()
    assert b"hello" not in reading.raw
    assert all(each["choices"] or each.get("usage") for each in reading.chunks)
    assert reading.text() == PLANS


# The real judge


@pytest.mark.slow
def test_embedded_judge_distinguishes_true_from_false(start_gateway: Callable[..., Gateway], stream: bool) -> None:
    gateway = start_gateway(real_judge=True, judge_timeout_ms=60_000)
    agent = gateway.agent(grounding={**CLOSED, "abstention_response": "Ask our staff."})
    gateway.upstream.script(answer(PLANS + SUPPORT, stream=stream))
    seen = ask_sync(gateway, stream, request_of(agent, DOCUMENTS))
    assert seen.text == PLANS + SUPPORT
    assert seen.grounding is not None
    assert seen.grounding["verdict"] == "supported"
    gateway.upstream.script(answer("The basic plan costs 19 euros a month.", stream=stream))
    seen = ask_sync(gateway, stream, request_of(agent, DOCUMENTS))
    assert (seen.text, seen.finish) == ("Ask our staff.", "content_filter")
