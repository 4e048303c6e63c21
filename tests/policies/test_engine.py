import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine import DEFAULT_GROUNDING, PolicyEngine, PolicySet, decision_to_dict
from policies.retrieval.evaluator import RetrievalRules
from policies.types import Action, Citation, Phase, Policy, PolicyInputs, Scope
from tests.support.policy_builders import chunk, claim, policy


def names(policies: PolicySet) -> list[str]:
    return [policy.name for policy in policies.policies]


def test_the_highest_priority_comes_first_then_the_name() -> None:
    engine = PolicyEngine([policy("retrieval", name, priority=p) for name, p in (("b", 0), ("a", 0), ("c", 5))])
    assert names(engine.in_scope()) == ["c", "a", "b"]
    assert engine.policies == engine.in_scope().policies


def test_only_what_is_enabled_is_in_scope_and_what_is_not_enforced_stands_beside() -> None:
    engine = PolicyEngine(
        [
            policy("retrieval", "on"),
            policy("retrieval", "off", enabled=False),
            policy("retrieval", "beside", mode="shadow"),
            policy("retrieval", "none yet", canary_percent=0),
        ]
    )
    found = engine.in_scope()
    assert names(found) == ["on"]
    assert [p.name for p in found.shadow] == ["beside", "none yet"]
    assert found is engine.in_scope(unit="req_1")


def test_a_canary_is_enforced_on_its_share_and_always_on_the_same_requests() -> None:
    """Each request has the policy either enforced or in shadow, and a larger share holds all of the smaller one."""
    units = [f"req_{number}" for number in range(4000)]

    def held(percent: int, name: str = "new") -> set[str]:
        engine = PolicyEngine([policy("retrieval", name, canary_percent=percent), policy("grounding", "old")])
        found = {unit: engine.in_scope(agent="a", unit=unit) for unit in units}
        assert all(len(one.policies) + len(one.shadow) == 2 for one in found.values())
        return {unit for unit, one in found.items() if len(one.policies) == 2}

    tenth, half = held(10), held(50)
    assert 0.08 < len(tenth) / len(units) < 0.12
    assert 0.46 < len(half) / len(units) < 0.54
    assert tenth < half
    assert held(10) == tenth
    assert held(10, "another") != tenth
    assert held(100) == set(units)


def test_without_anything_to_draw_by_a_canary_is_in_shadow() -> None:
    found = PolicyEngine([policy("retrieval", "new", canary_percent=99)]).in_scope()
    assert (found.policies, [p.name for p in found.shadow]) == ((), ["new"])


@pytest.mark.parametrize(
    ("scope", "agent", "model", "covered"),
    [
        (Scope(), None, None, True),
        (Scope(agents=("rag-*",)), "rag-agent", "m", True),
        (Scope(agents=("rag-*",)), "other", "m", False),
        (Scope(agents=("rag-*",)), None, "m", False),
        (Scope(agents=("a",), models=("gpt-*",)), "a", "claude", False),
        (Scope(agents=("a",), models=("gpt-*", "claude*")), "a", "claude", True),
    ],
)
def test_scope(scope: Scope, agent: str | None, model: str | None, covered: bool) -> None:
    engine = PolicyEngine([policy("retrieval", scope=scope)])
    assert bool(engine.in_scope(agent=agent, model=model)) is covered


@pytest.mark.parametrize(
    ("globs", "covered"),
    [(("ci-*",), True), (("gl-abcd*",), True), (("ci-*", "x"), True), (("prod",), False), ((), True)],
)
def test_a_key_is_known_by_each_of_its_names(globs: tuple[str, ...], covered: bool) -> None:
    engine = PolicyEngine([policy("retrieval", scope=Scope(keys=globs))])
    assert bool(engine.in_scope(key=("ci-runner", "gl-abcdefgh"))) is covered
    assert bool(engine.in_scope()) is (globs == ())


def test_what_is_in_scope_is_remembered_within_bounds() -> None:
    engine = PolicyEngine([policy("retrieval", scope=Scope(agents=("a1",)))])
    first = engine.in_scope(agent="a1")
    assert engine.in_scope(agent="a1") is first
    for number in range(3000):
        engine.in_scope(agent=f"x{number}")
    assert names(engine.in_scope(agent="a1")) == ["p"]
    assert len(engine._in_scope) <= 1024


def test_an_unknown_category_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown category 'safety'"):
        PolicyEngine([Policy(id="1", name="p", category="safety", rules=RetrievalRules())])


