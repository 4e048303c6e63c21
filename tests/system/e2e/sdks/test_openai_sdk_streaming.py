"""What users of the official OpenAI SDK see of the options, stream modes and actions of policies."""

import json
from typing import Any

import pytest
from openai import APIError, BadRequestError, OpenAI

from judges.types import Label
from tests.support.apis.reply_reader import read_stream
from tests.support.apis.scripted_answers import answer, chunk, streamed, whole
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply
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

# Fields that the client selects


def test_include_nothing_is_byte_clean_and_still_checked(gateway: Gateway, stream: bool) -> None:
    reply = answer(PLANS + SUPPORT, stream=stream)
    gateway.upstream.script(reply)
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call({**raw_body(agent, include=[]), "stream": stream}) as call:
        raw = call.read_all()
    assert b"grounding" not in raw
    assert b"annotations" not in raw
    if not stream:
        assert json.loads(raw) == known(whole(PLANS + SUPPORT))
    assert len(gateway.trace(call.request_id).claims) == 2

    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=stream))
    with gateway.call({**raw_body(agent, include=[]), "stream": stream}) as call:
        raw = call.read_all()
    assert b"boat" not in raw
    assert b"content_filter" in raw
    assert b"grounding" not in raw


@pytest.mark.parametrize("include", [["claims"], ["decisions"], ["documents"], ["claims", "documents"], None])
def test_include_selects_the_shown_fields(gateway: Gateway, ask: Ask, stream: bool, include: list[str] | None) -> None:
    gateway.upstream.script(answer(PLANS + SUPPORT, stream=stream))
    agent = gateway.agent(grounding=CLOSED)
    seen = ask(agent, DOCUMENTS, **({} if include is None else {"include": include}))
    assert seen.grounding is not None
    fields = {"claims": "claims", "decisions": "decisions", "documents": "retrieval"}
    shown = {name for name, where in fields.items() if where in seen.grounding}
    assert shown == (set(fields) if include is None else set(include))
    assert seen.grounding["verdict"] == "supported"
    assert bool([g for g in seen.per_sentence if g.get("claims")]) == (stream and "claims" in shown)


def test_sentence_chunks_carry_their_claims(gateway: Gateway) -> None:
    """In hold mode, the text of a sentence and its claims arrive on the same chunk, as seen in the SDK's
    model_extra."""
    gateway.upstream.script(answer(PLANS + SUPPORT, stream=True))
    agent = gateway.agent(grounding=CLOSED)
    with OpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as sdk:
        pieces = list(sdk.chat.completions.create(**request_of(agent, DOCUMENTS), stream=True))
    found: list[str] = []
    since = ""
    for piece in pieces:
        since += (piece.choices[0].delta.content or "") if piece.choices else ""
        grounding = (piece.model_extra or {}).get("grounding")
        if grounding and "verdict" not in grounding:
            assert [claim["verdict"] for claim in grounding["claims"]] == ["supported"]
            found.append(since)
            since = ""
    assert [text.strip() for text in found] == [PLANS.strip(), SUPPORT]


# Modes


def test_live_chunks_pass_at_once_and_verdicts_follow(gateway: Gateway) -> None:
    chunks = streamed(PLANS + SUPPORT, usage=True)
    gateway.upstream.script(Reply(chunks=chunks))
    agent = gateway.agent(grounding={**CLOSED, "stream_mode": "live"})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        reading = call.reading()
    sent = [each for each in read_stream(b"".join(chunks)).chunks if not _finishes(each)]
    assert [each for each in reading.chunks if "grounding" not in each] == sent
    verdicts = [piece for piece in reading.chunks if piece.get("grounding") and "verdict" not in piece["grounding"]]
    assert [claim["verdict"] for piece in verdicts for claim in piece["grounding"]["claims"]] == ["supported"] * 2
    assert all(not choice["delta"].get("content") for piece in verdicts for choice in piece["choices"])
    assert reading.grounding["verdict"] == "supported"


