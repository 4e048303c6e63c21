from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.label_thresholds import Thresholds
from judges.llm_types import LlmScore, ScoreRequest
from judges.types import (
    ClaimVerdict,
    Consistency,
    Contradiction,
    LocatedStatement,
    Span,
)
from policies.policy_selection import PolicySet, ReplyEvaluation
from policies.reply_evaluation import trust_of
from policies.types import SEVERITY, Action, Citation, Phase, PolicyInputs, UnjudgedText
from tests.support.policy_builders import chunk, claim, policy

INPUTS = PolicyInputs(chunks=(chunk(0, source="faq.pdf"),), final=False)
CITED = (Citation(marker="[1]", document_index=0, sentence_index=0),)
INCONSISTENT = Consistency(
    contradictions=[
        Contradiction(
            first=LocatedStatement(text="It costs 5 euros.", span=Span(0, 5)),
            second=LocatedStatement(text="It costs 6 euros.", span=Span(6, 9)),
            score=0.9,
        )
    ]
)
LOW: dict[str, Any] = {"min_grounding_score": 0.0}


def evaluate(*rules: dict[str, Any], inputs: PolicyInputs = INPUTS) -> ReplyEvaluation:
    policies = tuple(policy("grounding", f"p{i}", **one) for i, one in enumerate(rules))
    return PolicySet(policies).evaluate_reply(inputs)


def phases(evaluation: ReplyEvaluation) -> list[tuple[str, str, str]]:
    return [(d.policy_id, d.phase.value, d.action.value) for d in evaluation.decisions]


def test_reply_has_one_row_per_phase() -> None:
    evaluation = evaluate({})
    assert evaluation.start().action is Action.ALLOW
    for sentence in range(5):
        assert evaluation.sentence([claim(sentence=sentence)]).action is Action.ALLOW
    combined = evaluation.finish(replace(INPUTS, citations=CITED))
    assert combined.action is Action.ALLOW
    assert phases(evaluation) == [
        ("p0", "before_workflow", "allow"),
        ("p0", "mid_execution", "allow"),
        ("p0", "after_workflow", "allow"),
    ]
    assert combined.decisions == evaluation.decisions[1:]
    assert evaluation.decisions[1].reason == "Grounding scores within policy (5 scores)"
    assert evaluation.decisions[2].reason == "Grounding audit passed (1 citations)"


def test_low_score_blocks_at_its_sentence() -> None:
    evaluation = evaluate({"action_on_violation": "block", "abstention_response": "I cannot say."})
    evaluation.start()
    assert evaluation.sentence([claim()]).action is Action.ALLOW
    combined = evaluation.sentence([claim(0.42, sentence=1)])
    assert combined.action is Action.BLOCK
    assert combined.reason == "Grounding score (0.42) below threshold (0.7)"
    assert (evaluation.on_block, evaluation.abstention_response) == ("replace", "I cannot say.")
    closed = evaluation.abort()
    assert closed.action is Action.BLOCK
    assert phases(evaluation) == [("p0", "before_workflow", "allow"), ("p0", "mid_execution", "block")]
    assert evaluation.abort().decisions == ()
    assert evaluation.finish(INPUTS).decisions == ()
    assert len(evaluation.decisions) == 2


def test_low_scores_of_several_sentences_are_one_violation() -> None:
    evaluation = evaluate({})
    evaluation.start()
    assert evaluation.sentence([claim(0.6)]).action is Action.WARN
    assert evaluation.sentence([claim(0.1, sentence=1)]).action is Action.WARN
    evaluation.finish(replace(INPUTS, citations=CITED))
    mid = evaluation.decisions[1]
    assert mid.reason == "Grounding score (0.60) below threshold (0.7)"
    assert mid.metadata == {"score": 0.6, "threshold": 0.7}


def test_row_is_written_if_the_client_disconnects() -> None:
    evaluation = evaluate({"score_eval_mode": "average"})
    evaluation.start()
    evaluation.sentence([claim(0.1)])
    evaluation.abort()
    assert phases(evaluation) == [("p0", "before_workflow", "allow"), ("p0", "mid_execution", "allow")]


def test_known_scores_can_block_before_the_reply() -> None:
    inputs = replace(INPUTS, reported_scores=(0.2,))
    evaluation = evaluate({"score_source": "reported", "action_on_violation": "block"}, inputs=inputs)
    combined = evaluation.start()
    assert combined.action is Action.BLOCK
    assert combined.cause is not None
    assert combined.cause.reason_code == "GROUNDING_LOW_SCORE"
    assert phases(evaluation) == [("p0", "before_workflow", "allow"), ("p0", "mid_execution", "block")]
    assert combined.decisions == evaluation.decisions


