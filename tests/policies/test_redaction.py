"""What is logged of decisions has no text that they quote, and everything else as it was."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judges.types import Consistency, Contradiction, LlmScore, LocatedStatement, Span
from policies.evaluation import decision_to_dict, evaluate_policy
from policies.grounding.rules import GroundingRules
from policies.redaction import TEXT_FIELDS, redacted_marker, without_text
from policies.registry import CATEGORIES, parse_rules
from policies.types import Citation, Decision, Phase, Policy, PolicyInputs, UnjudgedText
from tests.support.policy_builders import chunk, claim

RULES: dict[str, Any] = {
    "contradiction_action": "flag",
    "unverifiable_action": "strip",
    "max_unverifiable_ratio": 0.0,
    "max_unsupported_claims": 0,
    "require_valid_citations": True,
    "factual_consistency_check": True,
    "unjudged_action": "warn",
    "llm_grounding_model": "m",
    "llm_grounding_check": True,
    "llm_grounding_threshold": 0.9,
}
LETTERS = "abcdefghijklmnopqrstuvwxyzäß0123456789"
# "qx" is in no word of ours; the others are in reasons, actions and field names.
WORDS = st.one_of(st.text(LETTERS, min_size=3, max_size=9).map("qx".__add__), st.sampled_from(["low", "warn", "claim"]))
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)


def statement(text: str) -> LocatedStatement:
    return LocatedStatement(text=text, span=Span(0, len(text)), document_index=0)


def decisions(texts: list[str]) -> Iterator[Decision]:
    """Decisions that quote all of ``texts`` wherever a decision can."""
    rules = GroundingRules.model_validate(RULES)
    request = rules.score_request
    assert request is not None
    against = [Contradiction(first=statement(first), second=statement(first[::-1]), score=1.0) for first in texts]
    inputs = PolicyInputs(
        chunks=(chunk(0, source="faq.pdf"), chunk(1, source="hr.pdf")),
        claims=[
            *(claim(0.0, 0.99, text=text, correction=text) for text in texts),
            *(claim(0.0, 0.0, text=text, sentence=index) for index, text in enumerate(texts, 1)),
        ],
        citations=[
            *(Citation(marker=f"[{text}]", sentence_index=0) for text in texts),
            *(Citation(marker=f"[{text}]", sentence_index=0, document_index=1) for text in texts),
        ],
        reported_unsupported=texts,
        unjudged=[UnjudgedText(kind="code", text=text, span=Span(0, 1), sentence_index=0) for text in texts],
        consistency=Consistency(contradictions=against),
        conflicts=Consistency(contradictions=[]),
        llm_scores=[LlmScore(request=request, score=0.1, reasoning=" ".join(texts))],
    )
    for phase in (Phase.MID_EXECUTION, Phase.AFTER_WORKFLOW):
        policy = Policy(id="p", name="p", category="grounding", rules=rules)
        result = evaluate_policy(policy, CATEGORIES["grounding"], phase, inputs)
        assert result is not None
        yield result.decision
    conflicts = PolicyInputs(
        chunks=(chunk(0, source="faq.pdf"), chunk(1, source="hr.pdf")),
        conflicts=Consistency(contradictions=against),
    )
    policy = Policy(id="p", name="p", category="retrieval", rules=parse_rules("retrieval", {"check_conflicts": True}))
    result = evaluate_policy(policy, CATEGORIES["retrieval"], Phase.BEFORE_WORKFLOW, conflicts)
    assert result is not None
    yield result.decision


def without_texts(value: Any) -> Any:
    """``value`` without what may quote text: the rest must stay as it was."""
    if isinstance(value, Mapping):
        kept = {name: inner for name, inner in value.items() if name not in TEXT_FIELDS | {"reason", "warnings"}}
        return {name: without_texts(inner) for name, inner in kept.items()}
    if isinstance(value, list | tuple):
        return [without_texts(inner) for inner in value]
    return value


@given(st.lists(TEXTS, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_no_word_of_a_text_is_logged_and_nothing_else_changes(texts: list[str]) -> None:
    for decision in decisions(texts):
        logged = without_text(decision)
        assert "qx" not in repr(logged)
        assert "xq" not in repr(logged)
        before, after = decision_to_dict(decision), decision_to_dict(logged)
        assert without_texts(before) == without_texts(after)
        assert len(before["metadata"].get("warnings", ())) == len(after["metadata"].get("warnings", ()))
        assert without_text(logged) is logged


def test_every_kind_of_violation_that_quotes_is_tried_here() -> None:
    codes = {
        violation["reason_code"]
        for decision in decisions(["some words"])
        for violation in decision.metadata.get("violations", [{"reason_code": decision.reason_code}])
    }
    assert codes >= {
        "GROUNDING_CONTRADICTION",
        "GROUNDING_UNVERIFIABLE",
        "GROUNDING_UNSUPPORTED",
        "GROUNDING_BAD_CITATION",
        "GROUNDING_INCONSISTENT",
        "GROUNDING_UNJUDGED",
        "GROUNDING_LLM_SCORE",
        "RETRIEVAL_CONFLICT",
    }


def test_a_claim_that_says_low_changes_no_other_word() -> None:
    for decision in decisions(["low"]):
        logged = without_text(decision)
        assert logged.action is decision.action
        assert "below" in logged.reason or "below" not in decision.reason


@pytest.mark.parametrize("marker", ["[1]", "[12]", "【4:0†source】", "【4†】", "[1, 3-5]", "[^2]", "［7］", "(3)"])
def test_a_number_is_a_marker_without_text(marker: str) -> None:
    assert redacted_marker(marker) == marker


@pytest.mark.parametrize(
    "marker", ["[Jane Roe takes 8888 tablets daily.pdf]", "[faq.pdf]", "【1†faq.pdf】", "[8888]", "[1]x", "1", ""]
)
def test_any_other_marker_is_text(marker: str) -> None:
    assert redacted_marker(marker) == "…"
