"""Replaying decisions from the log of a request."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from judges.label_thresholds import Thresholds
from judges.llm_types import LlmScore
from judges.types import Claim, Consistency, Contradiction, LocatedStatement, Span
from policies.base import JudgeOptions
from policies.policy_selection import PolicySet
from policies.replay import (
    CONFLICTS,
    CONSISTENCY,
    CORRECTIONS,
    DOCUMENTS,
    INSTRUCTIONS,
    LLM,
    MORE_CLAIMS,
    NO_REPLY,
    NOT_JUDGED,
    STANDINGS,
    THRESHOLDS,
    TOOLS,
    ChoiceLog,
    ReplayResult,
    RequestLog,
    replay,
    shadow_decisions,
)
from policies.types import Action, Citation, Policy, PolicyInputs, UnjudgedText
from tests.support.policy_builders import chunk, claim, policy

JUDGING = JudgeOptions(thresholds=Thresholds(), max_sources=5, max_claims=None)
NEW, OLD = chunk(0), chunk(1, age_days=400)


def log(*choices: ChoiceLog, **fields: Any) -> RequestLog:
    return RequestLog(**{"chunks": [NEW], "judging": JUDGING, "choices": choices, **fields})


def choice(*claims: Any, positions: tuple[int, ...] = (0,), **fields: Any) -> ChoiceLog:
    own = {name: fields.pop(name) for name in ("skipped", "complete", "ready") if name in fields}
    return ChoiceLog(inputs=PolicyInputs(claims=claims, **fields), positions=positions, **own)


def decided(of: RequestLog, *policies: Policy) -> ReplayResult:
    return replay(PolicySet(policies), of)


def grounding(name: str = "p", **rules: Any) -> Policy:
    return policy("grounding", name, **{"min_citations": 0, **rules})


def test_unchanged_reply_is_allowed() -> None:
    made = decided(log(choice(claim())), grounding())
    assert (made.action, made.doubts) == (Action.ALLOW, frozenset())
    assert [decision.phase.value for decision in made.decisions] == [
        "before_workflow",
        "mid_execution",
        "after_workflow",
    ]


def test_removed_sentence_loses_its_citations() -> None:
    cited = [Citation(marker="[1]", document_index=0, sentence_index=1)]
    of = log(choice(claim(), claim(0.1, sentence=1), citations=cited))
    strip = grounding(unverifiable_action="strip", max_unverifiable_ratio=1.0, min_citations=1)
    made = decided(of, strip)
    assert [decision.action.value for decision in made.decisions] == ["allow", "drop", "warn"]
    assert made.decisions[-1].reason == "Citations (0) below minimum (1)"
    assert made.action is Action.WARN
    live = decided(
        replace(of, stream=True), replace(strip, rules=strip.rules.model_copy(update={"stream_mode": "live"}))
    )
    assert "drop" not in {decision.action.value for decision in live.decisions}


def test_trust_score_uses_the_thresholds_in_force() -> None:
    of = log(choice(claim(0.65), trust_score=0.0))
    low = grounding(
        entailment_threshold=0.6, min_grounding_score=0, abstention_threshold=0.9, action_on_violation="block"
    )
    assert decided(of, low).action is Action.ALLOW
    high = grounding(min_grounding_score=0, abstention_threshold=0.9, action_on_violation="block")
    assert decided(of, high).action is Action.BLOCK


def test_each_choice_is_decided_and_rules_are_recorded_once() -> None:
    of = log(choice(claim()), choice(claim(0.0, 0.9)))
    made = decided(of, grounding(contradiction_action="block"))
    assert [(decision.phase.value, decision.action.value) for decision in made.decisions] == [
        ("before_workflow", "allow"),
        ("mid_execution", "allow"),
        ("after_workflow", "allow"),
        ("mid_execution", "block"),
    ]
    assert made.action is Action.BLOCK


def test_other_documents_are_a_doubt_and_the_rest_keeps_its_position() -> None:
    """The first document is dropped: the verdict on the second is still valid, under its new number."""
    cited = [Citation(marker="[1]", document_index=0), Citation(marker="[2]", document_index=1)]
    on_both = claim(0.9, document=1, support={0: 0.2, 1: 0.9})
    of = log(
        choice(on_both, positions=(0, 1), citations=cited, cited_support={(Span(0, 5), 1): 0.9}),
        chunks=[OLD, NEW],
        injectable=True,
    )
    gate = policy("retrieval", "gate", action_on_stale_source="drop")
    made = decided(of, gate, grounding(require_valid_citations=True))
    assert made.dropped == {0}
    assert made.doubts == {DOCUMENTS}
    assert made.decisions[-1].reason == "Citation [1] names no document (1 given)"
    put_back = replace(
        of,
        dropped=frozenset({0}),
        choices=[choice(claim(0.9, document=0), positions=(1,), citations=[Citation(marker="[1]", document_index=0)])],
    )
    again = decided(put_back, grounding(min_citations=1))
    assert again.doubts == {DOCUMENTS}
    assert again.decisions[-1].metadata["citation_count"] == 1


def test_reply_is_ignored_without_a_grounding_policy() -> None:
    made = decided(log(blocked=True, chunks=[OLD]), policy("retrieval", action_on_stale_source="warn"))
    assert (made.action, made.doubts) == (Action.WARN, frozenset())


CONFLICT = Consistency(
    contradictions=[
        Contradiction(
            first=LocatedStatement(text="It opens at 8.", span=Span(0, 5), document_index=0),
            second=LocatedStatement(text="It opens at 9.", span=Span(0, 5), document_index=1),
            score=0.9,
        )
    ]
)


@pytest.mark.parametrize(
    ("rules", "of", "doubt"),
    [
        ({"llm_grounding_check": True}, log(choice(claim())), LLM),
        ({"factual_consistency_check": True}, log(choice(claim(), claim(sentence=1))), CONSISTENCY),
        ({"evidence_from_tools": True}, log(choice(claim()), tools=False), TOOLS),
        ({"max_claims": 9}, log(choice(claim(), skipped=2), judging=replace(JUDGING, max_claims=1)), MORE_CLAIMS),
        (
            {"entailment_threshold": 0.5},
            log(choice(claim(0.8, support={0: 0.8, 1: 0.8}), positions=(0, 1)), chunks=[NEW, NEW]),
            THRESHOLDS,
        ),
    ],
)
def test_missing_findings_are_a_doubt(rules: dict[str, Any], of: RequestLog, doubt: str) -> None:
    assert decided(of, grounding(**rules)).doubts == {doubt}
    assert decided(of, grounding(max_claims=of.judging.max_claims if of.judging else None)).doubts == set()


def test_logged_findings_are_no_doubt() -> None:
    asked = grounding(llm_grounding_check=True, factual_consistency_check=True)
    (request,) = PolicySet((asked,)).reply_settings.score_requests
    scores = [LlmScore(request=request, score=0.1)]
    of = log(choice(claim(), claim(sentence=1), llm_scores=scores, consistency=Consistency()))
    made = decided(of, asked)
    assert made.doubts == set()
    assert "GROUNDING_LLM_SCORE" in {decision.reason_code for decision in made.decisions}


CORRECT: dict[str, Any] = {"contradiction_action": "correct", "action_on_violation": "block", "min_grounding_score": 0}


@pytest.mark.parametrize("lax_first", [True, False])
@pytest.mark.parametrize(("score", "action"), [(0.5, Action.BLOCK), (0.95, Action.WARN)])
def test_every_policy_must_accept_a_logged_correction(score: float, action: Action, lax_first: bool) -> None:
    wrong = claim(0.0, 0.95, correction="…", corrected=(claim(score),))
    lax = grounding("lax", **CORRECT, entailment_threshold=0.2)
    strict = grounding("strict", entailment_threshold=0.9, min_grounding_score=0)
    of = log(choice(wrong))
    assert decided(of, lax).action is Action.WARN
    made = decided(of, *((lax, strict) if lax_first else (strict, lax)))
    assert (made.action, made.doubts) == (action, frozenset())
    corrections = {decision.metadata.get("correction") for decision in made.decisions}
    assert corrections == ({None} if action is Action.BLOCK else {None, "…"})
    shadow = shadow_decisions(PolicySet((strict,), (lax,)), of)
    assert ("block" in {decision.action.value for decision in shadow}) is (action is Action.BLOCK)


@pytest.mark.parametrize("fields", [{}, {"correction": "…"}])
def test_correction_that_is_not_in_the_log_is_a_doubt(fields: dict[str, Any]) -> None:
    of = log(choice(claim(0.0, 0.95, **fields)))
    made = decided(of, grounding(**CORRECT))
    assert (made.action, made.doubts) == (Action.BLOCK, frozenset({CORRECTIONS}))
    assert decided(of, grounding(contradiction_action="block")).doubts == set()
    assert decided(of, grounding(**CORRECT, contradiction_threshold=0.99)).doubts <= {THRESHOLDS}
    assert decided(replace(of, stream=True), grounding(**CORRECT, stream_mode="live")).doubts == set()
    assert decided(log(choice(claim())), grounding(**CORRECT)).doubts == set()


def test_texts_not_stored_cannot_be_searched() -> None:
    searching = policy("retrieval", on_injected_instructions="warn")
    assert decided(log(chunks=[replace(NEW, text="")]), searching).doubts == {INSTRUCTIONS}
    assert decided(log(chunks=[replace(NEW, text="It is free.")]), searching).doubts == set()
    assert decided(log(chunks=[replace(NEW, text="")]), policy("retrieval")).doubts == set()


def test_compared_documents_are_reported() -> None:
    checks = policy("retrieval", check_conflicts=True)
    of = log(chunks=[NEW, chunk(1)], conflicts=CONFLICT)
    assert [decision.reason_code for decision in decided(of, checks).decisions] == ["RETRIEVAL_CONFLICT"]
    assert decided(of, checks).doubts == set()
    assert decided(replace(of, conflicts=None), checks).doubts == {CONFLICTS}
    assert decided(replace(of, chunks=[NEW], conflicts=None), checks).doubts == set()


def test_shadow_policies_do_not_affect_each_other() -> None:
    """The first would end the reply at its first sentence; the second sees all of it."""
    of = log(choice(claim(0.0, 0.9), claim(0.1, sentence=1)))
    strict, count = grounding("strict", contradiction_action="block"), grounding("count", max_unsupported_claims=1)
    made = shadow_decisions(PolicySet((), (strict, count)), of)
    assert [(decision.policy_id, decision.action.value) for decision in made] == [
        ("strict", "allow"),
        ("strict", "block"),
        ("count", "allow"),
        ("count", "warn"),
        ("count", "warn"),
    ]
    assert "Unsupported claims (2) exceeds max (1)" in made[-1].reason


def test_shadow_decisions_are_those_of_the_shadow_version() -> None:
    enforced = grounding("p", max_unsupported_claims=5)
    shadow = replace(grounding("p", max_unsupported_claims=0), version=2)
    made = shadow_decisions(PolicySet((enforced,), (shadow,)), log(choice(claim(0.1))))
    assert {decision.policy_version for decision in made} == {2}


def test_claim_without_a_verdict_gets_none_from_a_threshold() -> None:
    unjudged = replace(claim(0.0), claim=Claim(text="x", span=Span(0, 1), sentence_index=0), reason="timeout")
    of = log(choice(unjudged, positions=(0, 1)), chunks=[NEW, NEW])
    assert decided(of, grounding(entailment_threshold=0.5)).doubts == set()


CODE = UnjudgedText(kind="code", text="rm -rf /", span=Span(20, 28), sentence_index=1)


@pytest.mark.parametrize(
    ("rules", "actions", "action"),
    [
        ({"unjudged_action": "allow"}, ["allow", "allow", "allow"], Action.ALLOW),
        ({}, ["allow", "allow", "warn"], Action.WARN),
        ({"unjudged_action": "strip"}, ["allow", "drop", "allow"], Action.WARN),
        ({"unjudged_action": "block"}, ["allow", "block"], Action.BLOCK),
        (
            {"unjudged_action": "allow", "min_coverage": 0.9, "action_on_violation": "block"},
            ["allow", "allow", "block"],
            Action.BLOCK,
        ),
        ({"unjudged_action": "allow", "min_coverage": 0.5}, ["allow", "allow", "allow"], Action.ALLOW),
    ],
)
def test_unjudged_text_is_decided_again(rules: dict[str, Any], actions: list[str], action: Action) -> None:
    of = log(choice(claim(), claim(sentence=2), unjudged=[CODE], coverage=0.62))
    made = decided(of, grounding(**rules))
    assert [decision.action.value for decision in made.decisions] == actions
    assert (made.action, made.doubts) == (action, frozenset())


def test_skipped_claims_would_be_unjudged() -> None:
    of = log(choice(claim(), claim(sentence=1), unjudged=[CODE], coverage=0.9))
    made = decided(of, grounding(max_claims=1, unjudged_action="block"))
    assert made.decisions[-1].reason.startswith('Unjudged text (skipped): "It costs 5 euros."')
    assert made.doubts == {STANDINGS}
    assert decided(of, grounding()).doubts == set()


@pytest.mark.parametrize("rules", [{"unjudged_action": "strip"}, {"unjudged_action": "block"}, {"min_coverage": 0.5}])
def test_log_without_unjudged_parts_is_a_doubt_if_they_matter(rules: dict[str, Any]) -> None:
    of = log(choice(claim()))
    assert decided(of, grounding(**rules)).doubts == {STANDINGS}
    assert decided(of, grounding()).doubts == set()


@pytest.mark.parametrize("rules", [{"min_citations": 1}, {"min_citations": 0, "require_source_grounding": True}])
def test_reply_that_may_state_nothing_may_need_no_citation(rules: dict[str, Any]) -> None:
    """The log doesn't say what it states, because it wasn't judged."""
    assert decided(log(choice()), grounding(**rules)).doubts == {STANDINGS}
    assert decided(log(choice(coverage=1.0)), grounding(**rules)).doubts == set()
    assert decided(log(choice()), grounding(min_citations=0)).doubts == set()


class TestBlockedBeforeTheCall:
    """The request itself is blocked: the upstream is not called, so there is no reply to decide on."""

    STRICT: ClassVar[dict[str, Any]] = {"abstention_threshold": 0.5, "action_on_violation": "block"}

    def test_blocked_request_ignores_the_logged_reply(self) -> None:
        of = log(choice(claim(0.0, 0.9), unjudged=[CODE], coverage=0.5, output_confidence=0.4))
        made = decided(of, grounding(**self.STRICT, contradiction_action="block", unjudged_action="block"))
        assert (made.action, made.doubts) == (Action.BLOCK, frozenset())
        assert [decision.reason_code for decision in made.decisions if decision.action is Action.BLOCK] == [
            "GROUNDING_ABSTAIN"
        ]

    def test_unlogged_reply_is_unknown(self) -> None:
        of = log(choice(output_confidence=0.4), blocked=True)
        assert decided(of, grounding(**self.STRICT)).doubts == set()
        assert decided(of, grounding()).doubts == {NO_REPLY}


def test_reply_that_was_forwarded_unchanged_is_a_doubt() -> None:
    """Its text was never read, with or without documents."""
    rules = {"min_coverage": 0.5, "action_on_violation": "block"}
    for of in (log(choice(positions=()), chunks=[], judging=None), log(choice(), judging=None), log(judging=None)):
        assert decided(of, grounding(**rules)).doubts == {NOT_JUDGED}
        assert decided(of, policy("retrieval", "gate")).doubts == frozenset()


def test_invisible_characters_are_removed_without_a_decision() -> None:
    hidden = UnjudgedText(kind="invisible", span=Span(3, 4), sentence_index=0)
    of = log(choice(claim(), unjudged=[hidden], coverage=1.0))
    for action in ("strip", "block"):
        made = decided(of, grounding(unjudged_action=action))
        assert (made.action, made.doubts) == (Action.ALLOW, frozenset())
    live = decided(replace(of, stream=True), grounding(unjudged_action="block", stream_mode="live"))
    assert live.action is Action.BLOCK
    json = decided(
        log(choice(claim(), unjudged=[hidden], coverage=1.0, indivisible=True)), grounding(unjudged_action="strip")
    )
    assert json.action is Action.BLOCK


def test_stray_citation_beside_text_that_is_left_out_is_a_doubt() -> None:
    marker = UnjudgedText(kind="marker", span=Span(6, 9), sentence_index=0)
    stray = Citation(marker="[9]", document_index=None, sentence_index=0)
    strict = {"require_valid_citations": True, "action_on_violation": "block"}
    of = log(choice(claim(), unjudged=[marker], citations=[stray], coverage=1.0))
    assert decided(of, grounding(unjudged_action="strip", **strict)).doubts == {STANDINGS}
    warned = decided(of, grounding(unjudged_action="warn", **strict))
    assert (warned.action, warned.doubts) == (Action.BLOCK, frozenset())
    resolved = replace(stray, document_index=0)
    of = log(choice(claim(), unjudged=[marker], citations=[resolved], coverage=1.0))
    assert decided(of, grounding(unjudged_action="strip", **strict)).doubts == frozenset()
