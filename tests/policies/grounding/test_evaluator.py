"""Every row of the table of grounding rules, and the scenarios behind its reasons."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from judges.types import Chunk, Span
from policies.registry import CATEGORIES, parse_rules
from policies.types import Action, Citation, Phase, PolicyInputs, UnjudgedText
from tests.support.policy_builders import NOT_A_CLAIM, chunk, claim, found

ANSWER = (chunk(0, source="faq.pdf"),)
CITED = (Citation(marker="[1]", document_index=0, sentence_index=0),)


def mid(rules: dict[str, Any], **fields: Any) -> Any:
    defaults: dict[str, Any] = {"chunks": ANSWER, "final": False}
    return found("grounding", Phase.MID_EXECUTION, rules, PolicyInputs(**(defaults | fields)))


def after(rules: dict[str, Any], **fields: Any) -> Any:
    defaults: dict[str, Any] = {"chunks": ANSWER, "citations": CITED}
    return found("grounding", Phase.AFTER_WORKFLOW, rules, PolicyInputs(**(defaults | fields)))


def outcome(phase: Phase, rules: dict[str, Any], inputs: PolicyInputs) -> Any:
    return CATEGORIES["grounding"].evaluate(phase, parse_rules("grounding", rules), inputs)


def reported(*names: str) -> tuple[Citation, ...]:
    return tuple(Citation(marker=name, reported=True) for name in names)


def test_rules_are_recorded_before_the_workflow() -> None:
    findings = outcome(Phase.BEFORE_WORKFLOW, {}, PolicyInputs())
    assert (findings.violations, findings.reason) == ((), "Grounding rules bound")


# --- scores


@pytest.mark.parametrize("action", ["warn", "block"])
def test_low_score_is_a_violation(action: str) -> None:
    (violation,) = mid({"action_on_violation": action}, claims=[claim(0.9), claim(0.42)])
    assert violation.action == action
    assert violation.reason == "Grounding score (0.42) below threshold (0.7)"
    assert violation.reason_code == "GROUNDING_LOW_SCORE"
    assert violation.metadata == {"score": 0.42, "threshold": 0.7}


def test_only_the_first_low_score_is_reported() -> None:
    (violation,) = mid({}, claims=[claim(0.9), claim(0.6), claim(0.1)])
    assert violation.metadata["score"] == 0.6


def test_score_equal_to_the_threshold_passes() -> None:
    assert mid({}, claims=[claim(0.7)]) == ()


def test_no_score_is_allowed() -> None:
    findings = outcome(Phase.MID_EXECUTION, {"action_on_violation": "block"}, PolicyInputs(final=True))
    assert (findings.violations, findings.reason) == ((), "No grounding scores to check")


def test_claim_without_a_verdict_has_no_score() -> None:
    assert mid({}, claims=[claim(0.0, reason="timeout"), claim(0.0, label=NOT_A_CLAIM)]) == ()


@pytest.mark.parametrize(
    ("floor", "passes"),
    [(0.5, True), (None, False)],
)
def test_scores_below_the_floor_are_ignored(floor: float | None, passes: bool) -> None:
    chunks = [chunk(i, relevance_score=score) for i, score in enumerate((0.92, 0.87, 0.85, 0.35, 0.22))]
    violations = mid({"score_source": "retrieval", "score_relevance_floor": floor}, chunks=chunks)
    assert (violations == ()) is passes
    if not passes:
        assert violations[0].reason == "Grounding score (0.35) below threshold (0.7)"


def test_no_score_above_the_floor_is_a_violation() -> None:
    rules = {"score_source": "reported", "score_relevance_floor": 0.5, "action_on_violation": "block"}
    (violation,) = mid(rules, reported_scores=[0.1, 0.2])
    assert violation.reason == "No grounding scores above relevance floor — all retrieved results appear irrelevant"
    assert violation.reason_code == "GROUNDING_IRRELEVANT"
    assert violation.metadata == {"floor": 0.5, "scores": [0.1, 0.2]}
    assert violation.action is Action.BLOCK


def test_floor_does_not_apply_to_judge_scores() -> None:
    """Otherwise a claim would pass because no document supports it."""
    rules = {"score_relevance_floor": 0.5}
    for final in (False, True):
        (violation,) = mid(rules, claims=[claim(0.1), claim(0.8)], final=final)
        assert violation.reason == "Grounding score (0.10) below threshold (0.7)"
    (violation,) = mid(rules, judged=False, reported_scores=[0.1])
    assert violation.reason_code == "GROUNDING_IRRELEVANT"


def test_average_mode() -> None:
    (violation,) = mid({"score_source": "reported", "score_eval_mode": "average"}, reported_scores=[0.4, 0.7])
    assert violation.reason == "Average grounding score (0.55) below threshold (0.7)"
    assert violation.metadata == {"score": 0.55, "threshold": 0.7, "mode": "average"}
    assert violation.reason_code == "GROUNDING_LOW_SCORE"


@pytest.mark.parametrize("mode", ["average", "top_n"])
def test_judge_scores_are_averaged_only_at_the_end(mode: str) -> None:
    claims = [claim(0.2), claim(0.3)]
    assert mid({"score_eval_mode": mode}, claims=claims) == ()
    assert len(mid({"score_eval_mode": mode}, claims=claims, final=True)) == 1


def test_top_n_mode() -> None:
    rules = {"score_source": "reported", "score_eval_mode": "top_n", "score_top_n": 2}
    assert mid(rules, reported_scores=[0.1, 0.9, 0.8]) == ()
    (violation,) = mid(rules | {"score_top_n": 3}, reported_scores=[0.1, 0.9, 0.8])
    assert violation.metadata == {"score": 0.1, "threshold": 0.7}


@pytest.mark.parametrize(("source", "score"), [("judge", 0.3), ("reported", 0.2), ("retrieval", 0.1)])
def test_source_of_scores(source: str, score: float) -> None:
    (violation,) = mid(
        {"score_source": source},
        claims=[claim(0.3)],
        reported_scores=[0.2],
        chunks=[chunk(relevance_score=0.1), chunk(relevance_score=None)],
    )
    assert violation.metadata["score"] == score


def test_reported_scores_count_if_nothing_was_judged() -> None:
    """What a run reports is checked by the default rules too."""
    (violation,) = mid({}, judged=False, reported_scores=[0.85, 0.42], chunks=())
    assert violation.reason == "Grounding score (0.42) below threshold (0.7)"


# --- claims that must not be sent


def test_contradicted_claim_blocks_at_once() -> None:
    rules = {"contradiction_action": "block", "min_grounding_score": 0}
    (violation,) = mid(rules, claims=[claim(0.1, 0.95)])
    assert violation.action is Action.BLOCK
    assert violation.reason == "Claim contradicts source 'faq.pdf': \"It costs 5 euros.\""
    assert violation.reason_code == "GROUNDING_CONTRADICTION"
    assert violation.metadata["claim"] == "It costs 5 euros."
    assert violation.metadata["verdict"] == "contradicted"
    assert violation.metadata["best_source"]["document_id"] == "d0"


@pytest.mark.parametrize("action", ["flag", "correct"])
def test_contradicted_claim_is_a_warning_at_the_end_by_default(action: str) -> None:
    rules = {"contradiction_action": action, "min_grounding_score": 0}
    claims = [claim(0.1, 0.95)]
    assert mid(rules, claims=claims) == ()
    (violation,) = after(rules, claims=claims)
    assert (violation.action, violation.reason_code) == (Action.WARN, "GROUNDING_CONTRADICTION")


def test_block_applies_if_only_the_whole_reply_is_checked() -> None:
    (violation,) = after({"contradiction_action": "block"}, claims=[claim(0.1, 0.95)])
    assert violation.action is Action.BLOCK


def test_contradicting_document_is_named() -> None:
    against = claim(document=3, source=None).best_source
    (violation,) = after({}, claims=[claim(0.1, 0.95, contradicting_source=against)])
    assert violation.reason.startswith("Claim contradicts source 'd3'")


@pytest.mark.parametrize(
    ("threshold", "contradicted"),
    [(0.7, True), (0.8, True), (0.81, False)],
)
def test_each_policy_labels_by_its_own_threshold(threshold: float, contradicted: bool) -> None:
    rules = {"contradiction_threshold": threshold, "contradiction_action": "block", "min_grounding_score": 0}
    assert bool(mid(rules, claims=[claim(0.1, 0.8)])) is contradicted


def test_entailment_threshold_applies() -> None:
    rules = {"entailment_threshold": 0.5, "max_unverifiable_ratio": 0.0}
    assert after(rules, claims=[claim(0.5)]) == ()
    assert len(after(rules, claims=[claim(0.49)])) == 1


def test_strip_removes_the_sentence_and_its_score() -> None:
    (violation,) = mid({"unverifiable_action": "strip", "action_on_violation": "block"}, claims=[claim(0.1)])
    assert violation.action is Action.DROP
    assert violation.reason_code == "GROUNDING_UNVERIFIABLE"


def test_strip_has_no_effect_on_delivered_text() -> None:
    rules = {"unverifiable_action": "strip"}
    assert [v.reason_code for v in mid(rules, claims=[claim(0.1)], strippable=False)] == ["GROUNDING_LOW_SCORE"]


# --- the whole reply


def test_grounded_reply_is_allowed() -> None:
    citations = [Citation(marker=f"[{i}]", document_index=i, sentence_index=0) for i in range(3)]
    inputs = PolicyInputs(chunks=[chunk(i) for i in range(3)], claims=[claim()], citations=[*citations, citations[0]])
    findings = outcome(Phase.AFTER_WORKFLOW, {}, inputs)
    assert findings.violations == ()
    assert findings.reason == "Grounding audit passed (3 citations)"
    assert findings.metadata == {"citation_count": 3}
    assert findings.reason_code is None


def test_too_few_citations_are_a_violation() -> None:
    (violation,) = after({}, citations=())
    assert violation.action is Action.WARN
    assert violation.reason == "Citations (0) below minimum (1)"
    assert violation.reason_code == "GROUNDING_CITATIONS"
    assert violation.metadata == {"warnings": ["Citations (0) below minimum (1)"], "citation_count": 0}


def test_document_cited_twice_counts_once() -> None:
    (violation,) = after({"min_citations": 2}, citations=CITED * 2)
    assert violation.reason == "Citations (1) below minimum (2)"


def test_reported_citations_count() -> None:
    assert after({"min_citations": 3}, citations=[*CITED, *reported("Federal Reserve Report", "IMF Analysis")]) == ()


def test_required_grounding_and_citations_are_both_reported() -> None:
    violations = after({"require_source_grounding": True, "action_on_violation": "block"}, citations=())
    assert [v.reason for v in violations] == [
        "Citations (0) below minimum (1)",
        "No source citations provided (grounding required)",
    ]
    assert {v.action for v in violations} == {Action.BLOCK}
    assert violations[1].reason_code == "GROUNDING_REQUIRED"


def test_required_grounding_alone() -> None:
    (violation,) = after({"require_source_grounding": True, "min_citations": 0}, citations=())
    assert violation.reason_code == "GROUNDING_REQUIRED"


def test_too_many_unsupported_claims_are_a_violation() -> None:
    claims = [claim(), claim(0.1, text="A."), claim(0.1, 0.9, text="B.")]
    (violation, *_) = after({"max_unsupported_claims": 2}, claims=claims, reported_unsupported=["C."])
    assert violation.reason == "Unsupported claims (3) exceeds max (2)"
    assert violation.reason_code == "GROUNDING_UNSUPPORTED"
    assert violation.metadata["claims"] == ["C.", "A.", "B."]
    assert violation.metadata["citation_count"] == 1


@pytest.mark.parametrize("limit", [None, 2])
def test_unsupported_claims_within_the_limit(limit: int | None) -> None:
    assert after({"max_unsupported_claims": limit}, reported_unsupported=["A.", "B."]) == ()


@pytest.mark.parametrize(("action", "result"), [("flag", Action.WARN), ("block", Action.BLOCK), ("strip", Action.WARN)])
def test_unverifiable_ratio_is_checked(action: str, result: Action) -> None:
    claims = [claim(0.1, text=t) for t in "ABC"] + [claim(), claim(), claim(0, label=NOT_A_CLAIM)]
    (violation,) = after({"unverifiable_action": action}, claims=claims)
    assert violation.action is result
    assert violation.reason == "Unverifiable claims 60% (max 50%)"
    assert violation.reason_code == "GROUNDING_UNVERIFIABLE"
    assert violation.metadata == {"ratio": 0.6, "max": 0.5, "claims": ["A", "B", "C"]}


def test_half_is_not_more_than_half() -> None:
    assert after({}, claims=[claim(), claim(0.1)]) == ()


def test_removed_claims_do_not_count() -> None:
    claims = [claim(), claim(0.1, sentence=1)]
    rules = {"unverifiable_action": "strip", "max_unverifiable_ratio": 0.0, "max_unsupported_claims": 0}
    assert after(rules, claims=claims, withheld=frozenset({1})) == ()
    codes = [v.reason_code for v in after(rules, claims=claims)]
    assert codes == ["GROUNDING_UNSUPPORTED", "GROUNDING_UNVERIFIABLE"]


def test_removed_citations_do_not_count() -> None:
    (violation,) = after({}, withheld=frozenset({0}))
    assert violation.reason_code == "GROUNDING_CITATIONS"


def test_low_confidence_abstains() -> None:
    (violation,) = after({"abstention_threshold": 0.5, "action_on_violation": "block"}, output_confidence=0.42)
    assert violation.action is Action.BLOCK
    assert violation.reason == "Output confidence (0.42) below abstention threshold (0.5)"
    assert violation.reason_code == "GROUNDING_ABSTAIN"
    assert violation.metadata == {"output_confidence": 0.42, "threshold": 0.5}


@pytest.mark.parametrize(
    ("confidence", "trust", "abstains"),
    [(None, 0.4, True), (None, None, False), (0.9, 0.4, False), (0.5, None, False), (0.0, 0.9, True)],
)
def test_trust_score_replaces_a_missing_confidence(
    confidence: float | None, trust: float | None, abstains: bool
) -> None:
    violations = after({"abstention_threshold": 0.5}, output_confidence=confidence, trust_score=trust)
    assert bool(violations) is abstains


def test_marker_naming_no_document_is_a_violation() -> None:
    bad = Citation(marker="[7]", sentence_index=0)
    chunks = [chunk(i) for i in range(5)]
    assert after({}, chunks=chunks, citations=[*CITED, bad]) == ()
    (violation,) = after({"require_valid_citations": True}, chunks=chunks, citations=[*CITED, bad, bad])
    assert violation.reason == "Citation [7] names no document (5 given)"
    assert violation.reason_code == "GROUNDING_BAD_CITATION"
    assert violation.metadata == {"kind": "fabricated", "marker": "[7]", "count": 5}


def test_marker_naming_no_document_is_no_citation() -> None:
    assert [v.reason_code for v in after({}, citations=[Citation(marker="[7]", sentence_index=0)])] == [
        "GROUNDING_CITATIONS"
    ]


@pytest.mark.parametrize(
    ("claims", "valid"),
    [
        ([claim(document=1, source="other.pdf")], False),
        ([claim(document=0)], True),
        ([claim(document=1, source="faq.pdf")], True),
        ([claim(0.1)], False),
        ([claim(0.1), claim(0.9)], True),
        ([claim(document=1, source="other.pdf", support={0: 0.8, 1: 0.9})], True),
        ([claim(document=0, support={0: 0.6})], False),
        ([claim(sentence=1, document=1, source="other.pdf")], True),
        ([claim(0.0, reason="timeout")], True),
        ([], True),
    ],
)
def test_cited_document_must_support_its_sentence(claims: list[Any], valid: bool) -> None:
    chunks = [chunk(0, source="faq.pdf"), chunk(1, source="other.pdf")]
    rules = {"require_valid_citations": True, "max_unverifiable_ratio": 1.0}
    violations = after(rules, chunks=chunks, claims=claims)
    assert (violations == ()) is valid
    if not valid:
        assert violations[0].reason == "Citation [1] does not support its sentence"
        assert violations[0].metadata["document_id"] == "d0"
        assert violations[0].metadata["kind"] == "misattributed"


def test_misattributed_citation_names_the_supporting_document() -> None:
    chunks = [chunk(0, source="faq.pdf"), chunk(1, source="other.pdf"), chunk(2, source="third.pdf")]
    claims = [claim(document=1, source="other.pdf", support={0: 0.2, 1: 0.9})]
    (violation,) = after({"require_valid_citations": True}, chunks=chunks, claims=claims)
    assert violation.reason_code == "GROUNDING_BAD_CITATION"
    assert violation.metadata == {
        "kind": "misattributed",
        "marker": "[1]",
        "count": 3,
        "document_id": "d0",
        "document_index": 0,
        "sentence_index": 0,
        "supported_by": ["d1"],
    }


def test_verdict_on_the_cited_document_takes_precedence() -> None:
    """A document that a claim's own evidence doesn't come from may still support it."""
    chunks = [chunk(0, source="faq.pdf"), chunk(1, source="other.pdf")]
    made = claim(document=1, source="other.pdf", support={1: 0.9})
    asked = {(made.claim.span, 0): 0.8}
    rules = {"require_valid_citations": True}
    assert after(rules, chunks=chunks, claims=[made], cited_support=asked) == ()
    assert after(rules, chunks=chunks, claims=[made], cited_support={key: 0.1 for key in asked}) != ()


def test_violations_are_collected_in_order_of_evaluation() -> None:
    rules = {
        "require_source_grounding": True,
        "max_unsupported_claims": 0,
        "max_unverifiable_ratio": 0.1,
        "abstention_threshold": 0.5,
        "require_valid_citations": True,
    }
    violations = after(
        rules,
        claims=[claim(0.1), claim(0.1, 0.9)],
        citations=[Citation(marker="[7]", sentence_index=0)],
        trust_score=0.0,
    )
    assert [v.reason_code for v in violations] == [
        "GROUNDING_CITATIONS",
        "GROUNDING_REQUIRED",
        "GROUNDING_UNSUPPORTED",
        "GROUNDING_UNVERIFIABLE",
        "GROUNDING_CONTRADICTION",
        "GROUNDING_ABSTAIN",
        "GROUNDING_BAD_CITATION",
    ]


# --- nothing to check


def test_no_documents() -> None:
    findings = outcome(Phase.AFTER_WORKFLOW, {"min_citations": 0}, PolicyInputs(judged=False))
    assert findings.violations == ()
    assert (findings.reason, findings.reason_code) == ("No sources to ground against", "GROUNDING_NO_SOURCES")


def test_without_documents_there_are_no_citations() -> None:
    rules = {"min_citations": 2, "action_on_violation": "block"}
    (violation,) = outcome(Phase.AFTER_WORKFLOW, rules, PolicyInputs(judged=False)).violations
    assert (violation.action, violation.reason) == (Action.BLOCK, "Citations (0) below minimum (2)")


@pytest.mark.parametrize("chunks", [(), ANSWER])
def test_reply_that_claims_nothing_needs_no_citation(chunks: Sequence[Chunk]) -> None:
    rules = {"require_source_grounding": True, "min_citations": 2, "action_on_violation": "block"}
    silent = PolicyInputs(chunks=chunks, coverage=1.0, trust_score=None)
    assert outcome(Phase.AFTER_WORKFLOW, rules, silent).violations == ()
    stating = [
        replace(silent, unjudged=[UnjudgedText(kind="code", span=Span(0, 4), sentence_index=0, text="2+2;")]),
        replace(silent, claims=[claim(0.9)]),
        replace(silent, coverage=None),
        replace(silent, of_run=True),
    ]
    for inputs in stating:
        codes = [violation.reason_code for violation in outcome(Phase.AFTER_WORKFLOW, rules, inputs).violations]
        assert codes[:2] == ["GROUNDING_CITATIONS", "GROUNDING_REQUIRED"]


def test_required_grounding_without_documents_is_a_violation() -> None:
    rules = {"require_source_grounding": True, "min_citations": 0, "action_on_violation": "block"}
    findings = outcome(Phase.AFTER_WORKFLOW, rules, PolicyInputs(judged=False))
    (violation,) = findings.violations
    assert (violation.action, violation.reason_code) == (Action.BLOCK, "GROUNDING_REQUIRED")


def test_reported_grounding_is_evaluated_without_documents() -> None:
    inputs = PolicyInputs(reported_unsupported=["A.", "B."], output_confidence=0.3, judged=False)
    rules = {"max_unsupported_claims": 0, "abstention_threshold": 0.5}
    findings = outcome(Phase.AFTER_WORKFLOW, rules, inputs)
    assert [v.reason for v in findings.violations] == [
        "Citations (0) below minimum (1)",
        "Unsupported claims (2) exceeds max (0)",
        "Output confidence (0.30) below abstention threshold (0.5)",
    ]


def test_reply_with_tool_calls_is_not_checked() -> None:
    rules = {"require_source_grounding": True, "action_on_violation": "block", "on_judge_unavailable": "block"}
    for chunks in (ANSWER, ()):
        inputs = PolicyInputs(chunks=chunks, judged=False, tool_calls_only=True)
        findings = outcome(Phase.AFTER_WORKFLOW, rules, inputs)
        assert (findings.violations, findings.reason_code) == ((), "GROUNDING_NOT_CHECKED")


def test_unjudged_reply_is_reported() -> None:
    inputs = PolicyInputs(chunks=ANSWER, judged=False, judge_unavailable=True)
    rules = {"action_on_violation": "block", "min_citations": 0}
    assert outcome(Phase.MID_EXECUTION, rules, inputs).violations == ()
    (violation,) = outcome(Phase.AFTER_WORKFLOW, rules, inputs).violations
    assert (violation.action, violation.reason_code) == (Action.WARN, "GROUNDING_NOT_CHECKED")
    assert violation.reason == "Reply not checked: no judge is available"


def test_citations_are_counted_without_a_judge() -> None:
    inputs = PolicyInputs(chunks=ANSWER, judged=False, judge_unavailable=True)
    found = outcome(Phase.AFTER_WORKFLOW, {"action_on_violation": "block"}, inputs).violations
    assert [(v.action, v.reason_code) for v in found] == [
        (Action.WARN, "GROUNDING_NOT_CHECKED"),
        (Action.BLOCK, "GROUNDING_CITATIONS"),
    ]


def test_policy_can_require_a_judge() -> None:
    rules = {"on_judge_unavailable": "block", "min_citations": 0}
    for phase, final in ((Phase.MID_EXECUTION, False), (Phase.AFTER_WORKFLOW, True)):
        inputs = PolicyInputs(chunks=ANSWER, judged=False, judge_unavailable=True, final=final)
        (violation,) = outcome(phase, rules, inputs).violations
        assert (violation.action, violation.reason_code) == (Action.BLOCK, "GROUNDING_NOT_CHECKED")


def test_missing_judge_is_irrelevant_without_documents() -> None:
    inputs = PolicyInputs(judged=False, judge_unavailable=True, final=False)
    assert outcome(Phase.MID_EXECUTION, {"on_judge_unavailable": "block"}, inputs).violations == ()


@pytest.mark.parametrize(
    "rules",
    [
        {"factual_consistency_check": True},
        {"llm_grounding_check": True, "llm_grounding_threshold": 1.0, "llm_grounding_phase": "both"},
        {"llm_grounding_model": "claude-haiku", "llm_grounding_criteria": "Be strict."},
    ],
)
def test_ineffective_rules_are_accepted(rules: dict[str, Any]) -> None:
    assert after(rules, claims=[claim(), claim()]) == ()
    assert mid(rules, claims=[claim(), claim()]) == ()
