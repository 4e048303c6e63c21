"""Answers to questions that the gateway doesn't read, and replies that continue a text of the caller, in the APIs that
have them, streamed and whole."""

from typing import Any

import pytest

from judges.types import Label
from tests.support.apis.four_apis import PATHS, QUESTION, TRUE, ask, reply_of, request_of
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import json_reply

RULES: dict[str, Any] = {
    "unjudged_action": "block",
    "unverifiable_action": "block",
    "max_unverifiable_ratio": 0.0,
    "min_citations": 0,
    "abstention_response": "Blocked.",
}
ASKED = "Does the lamp run for 48 hours?"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "t", "type": "function", "function": {"name": "ask", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "t", "content": ASKED}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def messages(*turns: Any) -> dict[str, Any]:
    return {"messages": list(turns)}


UNREAD = {
    "read": ("chat", messages(user(ASKED))),
    "system": ("chat", messages({"role": "system", "content": ASKED})),
    "image": ("chat", messages(user([IMAGE]))),
    "thanks and image": ("chat", messages(user([{"type": "text", "text": "Thanks!"}, IMAGE]))),
    "thanks, then image": ("chat", messages(user("Thanks!"), {"role": "assistant", "content": "Hi."}, user([IMAGE]))),
    "thanks, then tool": ("chat", messages(user("Thanks!"), CALL, RESULT)),
    "thanks, then system": ("chat", messages(user("Thanks!"), {"role": "system", "content": ASKED})),
    "thanks as query": ("chat", messages(user(ASKED)) | {"grounding": {"query": "Thanks!"}}),
    "beginning": ("chat", messages(user("Thanks!"), {"role": "assistant", "content": ASKED})),
    "tokens": ("completions", {"prompt": [1, 2, 3]}),
    "suffix": ("completions", {"prompt": "Thanks!", "suffix": ASKED}),
    "instructions": ("responses", {"input": None, "instructions": ASKED}),
    "stored prompt": ("responses", {"input": None, "prompt": {"id": "pmpt_1"}}),
    "earlier response": ("responses", {"input": "Thanks!", "previous_response_id": "resp_1"}),
    "no role": ("responses", {"input": [{"content": ASKED}]}),
    "file": ("responses", {"input": [user([{"type": "input_file", "file_id": "f"}])]}),
    "image block": ("messages", messages(user([{"type": "image", "source": {"type": "url", "url": "http://x"}}]))),
    "PDF": ("messages", messages(user([{"type": "document", "source": {"type": "url", "url": "http://x"}}]))),
}


@pytest.fixture(autouse=True)
def judge_that_supports_all_else(gateway: Gateway) -> None:
    gateway.judge.default = Label.SUPPORTED
    gateway.judge.labels = {f"{ASKED} {reply}": Label.UNVERIFIABLE for reply in ("Yes.", "Absolutely!", "Sure.")}


def delivers(gateway: Gateway, api: str, reply: str, *, stream: bool, **more: Any) -> bool:
    agent = gateway.agent(grounding=RULES)
    more["grounding"] = {**more.get("grounding", {}), "agent": agent}
    status, delivered = ask(gateway, api, agent, reply_of(api, reply, stream=stream), stream=stream, **more)
    assert status == 200
    assert (reply in delivered) != ("Blocked." in delivered)
    return reply in delivered


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reply", ["Yes.", "Absolutely!", "Sure."])
@pytest.mark.parametrize("kind", UNREAD)
def test_answer_to_an_unread_question_is_not_delivered(gateway: Gateway, kind: str, reply: str, stream: bool) -> None:
    api, body = UNREAD[kind]
    assert not delivers(gateway, api, reply, stream=stream, **body)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("api", "reply", "body"),
    [
        ("chat", "You're welcome!", messages({"role": "system", "content": "Be kind."}, user("Thanks!"))),
        ("chat", f"Sure! {TRUE}", messages(user(QUESTION), CALL, RESULT)),
        ("chat", "Yes.", messages(user("Does the lamp run?"), CALL, RESULT)),
        ("completions", f"Sure! {TRUE}", {"prompt": f"Q: {QUESTION}\nA:"}),
        ("responses", f"Sure! {TRUE}", {"input": QUESTION, "previous_response_id": "resp_1"}),
        ("responses", "You're welcome!", {"input": "Thanks!", "previous_response_id": "resp_1"}),
        ("messages", f"Of course! {TRUE}", {"system": "Be kind.", "messages": [user(QUESTION)]}),
    ],
)
def test_answer_to_the_last_message_is_delivered(
    gateway: Gateway, api: str, reply: str, body: dict[str, Any], stream: bool
) -> None:
    assert delivers(gateway, api, reply, stream=stream, **body)


def test_each_prompt_is_answered_separately(gateway: Gateway) -> None:
    agent = gateway.agent(grounding=RULES)
    choices = [{"index": place, "text": "Sure.", "finish_reason": "stop", "logprobs": None} for place in range(2)]
    reply = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": choices}
    gateway.upstream.script(json_reply(reply))
    body = request_of("completions", agent, stream=False, prompt=[ASKED, "Thanks!"])
    with gateway.call(body, path=PATHS["completions"]) as call:
        assert [choice["text"] for choice in call.json()["choices"]] == ["Blocked.", "Sure."]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ["chat", "messages", "completions"])
@pytest.mark.parametrize("begun", ["The desk", "It is not true that the lamp", "For 48 hours or"])
def test_continued_sentence_is_judged_as_a_whole(gateway: Gateway, begun: str, api: str, stream: bool) -> None:
    rest = " runs for 24 hours."
    gateway.judge.labels = {f"{begun}{rest}": Label.UNVERIFIABLE}
    for beginning, delivered in ((begun, False), ("The lamp", True)):
        turns = [user(QUESTION), {"role": "assistant", "content": beginning}]
        body = {"prompt": f"{QUESTION}\n{beginning}"} if api == "completions" else {"messages": turns}
        assert delivers(gateway, api, rest, stream=stream, **body) is delivered


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("prompt", "reply", "more"),
    [
        ("Summarise the leaflet", f"\n\n{TRUE}", {}),
        ("Return the hours as JSON", '{"hours": 24}', {"response_format": {"type": "json_object"}}),
    ],
)
def test_instruction_without_a_full_stop_is_not_part_of_the_answer(
    gateway: Gateway, prompt: str, reply: str, more: dict[str, Any], stream: bool
) -> None:
    gateway.judge.default = Label.UNVERIFIABLE
    gateway.judge.labels = {TRUE: Label.SUPPORTED, "hours: 24": Label.SUPPORTED}
    assert delivers(gateway, "completions", reply, stream=stream, prompt=prompt, **more)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wrong", ["Say whether the lamp Runs.", "Runs."])
def test_last_line_of_a_prompt_is_judged_in_both_readings(gateway: Gateway, wrong: str, stream: bool) -> None:
    for labels, delivered in (({wrong: Label.UNVERIFIABLE}, False), ({}, True)):
        gateway.judge.labels = labels
        body = {"prompt": f"{QUESTION}\nSay whether the lamp"}
        assert delivers(gateway, "completions", "Runs.", stream=stream, **body) is delivered
