"""The category ``freshness`` alone: which document's age counts, and when."""

from dataclasses import replace
from typing import Any

import pytest

from judges.types import ClaimVerdict
from policies.policy_selection import PolicySet
from policies.registry import CATEGORIES, parse_rules
from policies.types import Action, Phase, PolicyInputs, Violation
from tests.support.policy_builders import chunk, claim, found, policy

OLD, NEW, UNDATED = chunk(0, age_days=400), chunk(1, age_days=30), chunk(2, age_days=None)
CHUNKS = (OLD, NEW, UNDATED)
BLOCK: dict[str, Any] = {"action_on_stale_support": "block"}


def supported(*documents: int, **fields: Any) -> ClaimVerdict:
    """A claim that each of ``documents`` supports."""
    return claim(document=documents[0], support={index: 0.9 for index in documents}, **fields)


def check(*claims: ClaimVerdict, rules: dict[str, Any] | None = None, **fields: Any) -> tuple[Violation, ...]:
    inputs = PolicyInputs(chunks=CHUNKS, claims=claims, **fields)
    return found("freshness", Phase.MID_EXECUTION, rules or {}, inputs)


def test_claim_supported_only_by_an_old_document_is_a_violation() -> None:
    (violation,) = check(supported(0))
    assert violation.action is Action.WARN
    assert violation.reason == "Supporting source age (400 days) exceeds max (90 days)"
    assert violation.reason_code == "FRESHNESS_STALE_SUPPORT"
    assert violation.metadata == {
        "age_days": 400,
        "max_age": 90,
        "document_id": "d0",
        "document_index": 0,
        "claim": "It costs 5 euros.",
        "sentence_index": 0,
    }
    assert check(supported(0), rules=BLOCK)[0].action is Action.BLOCK


@pytest.mark.parametrize(
    ("documents", "rules", "codes"),
    [
        ((1,), {}, []),
        ((0, 1), {}, []),  # one recent document suffices
        ((0,), {"max_support_age_days": 400}, []),  # an equal age passes
        ((0,), {"max_support_age_days": 399}, ["FRESHNESS_STALE_SUPPORT"]),
        ((0, 1), {"max_support_age_days": 29}, ["FRESHNESS_STALE_SUPPORT"]),
        ((2,), {}, []),
        ((2,), {"on_missing_metadata": "warn"}, ["FRESHNESS_MISSING_AGE"]),
        ((0, 2), {"on_missing_metadata": "warn"}, ["FRESHNESS_MISSING_AGE"]),  # it may be recent
        ((0, 2), {}, []),
        ((1, 2), {"on_missing_metadata": "warn"}, []),
    ],
)
def test_most_recent_support_counts(documents: tuple[int, ...], rules: dict[str, Any], codes: list[str]) -> None:
    assert [violation.reason_code for violation in check(supported(*documents), rules=rules)] == codes


def test_reason_has_the_age_of_the_most_recent_support() -> None:
    (violation,) = check(supported(0, 1), rules={"max_support_age_days": 7})
    assert violation.metadata["document_id"] == "d1"


@pytest.mark.parametrize(
    "verdict",
    [
        claim(0.2, document=0, support={0: 0.2}),
        claim(0.1, 0.9, document=0, support={0: 0.1}),
        supported(0, reason="timeout"),
    ],
    ids=["unverifiable", "contradicted", "unjudged"],
)
def test_other_claims_are_left_to_grounding_policies(verdict: ClaimVerdict) -> None:
    unjudged = replace(verdict, label=claim(0.2).label) if verdict.reason else verdict
    assert check(unjudged) == ()


def test_claim_supported_by_two_passages_together() -> None:
    """Neither supports it alone; the best source is one of them."""
    assert [each.metadata["document_id"] for each in check(claim(document=0, support={0: 0.4, 1: 0.3}))] == ["d0"]


def test_support_counts_from_the_threshold_on() -> None:
    verdict = claim(0.8, document=1, support={0: 0.8, 1: 0.8})
    assert check(verdict, rules={"max_support_age_days": 20, "entailment_threshold": 0.8})
    assert not check(verdict, rules={"max_support_age_days": 20, "entailment_threshold": 0.9})


def test_removed_claims_do_not_count() -> None:
    assert check(supported(0, sentence=2), withheld=frozenset({2})) == ()


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("of_run", [False, True])
def test_reply_is_checked_by_sentence_and_a_run_at_its_end(phase: Phase, of_run: bool) -> None:
    inputs = PolicyInputs(chunks=CHUNKS, claims=[supported(0)], of_run=of_run)
    result = CATEGORIES["freshness"].evaluate(phase, parse_rules("freshness", {}), inputs)
    assert (result is not None) is (phase is (Phase.AFTER_WORKFLOW if of_run else Phase.MID_EXECUTION))


def test_there_is_no_decision_without_documents() -> None:
    rules = parse_rules("freshness", {})
    assert CATEGORIES["freshness"].evaluate(Phase.MID_EXECUTION, rules, PolicyInputs()) is None


def test_blocking_policy_holds_each_sentence() -> None:
    live = policy("grounding", "live", stream_mode="live")
    assert PolicySet((live, policy("freshness"))).reply_settings.stream_mode == "live"
    assert PolicySet((live, policy("freshness", **BLOCK))).reply_settings.stream_mode == "hold"


def test_missing_judge_is_left_to_grounding_policies() -> None:
    strict = policy("grounding", "strict", entailment_threshold=0.9, max_claims=3)
    fresh = policy("freshness", priority=9, entailment_threshold=0.5)
    both = PolicySet((fresh, strict)).reply_settings
    assert both.judging == PolicySet((strict,)).reply_settings.judging


def test_blocked_reply_gets_its_text_by_priority() -> None:
    fresh = policy("freshness", "fresh", priority=1, abstention_response="Outdated.", on_block="error", **BLOCK)
    strict = policy("grounding", "strict", min_citations=0, min_grounding_score=0.95, action_on_violation="block")
    evaluation = PolicySet((fresh, strict)).evaluate_reply(PolicyInputs(chunks=CHUNKS))
    evaluation.start()
    assert evaluation.sentence([supported(1)]).action is Action.BLOCK
    assert (evaluation.on_block, evaluation.abstention_response) == ("replace", None)
    evaluation.retract([supported(1)])
    decision = evaluation.sentence([supported(0)])
    assert decision.cause is not None
    assert decision.cause.reason_code == "FRESHNESS_STALE_SUPPORT"
    assert (evaluation.on_block, evaluation.abstention_response) == ("error", "Outdated.")
