import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.base import Rules, RulesError
from policies.grounding.evaluator import GroundingRules
from policies.registry import CATEGORIES, json_schema, parse_rules, without_derived
from policies.retrieval.evaluator import RetrievalRules

RETRIEVAL_DEFAULTS: dict[str, Any] = {
    "relevance_scale": "unit",
    "min_relevance_score": 0.7,
    "max_source_age_days": 90,
    "min_chunks": 1,
    "max_chunks": 10,
    "allowed_collections": (),
    "blocked_sources": (),
    "require_source_diversity": False,
    "max_single_source_ratio": 0.6,
    "action_on_low_relevance": "warn",
    "action_on_stale_source": "block",
    "action_on_chunk_violation": "warn",
    "action_on_blocked_source": "block",
    "action_on_disallowed_collection": "block",
    "action_on_domination": "warn",
    "on_all_dropped": "refuse",
    "on_missing_metadata": "ignore",
    "on_injected_instructions": "ignore",
    "require_documents": False,
    "check_conflicts": False,
}
GROUNDING_DEFAULTS: dict[str, Any] = {
    "require_source_grounding": False,
    "min_grounding_score": 0.7,
    "min_citations": 1,
    "max_unsupported_claims": None,
    "factual_consistency_check": False,
    "abstention_threshold": None,
    "abstention_response": None,
    "min_answer_relevance": None,
    "report_completeness": False,
    "action_on_violation": "warn",
    "score_relevance_floor": None,
    "score_eval_mode": "all",
    "score_top_n": 3,
    "llm_grounding_check": False,
    "llm_grounding_model": "gpt-4o-mini",
    "llm_grounding_threshold": 0.7,
    "llm_grounding_criteria": "",
    "llm_grounding_phase": "mid_execution",
    "entailment_threshold": 0.7,
    "contradiction_threshold": 0.7,
    "max_unverifiable_ratio": 0.5,
    "contradiction_action": "flag",
    "unverifiable_action": "flag",
    "unjudged_action": "warn",
    "min_coverage": 0.0,
    "reasoning_action": "pass",
    "tool_call_action": "pass",
    "max_sources_per_claim": 5,
    "max_claims": None,
    "max_regenerations": 0,
    "stream_mode": "hold",
    "score_source": "judge",
    "require_valid_citations": False,
    "on_block": "replace",
    "on_judge_unavailable": "allow",
    "evidence_from_tools": False,
}


@pytest.mark.parametrize(
    ("category", "model", "defaults"),
    [("retrieval", RetrievalRules, RETRIEVAL_DEFAULTS), ("grounding", GroundingRules, GROUNDING_DEFAULTS)],
)
def test_defaults(category: str, model: type, defaults: dict[str, Any]) -> None:
    rules = parse_rules(category, {})
    assert type(rules) is model
    assert rules.model_dump() == defaults


@pytest.mark.parametrize(
    ("unjudged_action", "reasoning_action"), [("allow", "pass"), ("warn", "pass"), ("strip", "drop"), ("block", "drop")]
)
def test_unjudged_reasoning_is_dropped_if_unjudged_text_is_withheld(
    unjudged_action: str, reasoning_action: str
) -> None:
    rules = parse_rules("grounding", {"unjudged_action": unjudged_action})
    assert isinstance(rules, GroundingRules)
    assert rules.reasoning_action == reasoning_action
    # What is stored, with every default filled in, can be read again.
    assert parse_rules("grounding", rules.model_dump(mode="json")) == rules


def test_derived_default_follows_its_rule() -> None:
    usual = parse_rules("grounding", {}).model_dump(mode="json")
    kept = without_derived("grounding", usual)
    assert set(usual) - set(kept) == {"reasoning_action"}
    chosen = {"unjudged_action": "block", "reasoning_action": "drop"}
    assert without_derived("grounding", chosen) == chosen
    assert without_derived("unknown", chosen) == chosen


@pytest.mark.parametrize(
    ("category", "rules"),
    [
        ("retrieval", {"min_relevance_score": 1, "max_single_source_ratio": 0, "max_source_age_days": 0}),
        ("retrieval", {"min_chunks": 0, "max_chunks": 1, "allowed_collections": ["a"], "blocked_sources": []}),
        ("grounding", {"min_grounding_score": 1.0, "max_unsupported_claims": 0, "abstention_threshold": None}),
        ("grounding", {"score_relevance_floor": 0, "score_top_n": 1, "max_claims": 1}),
        ("grounding", {"max_regenerations": 5}),
        ("grounding", {"unjudged_action": "block", "min_coverage": 1, "reasoning_action": "judge"}),
        ("grounding", {"unjudged_action": "allow", "tool_call_action": "hold", "reasoning_action": "pass"}),
    ],
)
def test_boundary_values_are_valid(category: str, rules: dict[str, Any]) -> None:
    dumped = json.loads(parse_rules(category, rules).model_dump_json())
    assert {name: dumped[name] for name in rules} == rules