def test_a_decision_as_json() -> None:
    inputs = PolicyInputs(chunks=[chunk(0, age_days=400)])
    (decision,) = PolicySet((policy("retrieval", "fresh"),)).evaluate_documents(inputs).decisions
    told = decision_to_dict(decision)
    latency = told.pop("latency_ms")
    assert latency >= 0
    assert json.loads(json.dumps(told)) == {
        "policy_id": "fresh",
        "policy_version": 1,
        "policy_name": "fresh",
        "category": "retrieval",
        "phase": "before_workflow",
        "action": "block",
        "reason": "Source age (400 days) exceeds max (90 days)",
        "reason_code": "RETRIEVAL_STALE_SOURCE",
        "metadata": {"age_days": 400, "max_age": 90, "document_id": "d0", "document_index": 0},
    }


def test_several_violations_are_all_told() -> None:
    inputs = PolicyInputs(chunks=[chunk(0, relevance_score=0.41), chunk(1, age_days=400)])
    combined = PolicySet((policy("retrieval"),)).evaluate_documents(inputs)
    (decision,) = combined.decisions
    reasons = ["Retrieval relevance (0.41) below threshold (0.70)", "Source age (400 days) exceeds max (90 days)"]
    assert decision.action is Action.BLOCK
    assert decision.reason == "; ".join(reasons)
    assert decision.reason_code == "RETRIEVAL_LOW_RELEVANCE"
    assert decision.metadata["warnings"] == reasons
    assert [v["metadata"]["document_index"] for v in decision.metadata["violations"]] == [0, 1]
    assert combined.cause is not None
    assert combined.cause.reason_code == "RETRIEVAL_STALE_SOURCE"
    assert combined.cause.metadata["document_index"] == 1


def test_every_policy_in_scope_is_evaluated_and_the_strictest_rules() -> None:
    lenient = policy("retrieval", "lenient", priority=9, action_on_stale_source="warn")
    combined = PolicySet((lenient, policy("retrieval", "strict"))).evaluate_documents(
        PolicyInputs(chunks=[chunk(age_days=400)])
    )
    assert [decision.action for decision in combined.decisions] == [Action.WARN, Action.BLOCK]
    assert combined.action is Action.BLOCK


def test_nothing_to_say_leaves_no_decision() -> None:
    combined = PolicySet((policy("retrieval"),)).evaluate_documents(PolicyInputs())
    assert (combined.action, combined.decisions, dict(combined.dropped), combined.cause) == (Action.ALLOW, (), {}, None)


def test_a_run_accumulates() -> None:
    """The steps of a run: each inputs is checked, then the whole."""
    policies = PolicySet((policy("retrieval"), policy("grounding", max_unsupported_claims=0)))
    step = policies.evaluate_documents(PolicyInputs(chunks=[chunk()], final=False), Phase.MID_EXECUTION)
    assert [d.phase for d in step.decisions] == [Phase.MID_EXECUTION]
    scores = PolicyInputs(reported_scores=[0.42], judged=False)
    (mid,) = policies.evaluate("grounding", Phase.MID_EXECUTION, scores).decisions
    assert mid.reason == "Grounding score (0.42) below threshold (0.7)"
    whole = PolicyInputs(reported_scores=[0.42], reported_unsupported=["A.", "B."], judged=False)
    (end,) = policies.evaluate("grounding", Phase.AFTER_WORKFLOW, whole).decisions
    assert end.reason == "Citations (0) below minimum (1); Unsupported claims (2) exceeds max (0)"
    assert end.metadata["citation_count"] == 0
    assert end.metadata["claims"] == ["A.", "B."]
    assert len(end.metadata["warnings"]) == 2


def test_the_default_has_no_policy() -> None:
    assert not DEFAULT_GROUNDING
    assert DEFAULT_GROUNDING.evaluate_documents(PolicyInputs(chunks=[chunk(age_days=999)])).action is Action.ALLOW


@given(actions=st.lists(st.sampled_from(["warn", "block"]), max_size=5), data=st.data())
def test_the_strictest_grounding_action_does_not_hang_on_order(actions: list[str], data: st.DataObject) -> None:
    policies: list[Any] = [policy("grounding", f"p{i}", action_on_violation=a) for i, a in enumerate(actions)]
    shuffled = data.draw(st.permutations(policies))
    inputs = PolicyInputs(chunks=[chunk()])
    first, second = (
        PolicySet(tuple(order)).evaluate("grounding", Phase.AFTER_WORKFLOW, inputs).action
        for order in (policies, shuffled)
    )
    assert first is second is (Action.BLOCK if "block" in actions else Action.WARN if actions else Action.ALLOW)


BLOCK: dict[str, Any] = {"action_on_violation": "block", "min_citations": 0, "abstention_response": "Ask us."}
REPORTED_CITATION = Citation(marker="faq.pdf", reported=True)