def test_known_scores_are_reported_once() -> None:
    inputs = replace(INPUTS, reported_scores=(0.2,))
    evaluation = evaluate({"score_source": "reported"}, inputs=inputs)
    started = evaluation.start()
    assert started.action is Action.WARN
    assert [d.phase for d in started.decisions] == [Phase.BEFORE_WORKFLOW]
    assert evaluation.sentence([claim(0.1)]).action is Action.ALLOW
    evaluation.finish(replace(inputs, citations=CITED))
    assert evaluation.decisions[1].metadata == {"score": 0.2, "threshold": 0.7}


def test_missing_judge_blocks_before_the_reply() -> None:
    inputs = replace(INPUTS, judged=False, judge_unavailable=True)
    assert evaluate({"on_judge_unavailable": "block"}, inputs=inputs).start().action is Action.BLOCK
    assert evaluate({}, inputs=inputs).start().action is Action.ALLOW


def test_judge_lost_during_the_reply_is_reported_at_the_end() -> None:
    evaluation = evaluate({"on_judge_unavailable": "block"})
    assert evaluation.start().action is Action.ALLOW
    combined = evaluation.finish(replace(INPUTS, judged=False, judge_unavailable=True))
    assert [d.action for d in combined.decisions] == [Action.ALLOW, Action.BLOCK]


def test_strip() -> None:
    evaluation = evaluate({"unverifiable_action": "strip", "max_unverifiable_ratio": 0.0})
    evaluation.start()
    evaluation.sentence([claim()])
    combined = evaluation.sentence([claim(0.9, sentence=1), claim(0.1, sentence=1)])
    assert (combined.action, combined.strip) == (Action.DROP, True)
    assert evaluation.withheld == {1}
    end = evaluation.finish(replace(INPUTS, citations=CITED))
    assert [d.action for d in end.decisions] == [Action.DROP, Action.ALLOW]


def test_strip_has_no_effect_on_delivered_text() -> None:
    inputs = replace(INPUTS, strippable=False)
    evaluation = evaluate({"unverifiable_action": "strip"} | LOW, inputs=inputs)
    evaluation.start()
    assert evaluation.sentence([claim(0.1)]).strip is False
    end = evaluation.finish(replace(INPUTS, citations=CITED))
    assert [d.action for d in end.decisions] == [Action.ALLOW, Action.WARN]
    assert end.cause is not None
    assert end.cause.reason == "Unverifiable claims 100% (max 50%)"


def test_sentence_without_a_claim_passes() -> None:
    evaluation = evaluate({"action_on_violation": "block"})
    evaluation.start()
    assert evaluation.sentence([]).action is Action.ALLOW
    assert evaluation.sentence([]).reason is None


def test_policy_that_does_not_block_provides_no_response() -> None:
    evaluation = evaluate({"abstention_response": "I cannot say.", "on_block": "error"})
    evaluation.start()
    evaluation.sentence([claim(0.1)])
    assert (evaluation.on_block, evaluation.abstention_response) == ("replace", None)


def test_corrections() -> None:
    evaluation = evaluate({"contradiction_action": "correct"} | LOW)
    evaluation.start()
    right = claim(0.1, 0.9, correction="It costs 7 euros.", corrected=(claim(),))
    assert evaluation.sentence([right, claim(0.1, 0.9)]).corrected == (right,)
    end = evaluation.finish(replace(INPUTS, citations=CITED))
    assert end.action is Action.WARN
    assert end.decisions[0].metadata["correction"] == "It costs 7 euros."


CORRECT: dict[str, Any] = {"contradiction_action": "correct", "action_on_violation": "block", "min_citations": 0} | LOW


@pytest.mark.parametrize("lax_first", [True, False])
@pytest.mark.parametrize(("score", "action"), [(0.3, Action.BLOCK), (0.8, Action.BLOCK), (0.95, Action.WARN)])
def test_each_policy_judges_a_correction_by_its_own_threshold(score: float, action: Action, lax_first: bool) -> None:
    lax, strict = CORRECT | {"entailment_threshold": 0.2}, CORRECT | {"entailment_threshold": 0.9}
    wrong = claim(0.0, 0.95, correction="It costs 7 euros.", corrected=(claim(score),))
    assert action_of([lax], [wrong], []) is Action.WARN
    assert action_of([strict], [wrong], []) is action
    assert action_of([lax, strict] if lax_first else [strict, lax], [wrong], []) is action


