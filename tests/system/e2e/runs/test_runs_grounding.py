"""Grounding policies over a run: each case with its own numbers, reasons and metadata."""

from typing import Any

import pytest

from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.run_client import Body, Run, blocked, told

NONE_RELEVANT = "No grounding scores above relevance floor — all retrieved results appear irrelevant"
RESEARCH = {
    "require_source_grounding": True,
    "min_grounding_score": 0.8,
    "min_citations": 2,
    "max_unsupported_claims": 0,
    "abstention_threshold": 0.5,
    "abstention_response": "I don't have sufficient grounded evidence to answer this accurately.",
    "action_on_violation": "block",
}
MEDICAL = {
    "require_source_grounding": True,
    "min_grounding_score": 0.9,
    "min_citations": 3,
    "max_unsupported_claims": 0,
    "abstention_threshold": 0.7,
    "abstention_response": "I cannot provide a reliable answer based on available evidence. Please consult a "
    "qualified professional.",
    "action_on_violation": "block",
}
LENIENT = {
    "require_source_grounding": False,
    "min_grounding_score": 0.6,
    "min_citations": 1,
    "max_unsupported_claims": 3,
    "abstention_threshold": None,
    "action_on_violation": "warn",
}
CITATIONS_ONLY = {
    "require_source_grounding": True,
    "min_citations": 1,
    "max_unsupported_claims": 2,
    "action_on_violation": "block",
}
PIPELINE = {
    "min_grounding_score": 0.7,
    "score_relevance_floor": 0.5,
    "score_eval_mode": "all",
    "min_citations": 1,
    "action_on_violation": "block",
}
CRISIS = [0.92, 0.87, 0.85, 0.35, 0.22]
"""The scores of five results: three relevant, two from the tail."""


def report(gateway: Gateway, rules: Body, **reported: Any) -> Body:
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        return run.grounded(**reported)


def finish(gateway: Gateway, rules: Body, *reports: Body) -> Body:
    """The decisions at the end of a run with ``reports``, none of which may block."""
    with Run(gateway, gateway.agent(grounding=rules)) as run:
        for reported in reports:
            answer = run.grounded(**reported)
            if answer["action"] == "block":
                raise AssertionError(f"blocked before the end: {answer}")
        return run.complete({"answer": "…"})


def test_start_records_the_rules_and_allows(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(grounding=RESEARCH)) as run:
        assert [(d["phase"], d["action"]) for d in run.started["decisions"]] == [("before_workflow", "allow")]
        assert run.started["blocked_by"] is None


def test_first_score_below_the_threshold_blocks(gateway: Gateway) -> None:
    answer = report(gateway, {"action_on_violation": "block"}, grounding_scores=[0.9, 0.42, 0.3])
    assert told(answer) == [
        ("mid_execution", "block", "Grounding score (0.42) below threshold (0.7)", "GROUNDING_LOW_SCORE")
    ]
    assert blocked(answer)[2] == {"score": 0.42, "threshold": 0.7}


def test_default_action_is_to_warn(gateway: Gateway) -> None:
    answer = report(gateway, {}, grounding_scores=[0.42])
    assert (answer["action"], answer["blocked_by"]) == ("warn", None)
    assert answer["decisions"][0]["reason"] == "Grounding score (0.42) below threshold (0.7)"


@pytest.mark.parametrize("scores", [[], [0.7], [0.9, 0.85, 0.92]])
def test_missing_or_good_scores_are_no_violation(gateway: Gateway, scores: list[float]) -> None:
    assert report(gateway, {"action_on_violation": "block"}, grounding_scores=scores)["action"] == "allow"


def test_relevance_floor_excludes_low_scores(gateway: Gateway) -> None:
    assert report(gateway, PIPELINE, grounding_scores=CRISIS)["action"] == "allow"


def test_low_scores_block_without_a_floor(gateway: Gateway) -> None:
    rules = {key: value for key, value in PIPELINE.items() if key != "score_relevance_floor"}
    reason, code, metadata = blocked(report(gateway, rules, grounding_scores=CRISIS))
    assert (reason, code) == ("Grounding score (0.35) below threshold (0.7)", "GROUNDING_LOW_SCORE")
    assert metadata == {"score": 0.35, "threshold": 0.7}


def test_no_score_above_the_floor_is_a_violation(gateway: Gateway) -> None:
    reason, code, metadata = blocked(report(gateway, PIPELINE, grounding_scores=[0.35, 0.22]))
    assert (reason, code) == (NONE_RELEVANT, "GROUNDING_IRRELEVANT")
    assert metadata == {"floor": 0.5, "scores": [0.35, 0.22]}


