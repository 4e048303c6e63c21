"""The user's question is the context of a reply that begins with a pronoun, in every API."""

from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

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
def test_reply_is_compared_with_statements_about_the_subject_of_the_question(gateway: Gateway, stream: bool) -> None:
    wrong, right = "It costs 9 euros a month.", "It costs 49 euros a month."
    for content in (ASKED, [{"type": "text", "text": ASKED}], f"Answer from the documents.\n\nQuestion: {ASKED}"):
        assert [claim["verdict"] for claim in ask(gateway, content, right, stream=stream)] == ["supported"]
        assert [claim["verdict"] for claim in ask(gateway, content, wrong, stream=stream)] != ["supported"]
    assert ask(gateway, "Go on.", wrong, stream=stream)[0]["verdict"] == "supported"
    assert ask(gateway, "Go on.", wrong, stream=stream, query=ASKED)[0]["verdict"] != "supported"


def test_earlier_messages_count_more_than_the_question(gateway: Gateway) -> None:
    reply = "The Basic plan is cheaper. It costs 9 euros a month."
    assert [claim["verdict"] for claim in ask(gateway, ASKED, reply, stream=False)] == ["supported", "supported"]
