from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.types import ClaimVerdict, Thresholds
from policies.engine import DEFAULT_GROUNDING, Audit, PolicySet
from policies.types import Action, Citation, Phase, Record
from tests.support.policy_builders import chunk, claim, policy

RECORD = Record(chunks=(chunk(0, source="faq.pdf"),), final=False)
CITED = (Citation(marker="[1]", document_index=0, sentence_index=0),)
LOW: dict[str, Any] = {"min_grounding_score": 0.0}


def audit(*rules: dict[str, Any], record: Record = RECORD) -> Audit:
    policies = tuple(policy("grounding", f"p{i}", **one) for i, one in enumerate(rules))
    return PolicySet(policies).audit(record)


def phases(audited: Audit) -> list[tuple[str, str, str]]:
    return [(d.policy_id, d.phase.value, d.action.value) for d in audited.decisions]


def test_a_reply_leaves_a_row_a_phase() -> None:
    audited = audit({})
    assert audited.start().action is Action.ALLOW
    for sentence in range(5):
        assert audited.sentence([claim(sentence=sentence)]).action is Action.ALLOW
    ruling = audited.finish(replace(RECORD, citations=CITED))
    assert ruling.action is Action.ALLOW
    assert phases(audited) == [
        ("p0", "before_workflow", "allow"),
        ("p0", "mid_execution", "allow"),
        ("p0", "after_workflow", "allow"),
    ]
    assert ruling.decisions == audited.decisions[1:]
    assert audited.decisions[1].reason == "Grounding scores within policy (5 scores)"
    assert audited.decisions[2].reason == "Grounding audit passed (1 citations)"


def test_a_low_score_blocks_at_its_sentence() -> None:
    audited = audit({"action_on_violation": "block", "abstention_response": "I cannot say."})
    audited.start()
    assert audited.sentence([claim()]).action is Action.ALLOW
    ruling = audited.sentence([claim(0.42, sentence=1)])
    assert ruling.action is Action.BLOCK
    assert ruling.reason == "Grounding score (0.42) below threshold (0.7)"
    assert (audited.on_block, audited.abstention_response) == ("replace", "I cannot say.")
    closed = audited.abort()
    assert closed.action is Action.BLOCK
    assert phases(audited) == [("p0", "before_workflow", "allow"), ("p0", "mid_execution", "block")]
    assert audited.abort().decisions == ()
    assert audited.finish(RECORD).decisions == ()
    assert len(audited.decisions) == 2


def test_low_scores_of_several_sentences_are_one_violation() -> None:
    audited = audit({})
    audited.start()
    assert audited.sentence([claim(0.6)]).action is Action.WARN
    assert audited.sentence([claim(0.1, sentence=1)]).action is Action.WARN
    audited.finish(replace(RECORD, citations=CITED))
    mid = audited.decisions[1]
    assert mid.reason == "Grounding score (0.60) below threshold (0.7)"
    assert mid.metadata == {"score": 0.6, "threshold": 0.7}


def test_a_client_that_leaves_early_has_its_rows() -> None:
    audited = audit({"score_eval_mode": "average"})
    audited.start()
    audited.sentence([claim(0.1)])
    audited.abort()
    assert phases(audited) == [("p0", "before_workflow", "allow"), ("p0", "mid_execution", "allow")]


def test_scores_known_already_can_block_before_the_reply() -> None:
    record = replace(RECORD, reported_scores=(0.2,))
    audited = audit({"score_source": "reported", "action_on_violation": "block"}, record=record)
    ruling = audited.start()
    assert ruling.action is Action.BLOCK
    assert ruling.cause is not None
    assert ruling.cause.reason_code == "GROUNDING_LOW_SCORE"
    assert phases(audited) == [("p0", "before_workflow", "allow"), ("p0", "mid_execution", "block")]
    assert ruling.decisions == audited.decisions


def test_scores_known_already_are_told_once() -> None:
    record = replace(RECORD, reported_scores=(0.2,))
    audited = audit({"score_source": "reported"}, record=record)
    started = audited.start()
    assert started.action is Action.WARN
    assert [d.phase for d in started.decisions] == [Phase.BEFORE_WORKFLOW]
    assert audited.sentence([claim(0.1)]).action is Action.ALLOW
    audited.finish(replace(record, citations=CITED))
    assert audited.decisions[1].metadata == {"score": 0.2, "threshold": 0.7}


def test_a_missing_judge_blocks_before_the_reply() -> None:
    record = replace(RECORD, judged=False, judge_unavailable=True)
    assert audit({"on_judge_unavailable": "block"}, record=record).start().action is Action.BLOCK
    assert audit({}, record=record).start().action is Action.ALLOW


def test_a_judge_that_goes_missing_is_told_at_the_end() -> None:
    audited = audit({"on_judge_unavailable": "block"})
    assert audited.start().action is Action.ALLOW
    ruling = audited.finish(replace(RECORD, judged=False, judge_unavailable=True))
    assert [d.action for d in ruling.decisions] == [Action.ALLOW, Action.BLOCK]


def test_strip() -> None:
    audited = audit({"unverifiable_action": "strip", "max_unverifiable_ratio": 0.0})
    audited.start()
    audited.sentence([claim()])
    ruling = audited.sentence([claim(0.9, sentence=1), claim(0.1, sentence=1)])
    assert (ruling.action, ruling.strip) == (Action.DROP, True)
    assert audited.withheld == {1}
    end = audited.finish(replace(RECORD, citations=CITED))
    assert [d.action for d in end.decisions] == [Action.DROP, Action.ALLOW]


