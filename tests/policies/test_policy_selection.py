import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.base import Category, CategoryResult, DocumentNeeds, ReplyNeeds, Rules
from policies.policy_selection import PolicyEngine, PolicySet, decision_to_dict
from policies.registry import CATEGORIES
from policies.retrieval.evaluator import RetrievalRules
from policies.types import Action, Citation, Phase, Policy, PolicyInputs, PolicySubject, Scope, Violation
from tests.support.policy_builders import chunk, claim, policy


def names(policies: PolicySet) -> list[str]:
    return [policy.name for policy in policies.policies]


def test_policies_are_sorted_by_priority_then_name() -> None:
    engine = PolicyEngine([policy("retrieval", name, priority=p) for name, p in (("b", 0), ("a", 0), ("c", 5))])
    assert names(engine.in_scope()) == ["c", "a", "b"]
    assert engine.policies == engine.in_scope().policies


def test_enabled_policies_in_scope_apply_and_others_run_in_shadow() -> None:
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


def test_canary_share_is_stable_per_request() -> None:
    """Each request has the policy either enforced or in shadow, and a larger share includes all of a smaller one."""
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


def test_canary_without_a_seed_is_in_shadow() -> None:
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
    ("glob", "names", "covered"),
    [
        ("real-*", ("fast", "real-1"), True),
        ("fast", ("fast", "real-1"), True),
        ("real-*", ("REAL-1",), True),
        ("Real-*", (" real-1 ",), True),
        ("real-*", ("default/real-1",), True),
        ("default/*", ("default/real-1",), True),
        ("real-*", ("unreal-1", "surreal-1/x"), False),
        ("real-*", (), False),
    ],
)
def test_model_is_matched_by_each_of_its_names(glob: str, names: tuple[str, ...], covered: bool) -> None:
    assert Scope(models=(glob,)).covers(agent=None, model=names, key=None) is covered


def test_scope_is_case_insensitive() -> None:
    scope = Scope(agents=("RAG-*",), models=("GPT-[A-Z]",), keys=("Ci",))
    assert scope.covers(agent="rag-1", model="gpt-x", key=("CI", "gl-abcd"))


@pytest.mark.parametrize(
    ("globs", "covered"),
    [(("ci-*",), True), (("gl-abcd*",), True), (("ci-*", "x"), True), (("prod",), False), ((), True)],
)
def test_key_is_matched_by_each_of_its_names(globs: tuple[str, ...], covered: bool) -> None:
    engine = PolicyEngine([policy("retrieval", scope=Scope(keys=globs))])
    assert bool(engine.in_scope(key=("ci-runner", "gl-abcdefgh"))) is covered
    assert bool(engine.in_scope()) is (globs == ())


def test_scope_cache_is_bounded() -> None:
    engine = PolicyEngine([policy("retrieval", scope=Scope(agents=("a1",)))])
    first = engine.in_scope(agent="a1")
    assert engine.in_scope(agent="a1") is first
    for number in range(3000):
        engine.in_scope(agent=f"x{number}")
    assert names(engine.in_scope(agent="a1")) == ["p"]
    assert len(engine._in_scope) <= 1024


def test_unknown_category_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown category 'safety'"):
        PolicyEngine([Policy(id="1", name="p", category="safety", rules=RetrievalRules())])


class Both(Category):
    """A category of a test that decides about documents and replies."""

    name = "both"
    rules = Rules
    subjects = frozenset(PolicySubject)

    def evaluate(self, phase: Phase, rules: Any, inputs: PolicyInputs) -> CategoryResult:
        code = "BOTH_TOO_MANY" if len(inputs.chunks) > 2 else "BOTH_SPOKE" if inputs.claims else None
        found = Violation(action=Action.BLOCK, reason="no", reason_code=code or "", drop=frozenset({0}))
        return CategoryResult(violations=(found,) if code else ())

    def document_needs(self, rules: Any) -> DocumentNeeds:
        return DocumentNeeds(compares=True)

    def reply_needs(self, rules: Any) -> ReplyNeeds:
        return ReplyNeeds(stream_mode="final", on_block="error")