def _finishes(chunk: dict[str, Any]) -> bool:
    return any(choice["finish_reason"] for choice in chunk["choices"])


def test_live_block_ends_the_stream_without_a_replacement(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    text = PLANS + LIE + " "
    chunks = streamed(text + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    agent = gateway.agent(grounding={**CLOSED, "stream_mode": "live"})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(streamed(text)) - 2 + 1)
        reading = call.reading()
    assert exchange.peer_closed.wait(5)
    assert (text + SUPPORT).startswith(reading.text())
    assert SUPPORT not in reading.text()
    assert reading.finishes() == ["content_filter"]
    assert (reading.done, reading.ends_with_done) == (1, True)
    assert reading.grounding["action"] == "block"
    left(gateway.trace(call.request_id), status="blocked", action="block")


def test_final_holds_everything_until_the_end(gateway: Gateway) -> None:
    chunks = streamed(PLANS + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    agent = gateway.agent(grounding={**CLOSED, "stream_mode": "final", "score_eval_mode": "average"})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(chunks) - 2)
        exchange.wait_written(len(chunks) - 2)
        assert b"basic plan" not in call.raw
        exchange.release(2)
        reading = call.reading()
    assert reading.text() == PLANS + SUPPORT
    assert reading.finishes() == ["stop"]


def test_final_block_shows_nothing_of_the_reply(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=True))
    agent = gateway.agent(grounding={**CLOSED, "stream_mode": "final", "abstention_response": "Ask our staff."})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        reading = call.reading()
    assert reading.text() == "Ask our staff."
    assert reading.finishes() == ["content_filter"]


def test_hold_delivers_a_sentence_before_the_next_arrives(gateway: Gateway) -> None:
    chunks = streamed(PLANS + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(streamed(PLANS)) - 2 + 1)  # up to the first word of the second sentence
        call.read_until(b"a month.")
        assert b"Support" not in call.raw
        exchange.release(len(chunks))
        assert call.reading().text() == PLANS + SUPPORT


# Actions of policies


def test_strip_removes_the_unverifiable_sentence(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    gateway.upstream.script(answer(PLANS + LIE + " " + SUPPORT, stream=stream))
    agent = gateway.agent(grounding={"min_citations": 0, "unverifiable_action": "strip"})
    seen = ask(agent, DOCUMENTS)
    assert seen.text == PLANS + SUPPORT
    assert seen.finish == "stop"
    for annotation in seen.annotations:
        entry = citation(annotation)
        assert seen.text[entry["start_index"] : entry["end_index"]] in {PLANS.strip(), SUPPORT}
    trace = gateway.trace(seen.request_id)
    assert [(claim["label"], claim["delivered"]) for claim in trace.claims] == [
        ("supported", True),
        ("unverifiable", False),
        ("supported", True),
    ]
    left(trace, status="completed")


def test_failing_sentence_is_regenerated(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=stream), answer(SUPPORT, stream=stream))
    rules = {"min_citations": 0, "contradiction_action": "block", "max_regenerations": 1}
    seen = ask(gateway.agent(grounding=rules), DOCUMENTS)
    assert (seen.text, seen.finish) == (PLANS + SUPPORT, "stop")
    *_, stands, note = gateway.upstream.wait_exchange(1).json["messages"]
    assert (stands["role"], stands["content"], note["role"]) == ("assistant", PLANS.strip(), "user")
    assert LIE.strip() in note["content"]
    trace = gateway.trace(seen.request_id)
    assert trace.request["regenerations"] == 1
    assert [(claim["label"], claim["delivered"]) for claim in trace.claims] == [
        ("supported", True),
        ("contradicted", False),
        ("supported", True),
    ]
    left(trace, status="completed")


