"""Applies each example policy that is shipped as a template to a run of the client, and tests which steps pass and
which raise."""

from typing import Any

import pytest
from groundlane import PolicyViolationError
from playing import Player, Step

from policies.templates import templates
from tests.support.gateways.live_gateway import Gateway

RULES = {template["name"]: (template["category"], template["rules"]) for template in templates()}
Fields = dict[str, Any]


def documents(*given: Fields) -> list[Step]:
    def step(fields: Fields) -> Step:
        return lambda run: run.record_retrieval_result(**fields)

    return [step(fields) for fields in given]


def report(*scores: float, citations: int = 0, confidence: float | None = None, unsupported: int = 0) -> list[Step]:
    fields: Fields = {
        "grounding_scores": scores,
        "citations": [f"Source {number}" for number in range(citations)],
        "unsupported_claims": [f"Claim {number}." for number in range(unsupported)],
        "output_confidence": confidence,
    }
    return [lambda run: run.record_grounding(**fields)]


def results(*scores: float) -> list[Step]:
    """Search results, one of which is cited."""
    return [*documents(*({"relevance_score": score} for score in scores)), *report(citations=1)]


MANUAL = {"relevance_score": 0.92, "source": "product-manual.pdf", "collection": "knowledge_base", "age_days": 14}
FAQ = {"relevance_score": 0.85, "source": "faq.pdf", "collection": "knowledge_base", "age_days": 30}
RULE = {"relevance_score": 0.9, "source": "rules.pdf", "collection": "compliance-docs", "age_days": 3}
NONE_RELEVANT = "No grounding scores above relevance floor — all retrieved results appear irrelevant"
NO_CITATION = "No source citations provided (grounding required)"


@pytest.mark.parametrize(
    ("template", "steps", "message"),
    [
        ("Standard RAG gate", documents(MANUAL, FAQ), None),
        ("Standard RAG gate", documents(MANUAL | {"relevance_score": 0.41}), None),
        ("Standard RAG gate", documents(MANUAL | {"age_days": 400}), "Source age (400 days) exceeds max (90 days)"),
        (
            "Standard RAG gate",
            documents(MANUAL, MANUAL | {"collection": "internal-hr"}),
            "Collection 'internal-hr' not in allowed list",
        ),
        ("Strict compliance retrieval", documents(RULE, RULE | {"source": "law.pdf"}), None),
        (
            "Strict compliance retrieval",
            documents(RULE | {"relevance_score": 0.79}),
            "Retrieval relevance (0.79) below threshold (0.80)",
        ),
        (
            "Strict compliance retrieval",
            documents(RULE | {"source": "deprecated-policy-archive"}),
            "Retrieved from blocked source 'deprecated-policy-archive'",
        ),
        (
            "Strict compliance retrieval",
            documents(RULE | {"age_days": 31}),
            "Source age (31 days) exceeds max (30 days)",
        ),
        ("Strict compliance retrieval", documents(*[RULE] * 6), "Retrieved chunks (6) above maximum (5)"),
        (
            "Strict compliance retrieval",
            documents(RULE),
            "Retrieved chunks (1) below minimum (2); Source 'rules.pdf' dominates at 100% (max 50%)",
        ),
        ("Lenient retrieval monitoring", documents(FAQ | {"relevance_score": 0.1, "age_days": 4_000}), None),
        ("RAG pipeline grounding", results(0.92, 0.87, 0.85, 0.35, 0.22), None),
        ("RAG pipeline grounding", results(0.35, 0.22), NONE_RELEVANT),
        ("RAG pipeline grounding", results(0.92, 0.6), "Grounding score (0.60) below threshold (0.7)"),
        ("Strict research assistant", report(0.9, 0.85, 0.92, citations=3, confidence=0.88), None),
        ("Strict research assistant", report(0.79, citations=2), "Grounding score (0.79) below threshold (0.8)"),
        ("Strict research assistant", report(citations=1), "Citations (1) below minimum (2)"),
        (
            "Strict research assistant",
            report(citations=2, unsupported=1, confidence=0.42),
            "Unsupported claims (1) exceeds max (0); Output confidence (0.42) below abstention threshold (0.5)",
        ),
        ("Medical Q&A", report(0.9, 0.95, citations=3, confidence=0.7), None),
        ("Medical Q&A", report(0.89, citations=3), "Grounding score (0.89) below threshold (0.9)"),
        (
            "Medical Q&A",
            report(citations=3, confidence=0.69),
            "Output confidence (0.69) below abstention threshold (0.7)",
        ),
        ("Lenient RAG", report(0.1, unsupported=9), None),
        ("Citation-only", report(citations=1, unsupported=2), None),
        ("Citation-only", report(), f"Citations (0) below minimum (1); {NO_CITATION}"),
        ("Citation-only", report(citations=1, unsupported=3), "Unsupported claims (3) exceeds max (2)"),
        ("Grounding with LLM judge", report(0.9, citations=2, confidence=0.5), None),
    ],
)
def test_example_policy(gateway: Gateway, play: Player, template: str, steps: list[Step], message: str | None) -> None:
    category, rules = RULES[template]
    played = play(gateway.agent(**{category: rules}), *steps)
    if message is None:
        assert played.error is None
        return
    assert isinstance(played.error, PolicyViolationError)
    assert str(played.error) == message
    assert played.record is not None
    assert (played.record.status, played.record.action) == ("completed", "block")
    assert played.error.abstention_response == rules.get("abstention_response")
