"""Numbers in reasons are written as in rules, and quoted text is removed if it must not be visible."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from judges.llm_types import LlmScore
from judges.types import Consistency, Contradiction, LocatedStatement, Span
from policies import reason_texts
from policies.evaluation import decision_to_dict, evaluate_policy
from policies.grounding.rules import GroundingRules
from policies.reason_texts import TEXT_FIELDS, redacted_marker, without_text
from policies.registry import parse_rules
from policies.types import Citation, Decision, Phase, Policy, PolicyInputs, UnjudgedText
from tests.support.policy_builders import chunk, claim

UNIT = st.floats(0, 1)


@pytest.mark.parametrize(
    ("value", "limit", "shown"),
    [
        (0.42, 0.7, "0.42"),
        (0.6999, 0.7, "0.6999"),
        (0.699, 0.7, "0.699"),
        (0.7, 0.705, "0.70"),
        (0.7000001, 0.7, "0.7000001"),
        (0.0, 1e-9, "0.00"),
    ],
)
def test_scores(value: float, limit: float, shown: str) -> None:
    assert reason_texts.score_beside(value, limit) == shown


@pytest.mark.parametrize(
    ("ratio", "limit", "shown"),
    [(0.75, 0.6, "75%"), (0.6003, 0.6, "60.03%"), (2 / 3, 0.666, "67%"), (0.89996, 0.9, "89.996%"), (0.62, 0.9, "62%")],
)
def test_shares(ratio: float, limit: float, shown: str) -> None:
    assert reason_texts.share_beside(ratio, limit) == shown


@pytest.mark.parametrize(("value", "shown"), [(0.7, "0.70"), (1, "1.00"), (0.705, "0.705"), (0.0, "0.00")])
def test_thresholds(value: float, shown: str) -> None:
    assert reason_texts.threshold(value) == shown


@pytest.mark.parametrize(("ratio", "shown"), [(0.6, "60%"), (0.57, "57%"), (0.333, "33.3%"), (0.29, "29%")])
def test_limits(ratio: float, shown: str) -> None:
    assert reason_texts.limit(ratio) == shown


@given(value=UNIT, limit=UNIT)
def test_reason_never_contradicts_itself(value: float, limit: float) -> None:
    """A number that violates a limit never rounds to one that doesn't."""
    assume(abs(value - limit) > 1e-12)
    for shown in (reason_texts.threshold(limit), reason_texts.number(limit)):
        assert (float(reason_texts.score_beside(value, limit)) < float(shown)) == (value < limit)
    measured = float(reason_texts.share_beside(value, limit).rstrip("%"))
    allowed = float(reason_texts.limit(limit).rstrip("%"))
    assert measured != allowed


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
    """Decisions that quote ``texts`` wherever possible."""
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
        result = evaluate_policy(policy, phase, inputs)
        assert result is not None
        yield result.decision
    conflicts = PolicyInputs(
        chunks=(chunk(0, source="faq.pdf"), chunk(1, source="hr.pdf")),
        conflicts=Consistency(contradictions=against),
    )
    policy = Policy(id="p", name="p", category="retrieval", rules=parse_rules("retrieval", {"check_conflicts": True}))
    result = evaluate_policy(policy, Phase.BEFORE_WORKFLOW, conflicts)
    assert result is not None
    yield result.decision


def without_texts(value: Any) -> Any:
    """``value`` without fields that may quote text; the rest must be unchanged."""
    if isinstance(value, Mapping):
        kept = {name: inner for name, inner in value.items() if name not in TEXT_FIELDS | {"reason", "warnings"}}
        return {name: without_texts(inner) for name, inner in kept.items()}
    if isinstance(value, list | tuple):
        return [without_texts(inner) for inner in value]
    return value


@given(st.lists(TEXTS, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_redaction_removes_all_quoted_text_and_nothing_else(texts: list[str]) -> None:
    for decision in decisions(texts):
        logged = without_text(decision)
        assert "qx" not in repr(logged)
        assert "xq" not in repr(logged)
        before, after = decision_to_dict(decision), decision_to_dict(logged)
        assert without_texts(before) == without_texts(after)
        assert len(before["metadata"].get("warnings", ())) == len(after["metadata"].get("warnings", ()))
        assert without_text(logged) is logged


def test_every_quoting_violation_is_tested() -> None:
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


def test_claim_that_says_low_changes_no_other_word() -> None:
    for decision in decisions(["low"]):
        logged = without_text(decision)
        assert logged.action is decision.action
        assert "below" in logged.reason or "below" not in decision.reason


@pytest.mark.parametrize("marker", ["[1]", "[12]", "【4:0†source】", "【4†】", "[1, 3-5]", "[^2]", "［7］", "(3)"])
def test_numeric_marker_is_kept(marker: str) -> None:
    assert redacted_marker(marker) == marker


@pytest.mark.parametrize(
    "marker", ["[Jane Roe takes 8888 tablets daily.pdf]", "[faq.pdf]", "【1†faq.pdf】", "[8888]", "[1]x", "1", ""]
)
def test_other_markers_are_redacted(marker: str) -> None:
    assert redacted_marker(marker) == "…"