def test_every_category_is_evaluated_in_its_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine knows a category by the registry alone."""
    monkeypatch.setattr("policies.registry.CATEGORIES", {**CATEGORIES, "both": Both()})
    own = Policy(id="own", name="own", category="both", rules=Rules())
    policies = PolicySet((own, policy("retrieval", "fit"), policy("grounding", "true")))
    few, many = (PolicyInputs(chunks=[chunk(n) for n in range(count)]) for count in (2, 3))
    assert [d.policy_id for d in policies.evaluate_documents(few).decisions] == ["own", "fit"]
    assert policies.evaluate_documents(many).action is Action.BLOCK
    assert policies.document_needs == DocumentNeeds(compares=True)
    assert policies.reply_settings.stream_mode == "final"
    evaluation = policies.evaluate_reply(few)
    assert [d.policy_id for d in evaluation.start().decisions] == ["own", "true"]
    decided = evaluation.sentence([claim()])
    assert (decided.action, decided.cause and decided.cause.reason_code) == (Action.BLOCK, "BOTH_SPOKE")
    assert evaluation.on_block == "error"
    assert policies.blocked_before_call(many) is not None


def test_policies_of_equal_priority_keep_the_registry_order() -> None:
    given = [policy(category, name) for category, name in (("freshness", "a"), ("grounding", "b"), ("retrieval", "c"))]
    assert names(PolicyEngine(given).in_scope()) == ["c", "b", "a"]
    raised = [policy("freshness", "a", priority=1), *given[1:]]
    assert names(PolicyEngine(raised).in_scope()) == ["a", "c", "b"]


def test_decision_as_json() -> None:
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


def test_several_violations_are_all_reported() -> None:
    inputs = PolicyInputs(chunks=[chunk(0, relevance_score=0.41), chunk(1, age_days=400)])
    combined = PolicySet((policy("retrieval"),)).evaluate_documents(inputs)
    (decision,) = combined.decisions
    reasons = ["Retrieval relevance (0.41) below threshold (0.70)", "Source age (400 days) exceeds max (90 days)"]
    assert decision.action is Action.BLOCK
    assert decision.reason == "; ".join(reasons)
    assert decision.reason_code == "RETRIEVAL_STALE_SOURCE"
    assert decision.metadata["warnings"] == reasons
    metadata = {name: value for name, value in decision.metadata.items() if name not in ("warnings", "violations")}
    assert metadata == decision.metadata["violations"][1]["metadata"]
    assert [v["metadata"]["document_index"] for v in decision.metadata["violations"]] == [0, 1]
    assert combined.cause is not None
    assert combined.cause.reason_code == "RETRIEVAL_STALE_SOURCE"
    assert combined.cause.metadata["document_index"] == 1


def test_every_policy_in_scope_is_evaluated_and_the_strictest_wins() -> None:
    lenient = policy("retrieval", "lenient", priority=9, action_on_stale_source="warn")
    combined = PolicySet((lenient, policy("retrieval", "strict"))).evaluate_documents(
        PolicyInputs(chunks=[chunk(age_days=400)])
    )
    assert [decision.action for decision in combined.decisions] == [Action.WARN, Action.BLOCK]
    assert combined.action is Action.BLOCK


def test_nothing_to_report_leaves_no_decision() -> None:
    combined = PolicySet((policy("retrieval"),)).evaluate_documents(PolicyInputs())
    assert (combined.action, combined.decisions, dict(combined.dropped), combined.cause) == (Action.ALLOW, (), {}, None)


def test_run_accumulates() -> None:
    """The steps of a run: each step is checked, then the whole."""
    policies = PolicySet((policy("retrieval"), policy("grounding", max_unsupported_claims=0)))
    step = policies.evaluate_documents(PolicyInputs(chunks=[chunk()], final=False), Phase.MID_EXECUTION)
    assert [d.phase for d in step.decisions] == [Phase.MID_EXECUTION]
    scores = PolicyInputs(reported_scores=[0.42], judged=False)
    (mid,) = policies.evaluate(PolicySubject.REPLY, Phase.MID_EXECUTION, scores).decisions
    assert mid.reason == "Grounding score (0.42) below threshold (0.7)"
    whole = PolicyInputs(reported_scores=[0.42], reported_unsupported=["A.", "B."], judged=False)
    (end,) = policies.evaluate(PolicySubject.REPLY, Phase.AFTER_WORKFLOW, whole).decisions
    assert end.reason == "Citations (0) below minimum (1); Unsupported claims (2) exceeds max (0)"
    assert end.metadata["citation_count"] == 0
    assert end.metadata["violations"][1]["metadata"]["claims"] == ["A.", "B."]
    assert len(end.metadata["warnings"]) == 2


def test_no_policy_applies_by_default() -> None:
    assert not PolicySet()
    assert PolicySet().evaluate_documents(PolicyInputs(chunks=[chunk(age_days=999)])).action is Action.ALLOW


@given(actions=st.lists(st.sampled_from(["warn", "block"]), max_size=5), data=st.data())
def test_strictest_grounding_action_does_not_depend_on_order(actions: list[str], data: st.DataObject) -> None:
    policies: list[Any] = [policy("grounding", f"p{i}", action_on_violation=a) for i, a in enumerate(actions)]
    shuffled = data.draw(st.permutations(policies))
    inputs = PolicyInputs(chunks=[chunk()])
    first, second = (
        PolicySet(tuple(order)).evaluate(PolicySubject.REPLY, Phase.AFTER_WORKFLOW, inputs).action
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
    def test_request_alone_can_block(self, rules: dict[str, Any], inputs: PolicyInputs, code: str) -> None:
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
    def test_violations_that_the_reply_can_still_change_wait(self, rules: dict[str, Any], inputs: PolicyInputs) -> None:
        assert PolicySet((policy("grounding", **{**BLOCK, **rules}),)).blocked_before_call(inputs) is None

    def test_nothing_blocks_without_a_policy(self) -> None:
        assert PolicySet().blocked_before_call(PolicyInputs(output_confidence=0.0)) is None

    def test_reply_would_be_blocked_for_the_same_reason(self) -> None:
        """An early decision is never stricter than the decision at the end."""
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
