from typing import Any

import pytest

from judges.types import Consistency, Contradiction, LocatedStatement, Span
from policies.policy_selection import PolicySet
from policies.registry import CATEGORIES, parse_rules
from policies.types import Action, Phase, PolicyInputs, Violation
from tests.support.policy_builders import chunk, found, policy


def said(text: str, **fields: Any) -> LocatedStatement:
    return LocatedStatement(text=text, span=Span(0, len(text)), **fields)


def documents(first: int = 0, second: int = 1, score: float = 0.9) -> Consistency:
    one, other = said("It is 25 days.", document_index=first), said("It is 40 days.", document_index=second)
    return Consistency(contradictions=[Contradiction(first=one, second=other, score=score)])


def before(rules: dict[str, Any], sources: tuple[str | None, ...], **fields: Any) -> tuple[Violation, ...]:
    chunks = [chunk(index, source=source) for index, source in enumerate(sources)]
    return found(
        "retrieval", Phase.BEFORE_WORKFLOW, rules, PolicyInputs(chunks=chunks, conflicts=documents(), **fields)
    )


def test_contradicting_documents_are_a_warning() -> None:
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
def test_documents_are_named_distinguishably(sources: tuple[str | None, ...], names: str) -> None:
    (violation,) = before({"check_conflicts": True}, sources)
    assert violation.reason.startswith(f"Documents {names} contradict")


def test_conflicts_are_reported_only_if_a_rule_asks_and_between_used_documents() -> None:
    assert before({}, ("old.pdf", "new.pdf")) == ()
    assert before({"check_conflicts": True}, ("old.pdf", "new.pdf"), dropped=frozenset({1})) == ()
    dropping = {"check_conflicts": True, "blocked_sources": ["old.pdf"], "action_on_blocked_source": "drop"}
    codes = [v.reason_code for v in before(dropping, ("old.pdf", "new.pdf"), injectable=True)]
    assert codes == ["RETRIEVAL_BLOCKED_SOURCE"]


def test_uncertain_conflict_is_none() -> None:
    inputs = PolicyInputs(chunks=[chunk(0), chunk(1)], conflicts=documents(score=0.69))
    assert found("retrieval", Phase.BEFORE_WORKFLOW, {"check_conflicts": True}, inputs) == ()


def test_skipped_comparison_is_reported() -> None:
    inputs = PolicyInputs(chunks=[chunk()], conflicts=Consistency(reason="timeout"))
    rules = parse_rules("retrieval", {"check_conflicts": True})
    findings = CATEGORIES["retrieval"].evaluate(Phase.BEFORE_WORKFLOW, rules, inputs)
    assert findings is not None
    assert findings.violations == ()
    assert findings.metadata == {"chunk_count": 1, "not_compared": "timeout"}


@pytest.mark.parametrize("wanted", [True, False])
def test_policy_set_knows_whether_to_compare_documents(wanted: bool) -> None:
    policies = (policy("retrieval", check_conflicts=wanted), policy("grounding", "g"))
    assert PolicySet(policies).document_needs.compares is wanted
