"""``max_claims``: claims beyond the limit have no verdict."""

import json
from typing import Any

import pytest

from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

FIRST = "The Orion lamp costs 20 euros. "
REST = "It is delivered within nine days. The lamp is made of plastic."
DOCUMENT = {
    "text": "The Orion lamp costs 20 euros. It is delivered within three days. The lamp is made of brass.",
    "source": "faq.pdf",
}
WRONG = {"nine days": Label.CONTRADICTED, "plastic": Label.CONTRADICTED}


def ask(gateway: Gateway, agent: str, *, stream: bool) -> dict[str, Any]:
    gateway.upstream.script(answer(FIRST + REST, stream=stream))
    messages = [{"role": "user", "content": "What about the Orion lamp?"}]
    body = {"model": "m", "messages": messages, "documents": [DOCUMENT], "grounding": {"agent": agent}}
    with gateway.call({**body, "stream": stream}) as call:
        if stream:
            return call.reading().grounding
        return dict(json.loads(call.read_all())["grounding"])


@pytest.mark.parametrize("stream", [True, False])
def test_claims_beyond_the_limit_are_unjudged_and_exclude_trust(gateway: Gateway, stream: bool) -> None:
    gateway.judge.labels = WRONG
    agent = gateway.agent(grounding={"max_claims": 1, "min_citations": 0})
    summary = ask(gateway, agent, stream=stream)
    assert [claim["claim"] for claim in summary["claims"]] == [FIRST.strip()]
    assert (summary["total_claims"], summary["supported_count"], summary["claims_skipped"]) == (1, 1, 2)
    assert (summary["is_trusted"], summary["verdict"]) == (False, "supported")
    assert summary["coverage"] < 0.5
    places = [(part["kind"], (FIRST + REST)[part["start"] : part["end"]].strip()) for part in summary["unjudged"]]
    assert " ".join(text for _, text in places) == REST
    assert {kind for kind, _ in places} == {"skipped"}
    assert summary["action"] == "warn"


@pytest.mark.parametrize("stream", [True, False])
def test_every_claim_has_a_verdict_without_a_limit(gateway: Gateway, stream: bool) -> None:
    gateway.judge.labels = WRONG
    summary = ask(gateway, gateway.agent(grounding={"min_citations": 0}), stream=stream)
    assert [claim["verdict"] for claim in summary["claims"]] == ["supported", "contradicted", "contradicted"]
    assert (summary.get("claims_skipped"), summary["is_trusted"]) == (None, False)
