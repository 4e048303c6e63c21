"""Replies without documents, under a grounding policy."""

import json
from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

PRICE = "The Orion lamp costs 20 euros."
INSTEAD = "I have no source for that."


def ask(gateway: Gateway, agent: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """The text that the client receives, and the ``grounding`` object."""
    gateway.upstream.script(answer(PRICE, stream=stream))
    messages = [{"role": "user", "content": "What does the Orion lamp cost?"}]
    body = {"model": "m", "messages": messages, "grounding": {"agent": agent}, "stream": stream}
    with gateway.call(body) as call:
        if stream:
            reading = call.reading()
            return reading.text(), reading.grounding
        reply = json.loads(call.read_all())
        return reply["choices"][0]["message"]["content"], reply["grounding"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("action", "text"), [("block", INSTEAD), ("warn", PRICE)])
def test_reply_without_documents_has_no_citations(gateway: Gateway, action: str, text: str, stream: bool) -> None:
    rules = {"min_citations": 1, "action_on_violation": action, "abstention_response": INSTEAD}
    delivered, summary = ask(gateway, gateway.agent(grounding=rules), stream=stream)
    assert (delivered, summary["action"], summary["verdict"]) == (text, action, "no_sources")
    last = summary["decisions"][-1]
    assert (last["reason"], last["reason_code"]) == ("Citations (0) below minimum (1)", "GROUNDING_CITATIONS")
    assert last["metadata"]["citation_count"] == 0


@pytest.mark.parametrize("stream", [True, False])
def test_decision_mentions_missing_sources_if_no_citation_is_required(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding={"min_citations": 0, "action_on_violation": "block"})
    delivered, summary = ask(gateway, agent, stream=stream)
    assert (delivered, summary["action"], summary["verdict"]) == (PRICE, "allow", "no_sources")
    last = summary["decisions"][-1]
    assert (last["action"], last["reason_code"]) == ("allow", "GROUNDING_NO_SOURCES")
