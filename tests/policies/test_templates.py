from typing import Any

import pytest

from policies.registry import parse_rules
from policies.templates import templates

NAMES = [
    "Annotate only",
    "Customer support",
    "Financial figures",
    "Legal research",
    "Fresh documents",
    "Standard RAG gate",
    "Strict compliance retrieval",
    "Lenient retrieval monitoring",
    "RAG pipeline grounding",
    "Strict research assistant",
    "Medical Q&A",
    "Lenient RAG",
    "Citation-only",
    "Grounding with LLM judge",
]


def test_all_templates_are_shipped() -> None:
    assert [template["name"] for template in templates()] == NAMES


@pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)
def test_each_template_is_valid(index: int) -> None:
    template = templates()[index]
    assert set(template) == {"name", "category", "description", "rules"}
    assert template["description"].strip()
    parse_rules(template["category"], template["rules"])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Annotate only", {"contradiction_action": "flag", "action_on_violation": "warn", "stream_mode": "live"}),
        ("Customer support", {"contradiction_action": "block", "min_citations": 0, "action_on_violation": "warn"}),
        ("Financial figures", {"unverifiable_action": "strip", "factual_consistency_check": True}),
        ("Legal research", {"require_valid_citations": True, "max_unsupported_claims": 0, "stream_mode": "final"}),
        ("Fresh documents", {"max_source_age_days": 30, "action_on_stale_source": "drop", "check_conflicts": True}),
        ("Standard RAG gate", {"min_relevance_score": 0.75, "max_source_age_days": 90, "max_chunks": 8}),
        (
            "Strict compliance retrieval",
            {"min_relevance_score": 0.8, "max_source_age_days": 30, "min_chunks": 2, "max_single_source_ratio": 0.5},
        ),
        ("Lenient retrieval monitoring", {"max_source_age_days": 365, "action_on_stale_source": "warn"}),
        ("RAG pipeline grounding", {"score_relevance_floor": 0.5, "min_citations": 1, "action_on_violation": "block"}),
        ("Strict research assistant", {"min_grounding_score": 0.8, "min_citations": 2, "abstention_threshold": 0.5}),
        ("Medical Q&A", {"min_grounding_score": 0.9, "min_citations": 3, "abstention_threshold": 0.7}),
        ("Lenient RAG", {"min_grounding_score": 0.6, "max_unsupported_claims": 3, "action_on_violation": "warn"}),
        ("Citation-only", {"require_source_grounding": True, "max_unsupported_claims": 2}),
        *(
            (name, {"unjudged_action": "block", "reasoning_action": "drop", "stream_mode": "final"})
            for name in ("Strict research assistant", "Medical Q&A", "Citation-only")
        ),
        ("Grounding with LLM judge", {"llm_grounding_check": True, "llm_grounding_phase": "after_workflow"}),
    ],
)
def test_template_values(name: str, values: dict[str, Any]) -> None:
    (template,) = (template for template in templates() if template["name"] == name)
    rules = parse_rules(template["category"], template["rules"]).model_dump()
    assert {rule: rules[rule] for rule in values} == values
