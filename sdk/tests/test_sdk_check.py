"""Tests checks with the client against a live gateway."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from groundlane import AsyncGroundlane, CheckResult, GatewayStatusError, Groundlane

from judges.types import Label
from tests.support.gateways.live_gateway import Gateway

LIMIT = "Premium users get 1000 requests per minute."
SOURCE = "Premium users get 1000 requests per minute. Support answers within two days."
LIE = "Support answers at once."
ASKED = "Do premium users get 9000 requests per minute?"

Check = Callable[..., CheckResult]


@pytest.fixture(params=["sync", "async"])
def check(request: pytest.FixtureRequest, gateway: Gateway) -> Check:
    gateway.judge.labels = {LIE[:12]: Label.CONTRADICTED, "Nobody": Label.UNVERIFIABLE}

    def by_sync(*args: Any, **options: Any) -> CheckResult:
        with Groundlane(gateway.base_url) as client:
            return client.check(*args, **options)

    def by_async(*args: Any, **options: Any) -> CheckResult:
        async def ask() -> CheckResult:
            async with AsyncGroundlane(gateway.base_url) as client:
                return await client.check(*args, **options)

        return asyncio.run(ask())

    return by_sync if request.param == "sync" else by_async


def test_supported_claim_names_its_source(check: Check) -> None:
    result = check(LIMIT, [SOURCE])
    assert result.grounded
    (claim,) = result.claims
    assert (claim.text, claim.verdict, claim.escalated) == (LIMIT, "supported", False)
    assert claim.confidence is not None
    assert claim.confidence > 0.7
    assert claim.best_source is not None
    assert (claim.best_source.document_id, claim.best_source.content) == ("source-1", SOURCE)
    assert (result.total_claims, result.supported_count, result.contradicted_count) == (1, 1, 0)
    assert (result.unverifiable_count, result.unverifiable_ratio, result.trust_score) == (0, 0.0, 1.0)
    assert (result.summary, result.verdict, result.judge) == ("1/1 claims supported", "supported", "scripted")
    assert result.request_id is not None


def test_contradicted_text_is_not_grounded(check: Check) -> None:
    result = check(f"{LIMIT} {LIE}", documents=[{"id": "pricing", "text": SOURCE, "source": "pricing.md"}])
    assert not result.grounded
    assert [claim.verdict for claim in result.claims] == ["supported", "contradicted"]
    assert (result.trust_score, result.verdict) == (0.5, "has_contradictions")
    assert result.claims[1].best_source is not None
    assert result.claims[1].best_source.document_id == "pricing"


def test_options_limit_the_unverifiable_share(check: Check) -> None:
    text = f"{LIMIT} Nobody knows the price."
    assert check(text, [SOURCE]).grounded
    assert not check(text, [SOURCE], options={"max_unverifiable_ratio": 0.4}).grounded


def test_named_policy_decides(gateway: Gateway, check: Check) -> None:
    rules = {"contradiction_action": "block", "min_citations": 0}
    policy = gateway.policy("grounding", rules, scope={"agents": ["of nobody"]})
    result = check(LIE, [SOURCE], policy=policy["name"])
    assert result.action == "block"
    assert "GROUNDING_CONTRADICTION" in [decision.reason_code for decision in result.decisions]
    assert check(LIE, [SOURCE]).decisions == ()


@pytest.mark.parametrize(
    ("question", "verdict"),
    [(ASKED, "has_contradictions"), (None, "has_unverifiable"), ("", "has_unverifiable"), (" \n", "has_unverifiable")],
)
@pytest.mark.parametrize("text", ["Yes.", "Of course!"])
def test_short_answer_is_judged_with_its_question(
    gateway: Gateway, check: Check, question: str | None, verdict: str, text: str
) -> None:
    gateway.judge.labels = {f"{ASKED} {text}": Label.CONTRADICTED}
    assert check(text, [SOURCE], question=question).verdict == verdict


def test_nothing_is_grounded_without_sources(check: Check) -> None:
    result = check(LIMIT)
    assert (result.grounded, result.reason_code, result.trust_score) == (False, "GROUNDING_NO_SOURCES", None)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"options": {"entailment_threshold": 2}}, "options.entailment_threshold"),
        ({"options": {"no_such_rule": 1}}, "options.no_such_rule"),
        ({"documents": [{"text": "a", "relevance_score": 7}]}, "documents[0].relevance_score"),
        ({"policy": "of nobody"}, "policy"),
        ({"question": "?" * 1_000_001}, "question"),
    ],
)
def test_bad_field_is_named(check: Check, given: dict[str, Any], param: str) -> None:
    with pytest.raises(GatewayStatusError) as raised:
        check(LIMIT, **given)
    assert (raised.value.status, raised.value.param) == (400, param)
