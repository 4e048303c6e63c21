from typing import Any

import pytest

from judges.types import Consistency, Contradiction, LocatedStatement, Span
from policies.registry import CATEGORIES, parse_rules
from policies.types import Action, Phase, PolicyInputs, Violation
from tests.support.policy_builders import chunk, claim, found

ON = {"factual_consistency_check": True, "min_citations": 0, "max_unverifiable_ratio": 1.0}


def said(text: str, **fields: Any) -> LocatedStatement:
    return LocatedStatement(text=text, span=Span(0, len(text)), **fields)


def consistency(score: float = 0.9, *, earlier: bool = False, **fields: Any) -> Consistency:
    first, second = said("Leave is 25 days.", earlier=earlier), said("Leave is 40 days.")
    return Consistency(contradictions=[Contradiction(first=first, second=second, score=score)], **fields)


def after(rules: dict[str, Any], **fields: Any) -> tuple[Violation, ...]:
    defaults: dict[str, Any] = {"chunks": [chunk()], "claims": [claim()], "consistency": consistency()}
    return found("grounding", Phase.AFTER_WORKFLOW, rules, PolicyInputs(**(defaults | fields)))


@pytest.mark.parametrize("action", ["warn", "block"])
def test_contradicting_claims_are_a_violation(action: str) -> None:
    (violation,) = after({**ON, "action_on_violation": action})
    assert violation.action.value == action
    assert violation.reason == 'Claims contradict each other: "Leave is 25 days." / "Leave is 40 days."'
    assert violation.reason_code == "GROUNDING_INCONSISTENT"
    assert violation.metadata == {
        "claims": [
            {"claim": "Leave is 25 days.", "span": [0, 17], "earlier": False},
            {"claim": "Leave is 40 days.", "span": [0, 17], "earlier": False},
        ],
        "score": 0.9,
    }


def test_claim_of_an_earlier_reply_has_no_position() -> None:
    (violation,) = after(ON, consistency=consistency(earlier=True))
    assert violation.metadata["claims"][0] == {"claim": "Leave is 25 days.", "span": None, "earlier": True}


def test_consistency_check_is_off_by_default() -> None:
    assert after({**ON, "factual_consistency_check": False}) == ()
    assert after(ON, consistency=None) == ()


def test_each_policy_has_its_own_threshold() -> None:
    assert after(ON, consistency=consistency(0.69)) == ()
    assert after({**ON, "contradiction_threshold": 0.95}) == ()
    assert len(after(ON, consistency=consistency(0.7))) == 1


@pytest.mark.parametrize("fields", [{"chunks": []}, {"judged": False}])
def test_consistency_is_checked_without_documents(fields: dict[str, Any]) -> None:
    assert [v.reason_code for v in after(ON, **fields)] == ["GROUNDING_INCONSISTENT"]


@pytest.mark.parametrize(
    ("reason", "codes"),
    [("timeout", ["GROUNDING_NOT_CHECKED"]), ("overloaded", ["GROUNDING_NOT_CHECKED"]), ("unavailable", [])],
)
def test_skipped_comparison_warns_and_never_blocks(reason: str, codes: list[str]) -> None:
    """Without any judge, the reply is already marked as not checked."""
    violations = after({**ON, "action_on_violation": "block"}, consistency=Consistency(reason=reason))
    assert [violation.reason_code for violation in violations] == codes
    assert all(violation.action is Action.WARN for violation in violations)


def test_skipped_pairs_are_reported() -> None:
    inputs = PolicyInputs(chunks=[chunk()], claims=[claim()], consistency=Consistency(skipped=3))
    findings = CATEGORIES["grounding"].evaluate(Phase.AFTER_WORKFLOW, parse_rules("grounding", ON), inputs)
    assert findings is not None
    assert findings.metadata == {"citation_count": 0, "pairs_skipped": 3}
