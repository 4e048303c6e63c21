"""Scores that the caller reports with its documents, under each source of scores."""

from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

FACT = "It costs 9 euros."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("judge", {"score_source": "judge", "reported_scores_unused": 2}),
        ("retrieval", {"score_source": "retrieval", "reported_scores_unused": 2}),
        ("reported", {}),
    ],
)
def test_decision_names_unused_scores(gateway: Gateway, source: str, told: dict[str, Any], stream: bool) -> None:
    gateway.upstream.script(answer(FACT, stream=stream))
    agent = gateway.agent(grounding={"min_citations": 0, "score_source": source})
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "What does it cost?"}],
        "stream": stream,
        "documents": [{"text": FACT, "relevance_score": 0.9}],
        "grounding": {"agent": agent, "reported": {"grounding_scores": [0.9, 0.8]}},
    }
    with gateway.call(body) as call:
        call.read_all()
    (decision,) = [one for one in gateway.trace(call.request_id).decisions if one["phase"] == "after_workflow"]
    found = {name: decision["metadata"][name] for name in told if name in decision["metadata"]}
    assert found == told
    assert "reported_scores_unused" in told or "reported_scores_unused" not in decision["metadata"]
