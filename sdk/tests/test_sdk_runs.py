"""Tests the client's runs against a live gateway, with each policy's decisions on the records."""

from typing import Any

import pytest
from groundlane import Decision, GatewayStatusError, Groundlane, PolicyViolationError
from playing import Player, Step

from tests.support.gateways.live_gateway import Gateway

BLOCKING = {"action_on_violation": "block"}


def document(**fields: Any) -> Step:
    given = {"relevance_score": 0.92, "source": "manual.pdf", "collection": "knowledge_base", "age_days": 14, **fields}
    return lambda run: run.record_retrieval_result(**given)


def grounding(**fields: Any) -> Step:
    return lambda run: run.record_grounding(**fields)


def of(decisions: Any, category: str, phase: str) -> Decision:
    (found,) = [made for made in decisions if (made.category, made.phase) == (category, phase)]
    return found


# Retrieval


def test_good_documents_pass(gateway: Gateway, play: Player) -> None:
    agent = gateway.agent(retrieval={"allowed_collections": ["knowledge_base"]})
    played = play(agent, document(), document(relevance_score=0.85, source="faq.pdf", age_days=30), result="yes")
    assert played.error is None
    assert [[decision.action for decision in caused] for caused in played.caused] == [["allow"], ["allow"]]
    assert played.record is not None
    assert (played.record.status, played.record.action) == ("completed", "allow")
    assert [(kept.source, kept.relevance_score, kept.age_days) for kept in played.record.documents] == [
        ("manual.pdf", 0.92, 14.0),
        ("faq.pdf", 0.85, 30.0),
    ]


@pytest.mark.parametrize(
    ("rules", "fields", "message", "metadata", "code"),
    [
        (
            {"action_on_low_relevance": "block"},
            {"relevance_score": 0.41},
            "Retrieval relevance (0.41) below threshold (0.70)",
            {"relevance_score": 0.41, "threshold": 0.7},
            "RETRIEVAL_LOW_RELEVANCE",
        ),
        (
            {},
            {"age_days": 400},
            "Source age (400 days) exceeds max (90 days)",
            {"age_days": 400, "max_age": 90},
            "RETRIEVAL_STALE_SOURCE",
        ),
        (
            {"allowed_collections": ["knowledge_base"]},
            {"collection": "internal-hr"},
            "Collection 'internal-hr' not in allowed list",
            {"collection": "internal-hr", "allowed": ["knowledge_base"]},
            "RETRIEVAL_COLLECTION",
        ),
        (
            {"blocked_sources": ["deprecated-kb"]},
            {"source": "deprecated-kb"},
            "Retrieved from blocked source 'deprecated-kb'",
            {"blocked_source": "deprecated-kb"},
            "RETRIEVAL_BLOCKED_SOURCE",
        ),
    ],
    ids=["relevance", "age", "collection", "source"],
)
def test_forbidden_document_raises_when_recorded(
    gateway: Gateway,
    play: Player,
    rules: dict[str, Any],
    fields: dict[str, Any],
    message: str,
    metadata: dict[str, Any],
    code: str,
) -> None:
    agent = gateway.agent(retrieval=rules)
    played = play(agent, document(), document(**fields), document(source="never.pdf"))
    assert isinstance(played.error, PolicyViolationError)
    assert (str(played.error), played.error.code) == (message, code)
    (decision,) = [made for made in played.error.decisions if made.blocks]
    assert decision.phase == "mid_execution"
    assert {name: decision.metadata[name] for name in metadata} == metadata
    assert played.record is not None
    assert [kept.source for kept in played.record.documents] == ["manual.pdf", fields.get("source", "manual.pdf")]
    assert (played.record.status, played.record.action) == ("completed", "block")


def test_low_relevance_only_warns_by_default(gateway: Gateway, play: Player) -> None:
    played = play(gateway.agent(retrieval={}), document(relevance_score=0.41))
    assert played.error is None
    (decision,) = played.caused[0]
    assert (decision.action, decision.reason) == ("warn", "Retrieval relevance (0.41) below threshold (0.70)")


def test_too_many_documents_are_reported_when_recorded(gateway: Gateway, play: Player) -> None:
    agent = gateway.agent(retrieval={"max_chunks": 2, "action_on_chunk_violation": "block"})
    played = play(agent, document(), document(), document())
    assert str(played.error) == "Retrieved chunks (3) above maximum (2)"


