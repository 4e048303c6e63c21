from typing import Any

import pytest

from judges.types import Consistency, Contradiction, LocatedStatement, Span
from policies.engine import PolicyEngine
from policies.registry import CATEGORIES, parse_rules
from policies.types import Action, Phase, PolicyInputs, Violation
from tests.support.policy_builders import chunk, claim, found, policy

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
def test_claims_that_contradict_each_other(action: str) -> None:
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


def test_a_claim_of_an_earlier_reply_has_no_place_in_this_one() -> None:
    (violation,) = after(ON, consistency=consistency(earlier=True))
    assert violation.metadata["claims"][0] == {"claim": "Leave is 25 days.", "span": None, "earlier": True}


def test_off_by_default() -> None:
    assert after({**ON, "factual_consistency_check": False}) == ()
    assert after(ON, consistency=None) == ()


def test_each_policy_has_its_own_threshold() -> None:
    assert after(ON, consistency=consistency(0.69)) == ()
    assert after({**ON, "contradiction_threshold": 0.95}) == ()
    assert len(after(ON, consistency=consistency(0.7))) == 1


@pytest.mark.parametrize("fields", [{"chunks": []}, {"judged": False}])
def test_no_documents_are_needed(fields: dict[str, Any]) -> None:
    assert [v.reason_code for v in after(ON, **fields)] == ["GROUNDING_INCONSISTENT"]


@pytest.mark.parametrize(
    ("reason", "codes"),
    [("timeout", ["GROUNDING_NOT_CHECKED"]), ("overloaded", ["GROUNDING_NOT_CHECKED"]), ("unavailable", [])],
)
def test_a_comparison_that_was_not_made_is_warned_of_and_never_blocks(reason: str, codes: list[str]) -> None:
    """Where there is no judge at all, the reply is marked as not checked already."""
    violations = after({**ON, "action_on_violation": "block"}, consistency=Consistency(reason=reason))
    assert [violation.reason_code for violation in violations] == codes
    assert all(violation.action is Action.WARN for violation in violations)


def test_pairs_left_out_are_told() -> None:
    inputs = PolicyInputs(chunks=[chunk()], claims=[claim()], consistency=Consistency(skipped=3))
    findings = CATEGORIES["grounding"].evaluate(Phase.AFTER_WORKFLOW, parse_rules("grounding", ON), inputs)
    assert findings is not None
    assert findings.metadata == {"citation_count": 0, "pairs_skipped": 3}


def documents(first: int = 0, second: int = 1, score: float = 0.9) -> Consistency:
    one, other = said("It is 25 days.", document_index=first), said("It is 40 days.", document_index=second)
    return Consistency(contradictions=[Contradiction(first=one, second=other, score=score)])


def before(rules: dict[str, Any], sources: tuple[str | None, ...], **fields: Any) -> tuple[Violation, ...]:
    chunks = [chunk(index, source=source) for index, source in enumerate(sources)]
    return found(
        "retrieval", Phase.BEFORE_WORKFLOW, rules, PolicyInputs(chunks=chunks, conflicts=documents(), **fields)
    )


def test_documents_that_contradict_each_other_are_warned_of() -> None:
    (violation,) = before({"check_conflicts": True}, ("old.pdf", "new.pdf"))
    assert violation.action is Action.WARN
    assert violation.reason == (
        "Documents 'old.pdf' and 'new.pdf' contradict each other: \"It is 25 days.\" / \"It is 40 days.\""
    )
    assert violation.reason_code == "RETRIEVAL_CONFLICT"
    assert violation.metadata == {
        "documents": [
            {
                "document_id": "d0",
                "document_index": 0,
                "source": "old.pdf",
                "sentence": "It is 25 days.",
                "span": [0, 14],
            },
            {
                "document_id": "d1",
                "document_index": 1,
                "source": "new.pdf",
                "sentence": "It is 40 days.",
                "span": [0, 14],
            },
        ],
        "score": 0.9,
    }


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (("faq.pdf", "faq.pdf"), "'d0' and 'd1'"),
        ((None, "new.pdf"), "'d0' and 'd1'"),
        (("old.pdf", None), "'old.pdf' and 'd1'"),
    ],
)
def test_documents_are_named_so_that_they_can_be_told_apart(sources: tuple[str | None, ...], names: str) -> None:
    (violation,) = before({"check_conflicts": True}, sources)
    assert violation.reason.startswith(f"Documents {names} contradict")


def test_conflicts_are_reported_only_where_a_rule_asks_and_between_documents_that_are_used() -> None:
    assert before({}, ("old.pdf", "new.pdf")) == ()
    assert before({"check_conflicts": True}, ("old.pdf", "new.pdf"), dropped=frozenset({1})) == ()
    dropping = {"check_conflicts": True, "blocked_sources": ["old.pdf"], "action_on_blocked_source": "drop"}
    codes = [v.reason_code for v in before(dropping, ("old.pdf", "new.pdf"), injectable=True)]
    assert codes == ["RETRIEVAL_BLOCKED_SOURCE"]


def test_a_conflict_that_is_not_sure_is_none() -> None:
    inputs = PolicyInputs(chunks=[chunk(0), chunk(1)], conflicts=documents(score=0.69))
    assert found("retrieval", Phase.BEFORE_WORKFLOW, {"check_conflicts": True}, inputs) == ()


def test_documents_that_were_not_compared() -> None:
    inputs = PolicyInputs(chunks=[chunk()], conflicts=Consistency(reason="timeout"))
    rules = parse_rules("retrieval", {"check_conflicts": True})
    findings = CATEGORIES["retrieval"].evaluate(Phase.BEFORE_WORKFLOW, rules, inputs)
    assert findings is not None
    assert findings.violations == ()
    assert findings.metadata == {"chunk_count": 1, "not_compared": "timeout"}


def test_whoever_compares_can_ask_whether_anyone_wants_to_know() -> None:
    for rules, wanted in (({"check_conflicts": True}, True), ({}, False)):
        scoped = PolicyEngine([policy("retrieval", **rules), policy("grounding", name="g")]).in_scope()
        assert scoped.checks_conflicts is wanted
    for rules, wanted in (({"factual_consistency_check": True}, True), ({"require_valid_citations": True}, False)):
        settings = PolicyEngine([policy("grounding", **rules)]).in_scope().grounding_settings
        assert settings.consistency_check is wanted
        assert settings.valid_citations is not wanted