def test_flag_delivers_and_marks_the_sentence(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=stream))
    agent = gateway.agent(grounding={"min_citations": 0})
    seen = ask(agent, DOCUMENTS)
    assert seen.text == PLANS + LIE
    assert seen.finish == "stop"
    assert seen.grounding is not None
    assert (seen.grounding["action"], seen.grounding["verdict"]) == ("warn", "has_contradictions")
    assert seen.grounding["trust_score"] == 0.5


def test_on_block_error_is_a_400_with_its_own_type(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=False))
    agent = gateway.agent(grounding={**CLOSED, "on_block": "error"})
    with pytest.raises(BadRequestError) as caught:
        ask_sync(gateway, False, request_of(agent, DOCUMENTS))
    assert (caught.value.type, caught.value.code) == ("grounding_policy_violation", "GROUNDING_CONTRADICTION")
    assert "boat" not in caught.value.response.text
    trace = gateway.trace(caught.value.response.headers["x-groundlane-request-id"])
    left(trace, status="blocked", http_status=400, action="block")


def test_on_block_error_in_a_stream_raises_in_the_sdk(gateway: Gateway) -> None:
    """The status has been sent by then, so it is an error event; no text of the sentence arrives, and the row says
    blocked."""
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=True))
    agent = gateway.agent(grounding={**CLOSED, "on_block": "error"})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        reading = call.reading()
    assert [error["type"] for error in reading.errors] == ["grounding_policy_violation"]
    assert b"boat" not in reading.raw
    assert (reading.done, reading.ends_with_done) == (1, True)
    left(gateway.trace(call.request_id), status="blocked")
    with pytest.raises(APIError):
        ask_sync(gateway, True, request_of(agent, DOCUMENTS))


def test_two_choices_are_judged_separately(gateway: Gateway, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + SUPPORT, PLANS + LIE, stream=stream))
    agent = gateway.agent(grounding={**CLOSED, "abstention_response": "Ask our staff."})
    with gateway.call({**raw_body(agent), "n": 2, "stream": stream}) as call:
        if stream:
            reading = call.reading()
            texts = [reading.text(index) for index in (0, 1)]
            finishes = [reading.finishes(index) for index in (0, 1)]
        else:
            choices = call.json()["choices"]
            texts = [choice["message"]["content"] for choice in choices]
            finishes = [[choice["finish_reason"]] for choice in choices]
    assert b"boat" not in call.raw
    assert texts[0] == PLANS + SUPPORT
    assert texts[1].endswith("Ask our staff.")
    assert finishes == [["stop"], ["content_filter"]]
    assert sorted({claim["choice"] for claim in gateway.trace(call.request_id).claims}) == [0, 1]


def test_reply_of_tool_calls_is_not_judged(gateway: Gateway, stream: bool) -> None:
    call_piece = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    if stream:
        delta = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call_piece}]}
        pieces = [chunk(0, delta), chunk(0, {}, "tool_calls"), b"data: [DONE]\n\n"]
        gateway.upstream.script(Reply(chunks=pieces))
    else:
        body = whole("", finish="tool_calls", message={"content": None, "tool_calls": [call_piece]})
        gateway.upstream.script(json_reply(body))
    agent = gateway.agent(grounding={"contradiction_action": "block", "action_on_violation": "block"})
    with gateway.call({**raw_body(agent), "stream": stream}) as call:
        if stream:
            reading = call.reading()
            assert reading.finishes() == ["tool_calls"]
            assert [piece["id"] for piece in reading.tool_calls()] == ["call_1"]
            verdict = reading.grounding["verdict"]
        else:
            answered = call.json()
            assert answered["choices"][0]["message"]["tool_calls"] == [call_piece]
            assert answered["choices"][0]["finish_reason"] == "tool_calls"
            verdict = answered["grounding"]["verdict"]
    assert verdict == "not_checked"
    assert gateway.judge.claims == []
    left(gateway.trace(call.request_id), status="completed", verdict="not_checked")