@pytest.mark.parametrize(
    ("rules", "steps", "message"),
    [
        ({"min_chunks": 2}, [document()], "Retrieved chunks (1) below minimum (2)"),
        ({"require_documents": True}, [], "Retrieved chunks (0) below minimum (1)"),
    ],
    ids=["one", "none"],
)
def test_too_few_documents_are_reported_at_the_end(
    gateway: Gateway, play: Player, rules: dict[str, Any], steps: list[Step], message: str
) -> None:
    agent = gateway.agent(retrieval={"action_on_chunk_violation": "block", **rules})
    played = play(agent, *steps)
    assert len(played.caused) == len(steps)
    assert str(played.error) == message


def test_dominant_source_is_a_warning_at_the_end(gateway: Gateway, play: Player) -> None:
    agent = gateway.agent(retrieval={"require_source_diversity": True})
    sources = ["doc.pdf", "doc.pdf", "doc.pdf", "other.pdf"]
    played = play(agent, *(document(source=source) for source in sources))
    assert played.error is None
    assert played.record is not None
    decision = of(played.record.decisions, "retrieval", "after_workflow")
    assert (decision.action, decision.reason) == ("warn", "Source 'doc.pdf' dominates at 75% (max 60%)")


# Grounding


@pytest.mark.parametrize(
    ("rules", "scores", "message"),
    [
        ({}, [0.9, 0.42], "Grounding score (0.42) below threshold (0.7)"),
        (
            {"score_relevance_floor": 0.5},
            [0.35, 0.22],
            "No grounding scores above relevance floor — all retrieved results appear irrelevant",
        ),
        ({"score_eval_mode": "average"}, [0.6, 0.5], "Average grounding score (0.55) below threshold (0.7)"),
        (
            {"score_eval_mode": "top_n", "score_top_n": 2},
            [0.9, 0.6, 0.2],
            "Grounding score (0.60) below threshold (0.7)",
        ),
    ],
    ids=["all", "floor", "average", "top_n"],
)
def test_low_scores_raise_when_recorded(
    gateway: Gateway, play: Player, rules: dict[str, Any], scores: list[float], message: str
) -> None:
    agent = gateway.agent(grounding={**BLOCKING, **rules})
    played = play(agent, grounding(grounding_scores=scores, citations=["a"]))
    assert isinstance(played.error, PolicyViolationError)
    assert str(played.error) == message
    assert played.caused == []


@pytest.mark.parametrize(
    ("rules", "scores"),
    [
        ({}, [0.9, 0.85, 0.7]),
        ({"score_relevance_floor": 0.5}, [0.92, 0.87, 0.85, 0.35, 0.22]),
        ({"score_eval_mode": "average"}, [0.95, 0.5]),
        ({"score_eval_mode": "top_n", "score_top_n": 2}, [0.2, 0.9, 0.8]),
        ({}, []),
    ],
    ids=["all", "floor", "average", "top_n", "none"],
)
def test_sufficient_scores_pass(gateway: Gateway, play: Player, rules: dict[str, Any], scores: list[float]) -> None:
    agent = gateway.agent(grounding={**BLOCKING, **rules})
    played = play(agent, grounding(grounding_scores=scores, citations=["a"]))
    assert played.error is None


@pytest.mark.parametrize(
    ("rules", "recorded", "message"),
    [
        (
            {"require_source_grounding": True},
            {"citations": []},
            "Citations (0) below minimum (1); No source citations provided (grounding required)",
        ),
        (
            {"max_unsupported_claims": 0},
            {"unsupported_claims": ["It floats.", "It sings."]},
            "Citations (0) below minimum (1); Unsupported claims (2) exceeds max (0)",
        ),
        (
            {"abstention_threshold": 0.5},
            {"citations": ["a"], "output_confidence": 0.42},
            "Output confidence (0.42) below abstention threshold (0.5)",
        ),
    ],
    ids=["required", "unsupported", "abstention"],
)
def test_violations_of_the_whole_run_raise_at_its_end(
    gateway: Gateway, play: Player, rules: dict[str, Any], recorded: dict[str, Any], message: str
) -> None:
    agent = gateway.agent(grounding={**BLOCKING, **rules})
    played = play(agent, grounding(**recorded), result={"answer": "42"})
    assert isinstance(played.error, PolicyViolationError)
    assert str(played.error) == message
    assert len(played.caused) == 1
    assert played.record is not None
    assert played.record.status == "completed"


