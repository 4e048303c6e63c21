"""The user's question says what a reply is about that begins with a pronoun, with every API."""

from typing import Any

import pytest

from tests.support.live_gateway import Gateway
from tests.support.scripted_answers import answer

PLANS = "The Basic plan costs 9 euros a month. The Team plan costs 49 euros a month."
ASKED = "What does the Team plan cost?"


def ask(gateway: Gateway, content: Any, reply: str, *, stream: bool, **grounding: Any) -> list[dict[str, Any]]:
    gateway.upstream.script(answer(reply, stream=stream))
    body = {
        "model": "test-model-1",
        "messages": [{"role": "user", "content": content}],
        "stream": stream,
        "documents": [{"id": "plans", "text": PLANS}],
        "grounding": {"agent": gateway.agent(), **grounding},
    }
    with gateway.call(body) as call:
        found = call.reading().grounding if stream else call.json()["grounding"]
    claims: list[dict[str, Any]] = found["claims"]
    return claims


@pytest.mark.parametrize("stream", [True, False])
def test_it_is_held_against_what_is_said_of_the_thing_asked_about(gateway: Gateway, stream: bool) -> None:
    wrong, right = "It costs 9 euros a month.", "It costs 49 euros a month."
    for content in (ASKED, [{"type": "text", "text": ASKED}], f"Answer from the documents.\n\nQuestion: {ASKED}"):
        assert [claim["verdict"] for claim in ask(gateway, content, right, stream=stream)] == ["supported"]
        assert [claim["verdict"] for claim in ask(gateway, content, wrong, stream=stream)] != ["supported"]
    assert ask(gateway, "Go on.", wrong, stream=stream)[0]["verdict"] == "supported"
    assert ask(gateway, "Go on.", wrong, stream=stream, query=ASKED)[0]["verdict"] != "supported"


def test_what_was_said_before_counts_more_than_the_question(gateway: Gateway) -> None:
    reply = "The Basic plan is cheaper. It costs 9 euros a month."
    assert [claim["verdict"] for claim in ask(gateway, ASKED, reply, stream=False)] == ["supported", "supported"]
