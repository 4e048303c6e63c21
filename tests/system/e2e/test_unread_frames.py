"""Nothing leaves unread by its frames: text in events that have none, calls before and after a block, replies that
crash a reader."""

import json
import re
from typing import Any

import pytest

from app.protocols.openai_responses.field_names import OTHER_EVENTS
from judges.types import Label
from tests.support.apis import messages_api, responses_api
from tests.support.apis.four_apis import APIS, DOCUMENTS, PATHS, QUESTION, TRUE, ask, message_of, reply_of, request_of
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import JSON, Reply, json_reply

LIE = "Drink bleach now."
SECRET = "bleach"
CODE = "`rm -rf bleach`"
BLOCK: dict[str, Any] = {
    "unjudged_action": "block",
    "contradiction_action": "block",
    "max_unverifiable_ratio": 1.0,
    "min_grounding_score": 0.0,
    "min_citations": 0,
}
FINAL = {**BLOCK, "stream_mode": "final"}
STRIP = {**BLOCK, "unjudged_action": "strip", "unverifiable_action": "strip"}
PART = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
CALL = responses_api.CALL
OF_CALLS = {"arguments", "code", "command", "delta", "input"}
"""The fields of events in which a tool call has its content, which isn't judged."""
OF_CONTENT = ("_code.", "_input.", "_arguments.", "shell_call_command.", "shell_call_output_content.")
"""Parts of the names of those events."""
REFUSALS = {"response.refusal.delta", "response.refusal.done"}
"""Events whose text is judged like any other."""


NOTED = (
    "message_start",
    "message",
    "content_block",
    "message_delta",
    "ping",
    "usage",
    "response",
    "item",
    "part",
    "choices",
)
"""The events and objects of replies, apart from pieces of text, which are put together again."""


def _noted(line: bytes) -> bytes:
    """A line of a reply with a note in each of those objects."""
    data = line.removeprefix(b"data: ")
    if not data.startswith(b"{"):
        return line
    return line[: len(line) - len(data)] + json.dumps(_with_notes(json.loads(data), "message")).encode()


def _with_notes(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_with_notes(each, name) for each in value]
    if not isinstance(value, dict):
        return value
    made = {inner: _with_notes(each, inner) for inner, each in value.items()}
    place = str(value.get("type")) if str(value.get("type")) in NOTED else name
    return {**made, "note": f"A note in {place}."} if place in NOTED else made


@pytest.fixture(autouse=True)
def strict_judge(gateway: Gateway) -> None:
    gateway.judge.default = Label.UNVERIFIABLE
    gateway.judge.labels = {TRUE: Label.SUPPORTED}


def stream_of(*events: dict[str, Any]) -> Reply:
    return Reply(chunks=(responses_api.sse(events),))


@pytest.mark.parametrize("rules", [BLOCK, STRIP], ids=["block", "strip"])
def test_events_of_other_content_have_only_their_fields(gateway: Gateway, rules: dict[str, Any]) -> None:
    agent = gateway.agent(grounding=rules)
    made = responses_api.events(responses_api.response(responses_api.message(TRUE)))
    texts = {field: f"{LIE} {field}!" for field in (*OF_CALLS, "text", "refusal", "note")}
    part = {"type": "output_text", "text": f"{LIE} part!", "annotations": []}
    kept: set[str] = set()
    for name in sorted(OTHER_EVENTS - REFUSALS):
        hostile = {"type": name, **PART, **texts, **dict.fromkeys(("part", "item", "response"), part)}
        reply = stream_of(*made[:4], hostile, *made[4:])
        _, delivered = ask(gateway, "responses", agent, reply, stream=True)
        left = set(re.findall(r"bleach now\. (\w+)!", delivered))
        assert left <= OF_CALLS, name
        assert not left or (len(left) == 1 and any(each in name for each in OF_CONTENT)), (name, left)
        kept |= left
    assert kept == set(OF_CALLS)