class TestBlockedBeforeTheCall:
    @pytest.mark.parametrize(
        ("rules", "inputs", "code"),
        [
            (
                {"score_source": "reported"},
                PolicyInputs(chunks=[chunk()], reported_scores=[0.9, 0.1]),
                "GROUNDING_LOW_SCORE",
            ),
            (
                {"score_source": "reported", "score_eval_mode": "average"},
                PolicyInputs(chunks=[chunk()], reported_scores=[0.9, 0.1]),
                "GROUNDING_LOW_SCORE",
            ),
            (
                {"score_source": "retrieval"},
                PolicyInputs(chunks=[chunk(relevance_score=0.2)]),
                "GROUNDING_LOW_SCORE",
            ),
            (
                {"score_source": "reported", "score_relevance_floor": 0.5},
                PolicyInputs(chunks=[chunk()], reported_scores=[0.1]),
                "GROUNDING_IRRELEVANT",
            ),
            ({"abstention_threshold": 0.5}, PolicyInputs(output_confidence=0.4), "GROUNDING_ABSTAIN"),
            (
                {"max_unsupported_claims": 1},
                PolicyInputs(chunks=[chunk()], reported_unsupported=["a", "b"]),
                "GROUNDING_UNSUPPORTED",
            ),
            ({"require_source_grounding": True}, PolicyInputs(judged=False), "GROUNDING_REQUIRED"),
            (
                {"on_judge_unavailable": "block"},
                PolicyInputs(chunks=[chunk()], judged=False, judge_unavailable=True),
                "GROUNDING_NOT_CHECKED",
            ),
        ],
    )
    def test_what_the_request_says_decides(self, rules: dict[str, Any], inputs: PolicyInputs, code: str) -> None:
        policies = PolicySet((policy("grounding", **{**BLOCK, **rules}),))
        blocked = policies.blocked_before_call(inputs)
        assert blocked is not None
        assert blocked.cause is not None
        assert blocked.cause.reason_code == code
        assert (blocked.on_block, blocked.abstention_response) == ("replace", "Ask us.")
        phases = [(each.phase, each.action) for each in blocked.decisions]
        assert phases[0] == (Phase.BEFORE_WORKFLOW, Action.ALLOW)
        assert phases[-1][1] is Action.BLOCK
        warning = PolicySet((policy("grounding", **{**BLOCK, **rules, "action_on_violation": "warn"}),))
        if code != "GROUNDING_NOT_CHECKED":
            assert warning.blocked_before_call(inputs) is None

    @pytest.mark.parametrize(
        ("rules", "inputs"),
        [
            ({}, PolicyInputs()),
            ({"min_citations": 3}, PolicyInputs(chunks=[chunk()])),
            ({"min_citations": 3}, PolicyInputs()),
            ({"unjudged_action": "block", "min_coverage": 1.0}, PolicyInputs(judged=False)),
            ({"require_source_grounding": True}, PolicyInputs(chunks=[chunk()])),
            ({"require_source_grounding": True}, PolicyInputs(documents_may_follow=True)),
            ({"require_source_grounding": True}, PolicyInputs(of_run=True)),
            ({"require_source_grounding": True}, PolicyInputs(citations=[REPORTED_CITATION])),
            ({"abstention_threshold": 0.5}, PolicyInputs(output_confidence=0.5)),
            ({"abstention_threshold": 0.5}, PolicyInputs(chunks=[chunk()])),
            ({"max_unsupported_claims": 2}, PolicyInputs(chunks=[chunk()], reported_unsupported=["a", "b"])),
            ({"score_source": "judge"}, PolicyInputs(chunks=[chunk()], reported_scores=[0.1])),
        ],
    )
    def test_what_the_reply_can_still_change_is_left_to_it(self, rules: dict[str, Any], inputs: PolicyInputs) -> None:
        assert PolicySet((policy("grounding", **{**BLOCK, **rules}),)).blocked_before_call(inputs) is None

    def test_without_a_policy_nothing_is_blocked(self) -> None:
        assert PolicySet().blocked_before_call(PolicyInputs(output_confidence=0.0)) is None

    def test_the_reply_would_have_been_blocked_for_the_same_reason(self) -> None:
        """What is decided early is no more than what would be decided at the end."""
        policies = PolicySet((policy("grounding", **BLOCK, abstention_threshold=0.5),))
        inputs = PolicyInputs(chunks=[chunk()], output_confidence=0.4)
        blocked = policies.blocked_before_call(inputs)
        evaluation = policies.evaluate_reply(inputs)
        evaluation.start()
        evaluation.sentence([claim()])
        ended = evaluation.finish(inputs)
        assert blocked is not None
        assert blocked.cause == ended.cause
        assert [each.reason for each in blocked.decisions[-1:]] == [each.reason for each in evaluation.decisions[-1:]]