def test_average_includes_only_scores_above_the_floor(gateway: Gateway) -> None:
    rules = {"min_grounding_score": 0.7, "score_relevance_floor": 0.4, "score_eval_mode": "average"}
    assert report(gateway, rules, grounding_scores=CRISIS)["action"] == "allow"
    answer = report(gateway, rules, grounding_scores=[0.6, 0.5, 0.22])
    (decision,) = answer["decisions"]
    assert (answer["action"], decision["reason"]) == ("warn", "Average grounding score (0.55) below threshold (0.7)")
    assert decision["metadata"] == {"score": 0.55, "threshold": 0.7, "mode": "average"}


def test_top_n_includes_only_the_highest_scores(gateway: Gateway) -> None:
    rules = {"score_eval_mode": "top_n", "score_top_n": 3, "action_on_violation": "block"}
    assert report(gateway, rules, grounding_scores=CRISIS)["action"] == "allow"
    answer = report(gateway, {**rules, "score_top_n": 4}, grounding_scores=CRISIS)
    assert blocked(answer)[2] == {"score": 0.35, "threshold": 0.7}


def test_reports_are_checked_separately_and_citations_are_counted_at_the_end(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(grounding={**RESEARCH, "min_citations": 4})) as run:
        first = run.grounded(
            grounding_scores=[0.92, 0.87], citations=["Federal Reserve Report", "IMF Analysis"], output_confidence=0.89
        )
        second = run.grounded(
            grounding_scores=[0.85, 0.91], citations=["SEC Filing 2023", "Legal Review"], output_confidence=0.88
        )
        end = run.complete({"answer": "…"})
        view = run.view()
    assert [answer["decisions"][0]["metadata"] for answer in (first, second)] == [{"score_count": 2}] * 2
    assert told(end) == [("after_workflow", "allow", "Grounding audit passed (4 citations)", None)]
    assert end["decisions"][0]["metadata"] == {"citation_count": 4}
    assert view["grounding_scores"] == [0.92, 0.87, 0.85, 0.91]
    assert view["citations"] == ["Federal Reserve Report", "IMF Analysis", "SEC Filing 2023", "Legal Review"]


def test_low_score_rejects_only_its_own_report(gateway: Gateway) -> None:
    with Run(gateway, gateway.agent(grounding={"action_on_violation": "block"})) as run:
        actions = [run.grounded(grounding_scores=scores)["action"] for scores in ([0.9], [0.9, 0.1], [0.8])]
    assert actions == ["allow", "block", "allow"]


def test_citations_and_unsupported_claims_are_reported_together(gateway: Gateway) -> None:
    rules = {"max_unsupported_claims": 0, "action_on_violation": "block"}
    end = finish(gateway, rules, {"unsupported_claims": ["It never breaks.", "It is free."]})
    reason, code, metadata = blocked(end)
    assert reason == "Citations (0) below minimum (1); Unsupported claims (2) exceeds max (0)"
    assert (code, metadata["citation_count"]) == ("GROUNDING_CITATIONS", 0)
    assert metadata["warnings"] == reason.split("; ")
    assert metadata["violations"][1]["metadata"]["claims"] == ["It never breaks.", "It is free."]


def test_required_grounding_and_min_citations_are_both_reported(gateway: Gateway) -> None:
    rules = {"require_source_grounding": True, "min_citations": 1, "action_on_violation": "block"}
    reason, _, metadata = blocked(finish(gateway, rules))
    assert reason == "Citations (0) below minimum (1); No source citations provided (grounding required)"
    assert (metadata["citation_count"], len(metadata["warnings"])) == (0, 2)


def test_three_citations_pass(gateway: Gateway) -> None:
    cited = {"grounding_scores": [0.9, 0.85, 0.92], "citations": ["Source A", "Source B", "Source C"]}
    end = finish(gateway, {"action_on_violation": "block"}, {**cited, "output_confidence": 0.88})
    assert told(end) == [("after_workflow", "allow", "Grounding audit passed (3 citations)", None)]


def test_repeated_source_is_one_citation(gateway: Gateway) -> None:
    end = finish(gateway, {"min_citations": 2}, {"citations": ["Source A"]}, {"citations": ["Source A"]})
    assert end["decisions"][0]["reason"] == "Citations (1) below minimum (2)"