@pytest.mark.parametrize("rules", [BLOCK, FINAL], ids=["hold", "final"])
def test_call_waits_for_the_unfinished_text_before_it(gateway: Gateway, rules: dict[str, Any]) -> None:
    agent = gateway.agent(grounding=rules)
    item = responses_api.message(CODE)
    made = responses_api.events(responses_api.response(item, CALL))
    begun = made.index(next(event for event in made if event["type"] == "response.output_text.done"))
    called = made.index(next(event for event in made if event.get("item", {}).get("type") == "function_call"))
    reply = stream_of(*made[:begun], *made[called:-1], *made[begun:called], made[-1])
    _, delivered = ask(gateway, "responses", agent, reply, stream=True)
    assert "content_filter" in delivered
    assert CALL["call_id"] not in delivered
    assert CALL["arguments"] not in delivered


@pytest.mark.parametrize("stream", [True, False])
def test_text_between_a_call_and_a_block_keeps_its_claims(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding=FINAL)
    texts = [responses_api.message(text, item_id=f"msg_{n}") for n, text in enumerate((TRUE, TRUE, CODE))]
    body = responses_api.response(texts[0], CALL, *texts[1:])
    gateway.upstream.script(stream_of(*responses_api.events(body)) if stream else json_reply(body))
    with gateway.call(request_of("responses", agent, stream=stream), path=PATHS["responses"]) as call:
        raw = call.read_all()
    if stream:
        events = responses_api.read(raw)
        responses_api.consistent(events)
        final = events[-1]["response"]
        added = [event["output_index"] for event in responses_api.of(events, "output_item.added")]
        assert added == list(range(len(final["output"])))
    else:
        final = json.loads(raw)
    assert [item["type"] for item in final["output"]] == ["message"] * 3
    assert final["grounding"]["total_claims"] == 2
    assert [claim["output_index"] for claim in final["grounding"]["claims"]] == [0, 1]
    assert CALL["call_id"] not in json.dumps(final)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("rules", [BLOCK, STRIP], ids=["block", "strip"])