@pytest.mark.parametrize(("strictest", "kept"), [(0.2, True), (0.9, False)])
def test_correction_that_a_policy_does_not_accept_is_left_out(strictest: float, kept: bool) -> None:
    settings = evaluate(CORRECT | {"entailment_threshold": 0.2}, {"entailment_threshold": strictest}).settings
    wrong = claim(0.0, 0.95, correction="It costs 7 euros.", corrected=(claim(0.5),))
    right = claim(0.95)
    shown = settings.with_accepted_corrections([wrong, right])
    assert (shown == (wrong, right)) is kept
    assert [claim.correction for claim in shown] == ["It costs 7 euros." if kept else None, None]


def test_correction_that_was_not_judged_is_not_used() -> None:
    wrong = claim(0.0, 0.95, correction="It costs 7 euros.")
    assert action_of([CORRECT], [wrong], []) is Action.BLOCK
    assert action_of([CORRECT], [replace(wrong, corrected=(claim(),))], []) is Action.WARN


def test_end_of_a_reply_uses_the_accepted_corrections() -> None:
    wrong = claim(0.0, 0.95, correction="It costs 7 euros.", corrected=(claim(0.5),))
    lax, strict = CORRECT | {"entailment_threshold": 0.2}, {"entailment_threshold": 0.9, "min_citations": 0} | LOW
    for rules, action in (([lax], Action.WARN), ([lax, strict], Action.BLOCK)):
        for inputs in (INPUTS, replace(INPUTS, claims=(wrong,))):
            evaluation = evaluate(*rules)
            evaluation.start()
            evaluation.sentence([wrong])
            assert evaluation.finish(inputs).decisions[0].action is action


def test_corrections_of_one_sentence_are_used_together() -> None:
    evaluation = evaluate(CORRECT | {"contradiction_threshold": 0.8})
    evaluation.start()
    sure, unsure = (claim(0.1, against, correction="…", corrected=(claim(),)) for against in (0.9, 0.75))
    assert evaluation.sentence([unsure]).corrected == ()
    assert evaluation.sentence([sure, unsure, claim()]).corrected == (sure, unsure)


def test_two_versions_of_a_policy_do_not_weaken_each_other() -> None:
    loose = {"unverifiable_action": "strip", "max_unverifiable_ratio": 1.0, "min_citations": 0} | LOW
    strict = {"max_unsupported_claims": 0, "action_on_violation": "block", "min_citations": 0} | LOW
    for first, second in ((loose, strict), (strict, loose)):
        versions = [
            replace(policy("grounding", "p", abstention_response=str(number), **rules), version=number)
            for number, rules in enumerate((first, second), 1)
        ]
        evaluation = PolicySet(tuple(versions)).evaluate_reply(INPUTS)
        evaluation.start()
        evaluation.sentence([claim()])
        assert evaluation.sentence([claim(0.1, sentence=1)]).strip is True
        assert evaluation.finish(replace(INPUTS, trust_score=1.0)).action is Action.BLOCK
        blocking = 1 if first is strict else 2
        assert evaluation.abstention_response == str(blocking)
        blocks = {d.policy_version for d in evaluation.decisions if d.action is Action.BLOCK}
        assert blocks == {blocking}


def test_each_contradiction_is_reported() -> None:
    evaluation = evaluate({"contradiction_action": "block"} | LOW)
    evaluation.start()
    combined = evaluation.sentence([claim(0.1, 0.9, text="A."), claim(0.1, 0.9, text="B.")])
    assert combined.action is Action.BLOCK
    (mid,) = evaluation.abort().decisions
    assert mid.reason == "Claim contradicts source 'faq.pdf': \"A.\"; Claim contradicts source 'faq.pdf': \"B.\""


def test_blocking_policy_of_highest_priority_provides_the_response() -> None:
    policies = (
        policy("grounding", "quiet", priority=3, abstention_response="not blocking"),
        policy("grounding", "mute", priority=2, action_on_violation="block", on_block="error"),
        policy("grounding", "first", priority=1, action_on_violation="block", abstention_response="first"),
        policy("grounding", "second", priority=0, action_on_violation="block", abstention_response="second"),
    )
    evaluation = PolicySet(policies).evaluate_reply(INPUTS)
    evaluation.start()
    evaluation.sentence([claim(0.1)])
    assert evaluation.abstention_response == "first"
    assert evaluation.on_block == "error"