def test_abstention_response_is_part_of_the_violation(gateway: Gateway, play: Player) -> None:
    words = "I don't have sufficient grounded evidence to answer this accurately."
    rules = {**BLOCKING, "abstention_threshold": 0.5, "abstention_response": words}
    played = play(gateway.agent(grounding=rules), grounding(citations=["a"], output_confidence=0.3))
    assert isinstance(played.error, PolicyViolationError)
    assert (played.error.code, played.error.abstention_response) == ("GROUNDING_ABSTAIN", words)


def test_run_without_a_confidence_does_not_abstain(gateway: Gateway, play: Player) -> None:
    agent = gateway.agent(grounding={**BLOCKING, "abstention_threshold": 0.5})
    assert play(agent, grounding(citations=["a"])).error is None


def test_grounding_only_warns_by_default(gateway: Gateway, play: Player) -> None:
    played = play(gateway.agent(grounding={}), grounding(grounding_scores=[0.1]))
    assert played.error is None
    assert played.record is not None
    assert played.record.action == "warn"


def test_records_of_several_calls_accumulate(gateway: Gateway, play: Player) -> None:
    played = play(
        gateway.agent(grounding={**BLOCKING, "min_citations": 4}),
        grounding(
            grounding_scores=[0.92, 0.87], citations=["Federal Reserve Report", "IMF Analysis"], output_confidence=0.89
        ),
        grounding(grounding_scores=[0.85, 0.91], citations=["SEC Filing 2023", "Legal Review"], output_confidence=0.88),
        result={"answer": "Rates rose."},
    )
    assert played.error is None
    assert played.record is not None
    assert played.record.grounding_scores == (0.92, 0.87, 0.85, 0.91)
    assert played.record.output_confidence == 0.88
    assert played.record.result == {"answer": "Rates rose."}
    decision = of(played.record.decisions, "grounding", "after_workflow")
    assert (decision.action, decision.reason) == ("allow", "Grounding audit passed (4 citations)")


# Both, and neither


def test_violations_are_returned_and_recorded_without_enforcement(gateway: Gateway, play: Player) -> None:
    agent = gateway.agent(retrieval={}, grounding=BLOCKING)
    played = play(agent, document(age_days=400), grounding(grounding_scores=[0.1]), enforce_policy=False)
    assert played.error is None
    assert [[made.blocks for made in caused] for caused in played.caused] == [[True], [True]]
    assert played.record is not None
    assert (played.record.status, played.record.action) == ("completed", "block")


def test_policies_of_other_agents_do_not_apply(gateway: Gateway, play: Player) -> None:
    gateway.agent(retrieval={"max_source_age_days": 1})
    assert play("nobody's agent", document(age_days=400)).error is None


def test_policies_of_the_model_apply(gateway: Gateway, play: Player) -> None:
    gateway.policy("retrieval", scope={"models": ["picky-1"]})
    stale = document(age_days=400)
    assert play("an agent of two models", stale, model="easy-1").error is None
    assert isinstance(play("an agent of two models", stale, model="picky-1").error, PolicyViolationError)


@pytest.mark.parametrize(
    ("step", "message", "param"),
    [
        (document(relevance_score=1.5), "relevance_score", "relevance_score"),
        (grounding(grounding_scores=[0.5, 7]), "grounding_scores", "grounding_scores[1]"),
    ],
    ids=["document", "score"],
)
def test_fields_that_the_gateway_rejects_are_named(
    gateway: Gateway, play: Player, step: Step, message: str, param: str
) -> None:
    played = play("somebody", step)
    assert isinstance(played.error, GatewayStatusError)
    assert (played.error.status, played.error.param) == (400, param)
    assert message in str(played.error)


def test_unknown_run_is_an_error(gateway: Gateway) -> None:
    with Groundlane(gateway.base_url) as client, pytest.raises(GatewayStatusError) as raised:
        client.get_run("run_of_nobody")
    assert (raised.value.status, raised.value.code) == (404, "run_not_found")