def test_endless_word_is_judged_in_pieces(gateway: Gateway, rules: dict[str, Any], api: str, stream: bool) -> None:
    agent = gateway.agent(grounding=rules)
    for text in (f"{TRUE}\n\n{'bleach' * 2_000}\n\n{TRUE}", f"{'bleach' * 2_000}\n\n", "bleach" * 4_000):
        status, delivered = ask(gateway, api, agent, reply_of(api, text, stream=stream), stream=stream)
        assert status == 200
        assert "internal" not in delivered.casefold()
        if rules is STRIP:
            assert "bleach" not in delivered


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("rules", [BLOCK, FINAL, STRIP], ids=["hold", "final", "strip"])
def test_repeated_request_fields_have_the_values_of_the_request(
    gateway: Gateway, rules: dict[str, Any], stream: bool
) -> None:
    agent = gateway.agent(grounding=rules)
    words = "Drink-bleach-now"
    names = ("previous_response_id", "prompt_cache_key", "safety_identifier", "user")
    said = {**dict.fromkeys(names, words), "prompt_cache_retention": words, "metadata": {"bleach": words}}
    said["tool_choice"] = {"type": "function", "name": words}
    said["conversation"] = {"id": words}
    said["text"] = {"format": {"type": "json_schema", "name": words, "schema": {}}}
    body = responses_api.response(responses_api.message(TRUE), **said)
    reply = stream_of(*responses_api.events(body)) if stream else json_reply(body)
    assert SECRET not in ask(gateway, "responses", agent, reply, stream=stream)[1]
    asked = {**dict.fromkeys(names, "lamp-1"), "metadata": {"Its use": "A lamp for a desk"}, "tool_choice": "none"}
    body = responses_api.response(responses_api.message(TRUE), **asked)
    reply = stream_of(*responses_api.events(body)) if stream else json_reply(body)
    delivered = ask(gateway, "responses", agent, reply, stream=stream, **asked)[1]
    assert delivered.count("lamp-1") == len(names) * (3 if stream else 1)
    assert "A lamp for a desk" in delivered


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("asked", ["conv_1", {"id": "conv_1"}])
def test_conversation_and_schema_have_the_names_in_the_request(gateway: Gateway, asked: Any, stream: bool) -> None:
    agent = gateway.agent(grounding={"unjudged_action": "warn", "min_citations": 0})
    said = {"conversation": {"id": "conv_1"}, "text": {"format": {"type": "json_schema", "name": "hours"}}}
    text = '{"hours": "The lamp runs for 24 hours."}'
    body = responses_api.response(responses_api.message(text), **said)
    reply = stream_of(*responses_api.events(body)) if stream else json_reply(body)
    schema = {"format": {"type": "json_schema", "name": "hours", "schema": {"type": "object"}}}
    delivered = ask(gateway, "responses", agent, reply, stream=stream, conversation=asked, text=schema)[1]
    assert delivered.count("conv_1") == delivered.count("json_schema") == (3 if stream else 1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
def test_unknown_fields_are_kept_with_documents_and_no_policy(gateway: Gateway, api: str, stream: bool) -> None:
    reply = reply_of(api, TRUE, stream=stream)
    noted = [_noted(line) for line in b"".join(reply.chunks).splitlines()]
    headers = {name: value for name, value in reply.headers.items() if name != "content-length"}
    noted_reply = Reply(chunks=(b"\n".join(noted) + b"\n\n",), headers=headers)
    _, delivered = ask(gateway, api, gateway.agent(), noted_reply, stream=stream)
    notes = {f"A note in {place}." for place in NOTED}
    sent = {note for note in notes if note.encode() in noted_reply.chunks[0]}
    assert {note for note in sent if note in delivered} == sent


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("rules", [None, BLOCK], ids=["no policy", "block"])
def test_unknown_message_blocks_are_kept_without_a_policy(
    gateway: Gateway, rules: dict[str, Any] | None, stream: bool
) -> None:
    agent = gateway.agent(grounding=rules) if rules else gateway.agent()
    odd = {"type": "new_block", "text": LIE, "more": [LIE]}
    reply = message_of(messages_api.text(TRUE), [odd], stream=stream)
    delivered = ask(gateway, "messages", agent, reply, stream=stream)[1]
    assert (LIE in delivered) == (rules is None)
    assert TRUE in delivered


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("stream", [True, False])
def test_status_without_a_body_has_none(gateway: Gateway, status: int, stream: bool) -> None:
    agent = gateway.agent(grounding=BLOCK)
    for api in APIS:
        gateway.upstream.script(Reply(status=status, headers=JSON, chunks=(json.dumps({"error": LIE}).encode(),)))
        with gateway.call(request_of(api, agent, stream=stream), path=PATHS[api]) as call:
            delivered = call.read_all()
    assert LIE.encode() not in delivered
    assert delivered == b"" or call.status == 502


@pytest.mark.parametrize("stream", [True, False])
def test_unknown_compression_is_not_named(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding=BLOCK)
    for api in APIS:
        reply = reply_of(api, TRUE, stream=stream)
        headers = {**reply.headers, "content-encoding": "drink-bleach-now"}
        reply = Reply(headers=headers, chunks=reply.chunks)
        assert "bleach" not in ask(gateway, api, agent, reply, stream=stream)[1]


UNANSWERED = [f"<think>{LIE}</think>{end}" for end in (".", "!", "[1]", "---", "<br>", " \u2026", "**")]
"""Reasoning that is followed by punctuation, a marker or a tag only."""


def test_text_check_judges_reasoning_without_an_answer(gateway: Gateway) -> None:
    strict = gateway.policy("grounding", BLOCK, scope={"agents": ["nobody"]})["name"]

    def check(text: str, **more: Any) -> dict[str, Any]:
        body = {"text": text, "sources": [TRUE], **more}
        with gateway.call(body, path="/v1/grounding/check") as call:
            return dict(json.loads(call.read_all()))

    for text in (f"<think>{LIE}", f"<think>{LIE}</think>", f"<thinking>{LIE}</thinking>\n", *UNANSWERED):
        for more in ({}, {"policy": strict}, {"options": {"unjudged_action": "block"}}):
            checked = check(text, **more)
            assert (checked["total_claims"], checked["unverifiable_count"]) == (1, 1), (text, more)
    reasoned = f"<think>{LIE}</think>\n\n{TRUE}"
    assert check(reasoned)["total_claims"] == 1
    assert check(reasoned, policy=strict)["total_claims"] == 2


@pytest.mark.parametrize("model", ["real-1", "REAL-1", "default/real-1", " real-1"])
def test_scope_matches_every_spelling_of_a_model(gateway: Gateway, model: str) -> None:
    gateway.policy("grounding", BLOCK, scope={"models": ["real-*"]})
    gateway.upstream.script(reply_of("chat", CODE, stream=False))
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "documents": DOCUMENTS}
    with gateway.call(body) as call:
        assert b"bleach" not in call.read_all()