def test_strip_has_no_hold_on_text_that_is_out() -> None:
    record = replace(RECORD, strippable=False)
    audited = audit({"unverifiable_action": "strip"} | LOW, record=record)
    audited.start()
    assert audited.sentence([claim(0.1)]).strip is False
    end = audited.finish(replace(RECORD, citations=CITED))
    assert [d.action for d in end.decisions] == [Action.ALLOW, Action.WARN]
    assert end.cause is not None
    assert end.cause.reason == "Unverifiable claims 100% (max 50%)"


def test_a_sentence_without_a_claim_passes() -> None:
    audited = audit({"action_on_violation": "block"})
    audited.start()
    assert audited.sentence([]).action is Action.ALLOW
    assert audited.sentence([]).reason is None


def test_a_policy_that_does_not_block_does_not_answer() -> None:
    audited = audit({"abstention_response": "I cannot say.", "on_block": "error"})
    audited.start()
    audited.sentence([claim(0.1)])
    assert (audited.on_block, audited.abstention_response) == ("replace", None)


def test_corrections() -> None:
    audited = audit({"contradiction_action": "correct"} | LOW)
    audited.start()
    right = claim(0.1, 0.9, correction="It costs 7 euros.")
    assert audited.sentence([right, claim(0.1, 0.9)]).corrected == (right,)
    end = audited.finish(replace(RECORD, citations=CITED))
    assert end.action is Action.WARN
    assert end.decisions[0].metadata["correction"] == "It costs 7 euros."


def test_contradictions_are_each_told() -> None:
    audited = audit({"contradiction_action": "block"} | LOW)
    audited.start()
    ruling = audited.sentence([claim(0.1, 0.9, text="A."), claim(0.1, 0.9, text="B.")])
    assert ruling.action is Action.BLOCK
    (mid,) = audited.abort().decisions
    assert mid.reason == "Claim contradicts source 'faq.pdf': \"A.\"; Claim contradicts source 'faq.pdf': \"B.\""


def test_the_highest_blocking_priority_answers() -> None:
    policies = (
        policy("grounding", "quiet", priority=3, abstention_response="not blocking"),
        policy("grounding", "mute", priority=2, action_on_violation="block", on_block="error"),
        policy("grounding", "first", priority=1, action_on_violation="block", abstention_response="first"),
        policy("grounding", "second", priority=0, action_on_violation="block", abstention_response="second"),
    )
    audited = PolicySet(policies).audit(RECORD)
    audited.start()
    audited.sentence([claim(0.1)])
    assert audited.abstention_response == "first"
    assert audited.on_block == "error"


def test_what_the_gateway_needs_to_know_beforehand() -> None:
    audited = audit(
        {"entailment_threshold": 0.8, "stream_mode": "live", "max_claims": 5},
        {"contradiction_threshold": 0.9, "stream_mode": "hold", "max_sources_per_claim": 9, "max_claims": 7},
    )
    assert audited.thresholds == Thresholds(entailment=0.8, contradiction=0.7)
    assert audited.max_sources_per_claim == 9
    assert audited.max_claims == 7
    assert audited.stream_mode == "hold"
    assert audit({"max_claims": 5}, {}).max_claims is None
    assert audit({"stream_mode": "live"}).stream_mode == "live"
    assert audit({"stream_mode": "live"}, {"stream_mode": "final"}).stream_mode == "final"


def test_documents_without_a_policy_are_annotated_and_never_blocked() -> None:
    audited = DEFAULT_GROUNDING.audit(RECORD)
    assert audited.start().action is Action.ALLOW
    ruling = audited.sentence([claim(0.0, 0.99)])
    assert (ruling.action, ruling.strip, ruling.corrected) == (Action.ALLOW, False, ())
    assert audited.finish(RECORD).action is Action.ALLOW
    assert audited.decisions == ()
    assert audited.thresholds == Thresholds()
    assert audited.max_sources_per_claim == 5
    assert audited.max_claims is None
    assert audited.stream_mode == "hold"
    assert (audited.on_block, audited.abstention_response) == ("replace", None)


CLAIMS = st.lists(
    st.builds(
        claim,
        st.sampled_from([0.0, 0.5, 0.7, 0.9]),
        st.sampled_from([0.0, 0.7, 0.95]),
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
def test_the_row_of_a_reply_is_as_strict_as_its_sentences(
    claims: Sequence[ClaimVerdict], rules: dict[str, Any]
) -> None:
    """A policy's one row of ``mid_execution`` says what was done sentence by sentence, in mode ``all``."""
    audited = audit(rules)
    audited.start()
    actions = [
        audited.sentence([replace(one, claim=replace(one.claim, sentence_index=at))]).action
        for at, one in enumerate(claims)
    ]
    (mid,) = audited.abort().decisions
    assert mid.action is max([Action.ALLOW, *actions], key=lambda action: action.severity)


@pytest.mark.parametrize("mode", ["average", "top_n"])
def test_modes_over_the_whole_are_decided_at_its_end(mode: str) -> None:
    audited = audit({"score_eval_mode": mode, "action_on_violation": "block", "min_citations": 0})
    audited.start()
    assert audited.sentence([claim(0.1)]).action is Action.ALLOW
    assert audited.sentence([claim(0.9, sentence=1)]).action is Action.ALLOW
    assert audited.finish(RECORD).action is Action.BLOCK