def test_documents_without_a_policy_are_annotated_and_never_blocked() -> None:
    evaluation = PolicySet().evaluate_reply(INPUTS)
    assert evaluation.start().action is Action.ALLOW
    combined = evaluation.sentence([claim(0.0, 0.99)])
    assert (combined.action, combined.strip, combined.corrected) == (Action.ALLOW, False, ())
    assert evaluation.finish(INPUTS).action is Action.ALLOW
    assert evaluation.decisions == ()
    assert evaluation.settings.judging.thresholds == Thresholds()
    assert evaluation.settings.judging.max_sources == 5
    assert evaluation.settings.judging.max_claims is None
    assert evaluation.settings.stream_mode == "hold"
    assert (evaluation.on_block, evaluation.abstention_response) == ("replace", None)


CLAIMS = st.lists(
    st.builds(
        claim,
        st.sampled_from([0.0, 0.5, 0.7, 0.9]),
        st.sampled_from([0.0, 0.7, 0.95]),
        correction=st.sampled_from([None, "…"]),
        corrected=st.sampled_from([(), (claim(0.5),), (claim(0.9),), (claim(0.9), claim(0.7))]),
    ),
    max_size=8,
)
RULES = st.fixed_dictionaries(
    {
        "action_on_violation": st.sampled_from(["warn", "block"]),
        "contradiction_action": st.sampled_from(["flag", "block", "correct"]),
        "unverifiable_action": st.sampled_from(["flag", "block", "strip"]),
        "score_relevance_floor": st.sampled_from([None, 0.3]),
    }
)


@given(claims=CLAIMS, rules=RULES)
def test_row_of_a_reply_is_as_strict_as_its_sentences(claims: Sequence[ClaimVerdict], rules: dict[str, Any]) -> None:
    """A policy's single ``mid_execution`` row says what was done sentence by sentence, in mode ``all``."""
    evaluation = evaluate(rules)
    evaluation.start()
    actions = [
        evaluation.sentence([replace(one, claim=replace(one.claim, sentence_index=at))]).action
        for at, one in enumerate(claims)
    ]
    (mid,) = evaluation.abort().decisions
    assert mid.action is max([Action.ALLOW, *actions], key=list(Action).index)


@pytest.mark.parametrize("mode", ["average", "top_n"])
def test_modes_over_the_whole_reply_are_decided_at_its_end(mode: str) -> None:
    evaluation = evaluate({"score_eval_mode": mode, "action_on_violation": "block", "min_citations": 0})
    evaluation.start()
    assert evaluation.sentence([claim(0.1)]).action is Action.ALLOW
    assert evaluation.sentence([claim(0.9, sentence=1)]).action is Action.ALLOW
    assert evaluation.finish(INPUTS).action is Action.BLOCK


WHOLE_RULES = st.fixed_dictionaries(
    {},
    optional={
        "action_on_violation": st.sampled_from(["warn", "block"]),
        "contradiction_action": st.sampled_from(["flag", "block", "correct"]),
        "unverifiable_action": st.sampled_from(["flag", "block", "strip"]),
        "unjudged_action": st.sampled_from(["allow", "warn", "strip", "block"]),
        "min_coverage": st.sampled_from([0.0, 0.9]),
        "min_citations": st.sampled_from([0, 1]),
        "require_source_grounding": st.booleans(),
        "require_valid_citations": st.booleans(),
        "max_unsupported_claims": st.sampled_from([None, 0]),
        "max_unverifiable_ratio": st.sampled_from([0.2, 1.0]),
        "abstention_threshold": st.sampled_from([None, 0.5]),
        "min_grounding_score": st.sampled_from([0.0, 0.7]),
        "score_eval_mode": st.sampled_from(["all", "average", "top_n"]),
        "factual_consistency_check": st.booleans(),
        "llm_grounding_check": st.booleans(),
        "llm_grounding_phase": st.sampled_from(["mid_execution", "after_workflow", "both"]),
    },
)
WHOLE_REPLIES = st.fixed_dictionaries(
    {
        "citations": st.sampled_from([(), CITED, (Citation(marker="[7]"),)]),
        "coverage": st.sampled_from([None, 0.0, 1.0]),
        "trust_score": st.sampled_from([None, 0.0, 1.0]),
        "consistency": st.sampled_from([None, INCONSISTENT]),
        "llm_scores": st.sampled_from([(), (LlmScore(request=ScoreRequest(model="gpt-4o-mini"), score=0.1),)]),
    }
)