@pytest.mark.parametrize(("limit", "action"), [(None, "allow"), (2, "allow"), (1, "block"), (0, "block")])
def test_null_disables_the_limit_on_unsupported_claims_and_zero_tolerates_none(
    gateway: Gateway, limit: int | None, action: str
) -> None:
    rules = {"max_unsupported_claims": limit, "min_citations": 0, "action_on_violation": "block"}
    end = finish(gateway, rules, {"unsupported_claims": ["one"]}, {"unsupported_claims": ["two"]})
    assert end["action"] == action


def test_low_confidence_abstains_with_the_response_of_the_policy(gateway: Gateway) -> None:
    good = {"grounding_scores": [0.9], "citations": ["a", "b"]}
    end = finish(gateway, RESEARCH, {**good, "output_confidence": 0.42})
    assert blocked(end) == (
        "Output confidence (0.42) below abstention threshold (0.5)",
        "GROUNDING_ABSTAIN",
        {"output_confidence": 0.42, "threshold": 0.5},
    )
    assert end["abstention_response"] == RESEARCH["abstention_response"]


def test_low_confidence_is_not_reversed_by_a_later_report(gateway: Gateway) -> None:
    good = {"citations": ["a", "b"]}
    end = finish(gateway, RESEARCH, {**good, "output_confidence": 0.42}, {**good, "output_confidence": 0.95})
    assert blocked(end)[2]["output_confidence"] == 0.42


def test_run_without_a_confidence_does_not_abstain(gateway: Gateway) -> None:
    assert finish(gateway, RESEARCH, {"citations": ["a", "b"]})["action"] == "allow"


@pytest.mark.parametrize(
    ("rules", "reported", "action", "reason"),
    [
        (
            RESEARCH,
            {"grounding_scores": [0.8], "citations": ["a", "b"], "output_confidence": 0.5},
            "allow",
            "Grounding audit passed (2 citations)",
        ),
        (
            MEDICAL,
            {"grounding_scores": [0.9], "citations": ["a", "b"], "output_confidence": 0.69},
            "block",
            "Citations (2) below minimum (3); Output confidence (0.69) below abstention threshold (0.7)",
        ),
        (
            LENIENT,
            {"grounding_scores": [0.1], "unsupported_claims": ["a"] * 4},
            "warn",
            "Citations (0) below minimum (1); Unsupported claims (4) exceeds max (3)",
        ),
        (
            CITATIONS_ONLY,
            {"citations": ["a"], "unsupported_claims": ["a", "b"]},
            "allow",
            "Grounding audit passed (1 citations)",
        ),
        (
            CITATIONS_ONLY,
            {},
            "block",
            "Citations (0) below minimum (1); No source citations provided (grounding required)",
        ),
    ],
)
def test_example_policies_at_the_end_of_a_run(
    gateway: Gateway, rules: Body, reported: Body, action: str, reason: str
) -> None:
    end = finish(gateway, rules, reported)
    assert told(end)[0][1:3] == (action, reason)
    assert end["action"] == action


def test_document_scores_are_checked_at_the_end(gateway: Gateway) -> None:
    rules = {**PIPELINE, "score_source": "retrieval", "min_citations": 0}
    for scores, action in ((CRISIS, "allow"), ([0.22, 0.35], "block"), ([0.9, 0.6], "block")):
        with Run(gateway, gateway.agent(grounding=rules)) as run:
            for score in scores:
                assert run.retrieved(relevance_score=score)["action"] == "allow"
            assert run.grounded(grounding_scores=[0.1])["action"] == "allow"
            end = run.complete()
        assert end["action"] == action
        assert [decision["phase"] for decision in end["decisions"]] == ["mid_execution", "after_workflow"]


def test_event_log_has_every_decision_of_a_run_in_order(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval={}, grounding={"action_on_violation": "block"})
    with Run(gateway, agent) as run:
        run.retrieved(relevance_score=0.9, source="a.pdf", age_days=3)
        run.grounded(grounding_scores=[0.42], citations=["a.pdf"])
        run.complete()
        events = run.events(5)
    assert [(event["category"], event["phase"], event["action"]) for event in events] == [
        ("grounding", "before_workflow", "allow"),
        ("retrieval", "mid_execution", "allow"),
        ("grounding", "mid_execution", "block"),
        ("retrieval", "after_workflow", "allow"),
        ("grounding", "after_workflow", "allow"),
    ]
    assert {event["agent"] for event in events} == {agent}
    assert events[2]["metadata"] == {"score": 0.42, "threshold": 0.7}
    assert events[4]["reason"] == "Grounding audit passed (1 citations)"