@pytest.mark.parametrize(
    ("category", "rules", "loc", "message"),
    [
        ("retrieval", {"min_relevance_score": "0.7"}, ["min_relevance_score"], "valid number"),
        ("retrieval", {"min_relevance_score": True}, ["min_relevance_score"], "valid number"),
        ("retrieval", {"min_relevance_score": 1.01}, ["min_relevance_score"], "less than or equal to 1"),
        ("retrieval", {"min_relevance_score": -1}, ["min_relevance_score"], "greater than or equal to 0"),
        ("retrieval", {"min_relevance_score": float("nan")}, ["min_relevance_score"], "finite"),
        ("retrieval", {"min_relevance_score": float("inf")}, ["min_relevance_score"], "finite"),
        ("retrieval", {"min_relevance_score": None}, ["min_relevance_score"], "valid number"),
        ("retrieval", {"max_source_age_days": 1.5}, ["max_source_age_days"], "valid integer"),
        ("retrieval", {"max_source_age_days": 90.0}, ["max_source_age_days"], "valid integer"),
        ("retrieval", {"max_source_age_days": True}, ["max_source_age_days"], "valid integer"),
        ("retrieval", {"max_source_age_days": -1}, ["max_source_age_days"], "greater than or equal to 0"),
        ("retrieval", {"max_source_age_days": 10**400}, ["max_source_age_days"], "less than or equal"),
        ("retrieval", {"max_chunks": 0}, ["max_chunks"], "greater than or equal to 1"),
        ("retrieval", {"allowed_collections": "kb"}, ["allowed_collections"], "a list"),
        ("retrieval", {"allowed_collections": ["a", 1]}, ["allowed_collections", 1], "valid string"),
        ("retrieval", {"require_documents": 1}, ["require_documents"], "valid boolean"),
        ("retrieval", {"action_on_low_relevance": "Block"}, ["action_on_low_relevance"], "'warn', 'block' or 'drop'"),
        ("retrieval", {"action_on_blocked_source": "warn"}, ["action_on_blocked_source"], "'block' or 'drop'"),
        ("retrieval", {"min_relevance_scor": 1}, ["min_relevance_scor"], "did you mean 'min_relevance_score'?"),
        ("grounding", {"xyz": 1}, ["xyz"], "Unknown rule"),
        ("grounding", {"max_unsupported_claims": -1}, ["max_unsupported_claims"], "greater than or equal to 0"),
        ("grounding", {"score_top_n": 0}, ["score_top_n"], "greater than or equal to 1"),
        ("grounding", {"unjudged_action": "drop"}, ["unjudged_action"], "'allow', 'warn', 'strip' or 'block'"),
        ("grounding", {"min_coverage": 1.1}, ["min_coverage"], "less than or equal to 1"),
        ("grounding", {"tool_call_action": "judge"}, ["tool_call_action"], "'pass', 'hold' or 'drop'"),
        ("grounding", {"reasoning_action": "hold"}, ["reasoning_action"], "'pass', 'drop' or 'judge'"),
        (
            "grounding",
            {"unjudged_action": "strip", "reasoning_action": "pass"},
            ["reasoning_action"],
            "Input should be 'drop' or 'judge' because unjudged_action is 'strip'",
        ),
        (
            "grounding",
            {"unjudged_action": "block", "reasoning_action": "pass"},
            ["reasoning_action"],
            "because unjudged_action is 'block'",
        ),
        ("grounding", {"max_claims": 0}, ["max_claims"], "greater than or equal to 1"),
        ("grounding", {"action_on_violation": "drop"}, ["action_on_violation"], "'warn' or 'block'"),
        ("grounding", {"abstention_response": "\ud800"}, ["abstention_response"], "surrogate"),
        ("retrieval", {"blocked_sources": ["\udfff"]}, ["blocked_sources", 0], "surrogate"),
        ("grounding", {"blocked_sources": []}, ["blocked_sources"], "Unknown rule"),
        ("grounding", {"abstention_response": 5}, ["abstention_response"], "valid string"),
    ],
)
def test_invalid_rules_are_named(category: str, rules: dict[str, Any], loc: list[Any], message: str) -> None:
    with pytest.raises(RulesError) as caught:
        parse_rules(category, rules)
    (error,) = caught.value.errors
    assert error["loc"] == ["rules", *loc]
    assert message in error["msg"]
    assert "rules." + str(loc[0]) in str(caught.value)


def test_every_invalid_rule_is_named() -> None:
    with pytest.raises(RulesError) as caught:
        parse_rules("retrieval", {"min_chunks": "1", "max_chunks": 0, "nonsense": None})
    assert {error["loc"][1] for error in caught.value.errors} == {"min_chunks", "max_chunks", "nonsense"}


def test_unknown_category_is_named() -> None:
    with pytest.raises(RulesError) as caught:
        parse_rules("retrival", {})
    assert caught.value.errors[0]["loc"] == ["category"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([*RETRIEVAL_DEFAULTS, *GROUNDING_DEFAULTS]) | st.text()


@given(category=st.sampled_from(["retrieval", "grounding"]), rules=JSON | st.dictionaries(NAMES, JSON, max_size=6))
def test_any_json_gives_rules_or_a_rules_error(category: str, rules: Any) -> None:
    """Accepted values are unchanged."""
    errors: list[dict[str, Any]] = []
    parsed: Rules | None = None
    try:
        parsed = parse_rules(category, rules)
    except RulesError as error:
        errors = error.errors
    if parsed is None:
        assert errors
        assert all(error["loc"][0] == "rules" and error["msg"] for error in errors)
    else:
        dumped = parsed.model_dump()
        for name, value in rules.items():
            assert dumped[name] == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("category", list(CATEGORIES))
def test_schema_describes_every_rule(category: str) -> None:
    schema = json_schema()[category]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(CATEGORIES[category].rules.model_fields)
    for name, rule in schema["properties"].items():
        assert rule["description"], name
        assert "default" in rule, name
    json.dumps(schema)


def test_categories_have_their_own_name() -> None:
    assert [(name, category.name) for name, category in CATEGORIES.items()] == [
        ("retrieval", "retrieval"),
        ("grounding", "grounding"),
        ("freshness", "freshness"),
    ]