@given(rules=WHOLE_RULES, claims=CLAIMS, reply=WHOLE_REPLIES, unjudged=st.booleans())
def test_effective_hold_never_blocks_after_sending_sentences(
    rules: dict[str, Any], claims: Sequence[ClaimVerdict], reply: dict[str, Any], unjudged: bool
) -> None:
    """Any rule that can still block at the end raises ``hold`` to ``final``."""
    evaluation = evaluate(rules)
    if evaluation.settings.stream_mode == "final":
        return
    evaluation.start()
    text = UnjudgedText(kind="code", text="x", span=Span(0, 1), sentence_index=99)
    sentences: list[tuple[list[ClaimVerdict], list[UnjudgedText]]] = [
        ([replace(one, claim=replace(one.claim, sentence_index=at))], []) for at, one in enumerate(claims)
    ]
    for found, texts in [*sentences, ([], [text] if unjudged else [])]:
        if evaluation.sentence(found, texts).action is Action.BLOCK:
            return
    assert evaluation.finish(replace(INPUTS, **reply)).action is not Action.BLOCK


PAIR_RULES = st.fixed_dictionaries(
    {},
    optional={
        "contradiction_action": st.sampled_from(["flag", "block", "correct"]),
        "entailment_threshold": st.sampled_from([0.2, 0.7, 0.9]),
        "unverifiable_action": st.sampled_from(["flag", "strip", "block"]),
        "unjudged_action": st.sampled_from(["allow", "warn", "strip", "block"]),
        "action_on_violation": st.sampled_from(["warn", "block"]),
        "max_unverifiable_ratio": st.sampled_from([0.0, 0.4, 1.0]),
        "max_unsupported_claims": st.sampled_from([None, 0, 1]),
        "min_citations": st.sampled_from([0, 1, 2]),
        "require_valid_citations": st.booleans(),
        "min_grounding_score": st.sampled_from([0.0, 0.7]),
        "score_eval_mode": st.sampled_from(["all", "average", "top_n"]),
        "abstention_threshold": st.sampled_from([None, 0.5, 0.9]),
    },
)
CITATIONS = st.lists(
    st.builds(
        Citation,
        marker=st.sampled_from(["[1]", "[2]"]),
        document_index=st.sampled_from([None, 0]),
        sentence_index=st.integers(0, 3),
    ),
    max_size=4,
)


def action_of(rules: Sequence[dict[str, Any]], claims: Sequence[ClaimVerdict], cited: Sequence[Citation]) -> Action:
    """The action on a reply with one claim in each sentence and an unjudged text in the last."""
    evaluation = evaluate(*rules)
    evaluation.start()
    text = UnjudgedText(kind="code", text="x", span=Span(0, 1), sentence_index=3)
    strictest, shortened = Action.ALLOW, False
    for at in range(4):
        found = [replace(one, claim=replace(one.claim, sentence_index=at)) for one in claims[at : at + 1]]
        decision = evaluation.sentence(found, [text] if at == 3 else [])
        strictest = max(strictest, decision.action, key=SEVERITY.__getitem__)
        shortened = bool(decision.left_out)
        if decision.action is Action.BLOCK:
            return Action.BLOCK
    gone = [
        one
        for one in cited
        if one.sentence_index in evaluation.withheld
        or (shortened and one.sentence_index == 3 and one.document_index is None)
    ]
    kept = [one for at, one in enumerate(claims[:4]) if at not in evaluation.withheld]
    inputs = replace(
        INPUTS, citations=[one for one in cited if one not in gone], trust_score=trust_of(kept), coverage=0.9
    )
    end = evaluation.finish(inputs, left_out=gone).action
    strictest = max(strictest, end, key=SEVERITY.__getitem__)
    return Action.WARN if strictest is Action.DROP else strictest


@given(rules=st.tuples(PAIR_RULES, PAIR_RULES), claims=CLAIMS, cited=CITATIONS)
def test_two_policies_are_never_weaker_than_one(
    rules: tuple[dict[str, Any], dict[str, Any]], claims: Sequence[ClaimVerdict], cited: Sequence[Citation]
) -> None:
    both = action_of(rules, claims, cited)
    for one in rules:
        assert SEVERITY[both] >= SEVERITY[action_of([one], claims, cited)]


def test_text_that_one_policy_leaves_out_still_counts_for_another() -> None:
    strict = {"unverifiable_action": "block", "max_unverifiable_ratio": 0.0, "min_citations": 0} | LOW
    lax = {"unverifiable_action": "strip", "max_unverifiable_ratio": 1.0, "min_citations": 0} | LOW
    claims = [claim(), claim(0.1)]
    assert [action_of(rules, claims, []) for rules in ([lax], [strict], [strict, lax], [lax, strict])] == [
        Action.WARN,
        Action.BLOCK,
        Action.BLOCK,
        Action.BLOCK,
    ]
    invalid = {"require_valid_citations": True, "action_on_violation": "block", "min_citations": 0} | LOW
    stray = Citation(marker="[9]", sentence_index=1)
    assert action_of([invalid, lax], claims, [stray]) is Action.BLOCK
