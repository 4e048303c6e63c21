"""Relevance scores outside 0 to 1, such as those of BM25, with and without the rule that accepts them."""

from typing import Any

import pytest

from tests.support.apis.api_cases import APIS, TEXT, ApiCase, read_objects
from tests.support.gateways.live_gateway import Gateway

FACT = "It costs 9 euros."


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def asked(
    gateway: Gateway, case: ApiCase, rules: dict[str, Any] | None, scores: list[float], *, stream: bool
) -> tuple[int, list[dict[str, Any]]]:
    gateway.upstream.script(case.reply([(TEXT, FACT)], stream=stream))
    documents = [{"text": FACT, "similarity": score} for score in scores]
    agent = None if rules is None else gateway.agent(retrieval=rules)
    body = {**case.asked, "stream": stream, "documents": documents, "grounding": {"agent": agent}}
    with gateway.call(body, path=case.path) as call:
        return call.status, read_objects(call.read_all())


@pytest.mark.parametrize("case", APIS, ids=lambda case: case.api)
@pytest.mark.parametrize("rules", [None, {}, {"relevance_scale": "unit"}])
def test_score_on_another_scale_is_rejected_by_position(
    gateway: Gateway, case: ApiCase, stream: bool, rules: dict[str, Any] | None
) -> None:
    status, (body, *_) = asked(gateway, case, rules, [0.9, 17.3], stream=stream)
    assert status == 400
    assert "documents[1].similarity: expected a number from 0 to 1" in body["error"]["message"]
    assert gateway.upstream.exchanges == []


@pytest.mark.parametrize("case", APIS, ids=lambda case: case.api)
def test_configured_scale_is_compared_with_its_threshold(gateway: Gateway, case: ApiCase, stream: bool) -> None:
    rules = {"relevance_scale": "any", "min_relevance_score": 12.5, "action_on_low_relevance": "block"}
    status, _ = asked(gateway, case, rules, [17.3, 12.5], stream=stream)
    assert status == 200
    status, (body, *_) = asked(gateway, case, rules, [17.3, -3.0], stream=stream)
    assert status == 400
    assert "Retrieval relevance (-3.00) below threshold (12.5" in body["error"]["message"]


def test_threshold_must_be_on_the_scale(gateway: Gateway) -> None:
    body = {"name": "scale", "category": "retrieval", "rules": {"min_relevance_score": 12.5}}
    response = gateway.admin.post("/policies", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"] == ["rules", "min_relevance_score"]
