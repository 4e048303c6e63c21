"""The policy form is generated from the schema: it has every field, and returns the document that was entered."""

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dashboard.policies.form_fields import (
    all_fields,
    basics,
    document_of,
    entries_of,
    errors_by_field,
    rule_groups,
)
from app.errors import InvalidAdminRequestError
from app.policy_admin.policy_document import PolicyDocument, PolicyDraft, parse_document
from policies.registry import CATEGORIES
from policies.templates import templates


def draft(category: str = "grounding", rules: dict[str, Any] | None = None, **fields: Any) -> PolicyDraft:
    return parse_document({"name": "p", "category": category, "rules": rules or {}, **fields})


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_rule_has_a_group_and_a_description(category: str) -> None:
    groups = rule_groups(category)
    shown = [field.name for group in groups for field in group.fields]
    assert sorted(shown) == sorted(CATEGORIES[category].rules.model_fields)
    assert "Other rules" not in [group.title for group in groups]
    assert [field.key for field in all_fields(category) if not field.meaning] == []


def test_basic_fields_are_those_of_a_policy() -> None:
    assert {key.partition(".")[0] for key in basics()} | {"category", "rules"} == set(PolicyDocument.model_fields)


@pytest.mark.parametrize("template", templates(), ids=lambda template: template["name"])
def test_templates_survive_the_form_unchanged(template: dict[str, Any]) -> None:
    meant = {name: template[name] for name in ("name", "category", "rules")}
    entries = entries_of(meant, template["category"])
    assert parse_document(document_of(entries, template["category"])) == parse_document(meant)


@given(
    score=st.floats(0, 1),
    count=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    said=st.one_of(st.none(), st.text(st.characters(exclude_characters="\r\0", codec="utf-8"), min_size=1)),
    agents=st.lists(st.text(st.characters(min_codepoint=32, codec="ascii", exclude_characters="\x7f"), min_size=1)),
    enabled=st.booleans(),
)
def test_any_policy_survives_the_form_unchanged(
    score: float, count: int | None, said: str | None, agents: list[str], enabled: bool
) -> None:
    rules = {"min_grounding_score": score, "max_unsupported_claims": count}
    if said is None or said.strip():
        rules["abstention_response"] = said
    document = {"name": "p", "category": "grounding", "rules": rules, "enabled": enabled}
    meant = parse_document({**document, "scope": {"agents": [agent[:200] for agent in agents]}})
    assert parse_document(document_of(entries_of(asdict(meant), "grounding"), "grounding")) == meant


@pytest.mark.parametrize(
    ("key", "texts", "value"),
    [
        ("rules.min_citations", ["3"], 3),
        ("rules.min_citations", [" 3 "], 3),
        ("rules.min_citations", ["3.0"], "3.0"),
        ("rules.min_citations", ["1_000"], "1_000"),
        ("rules.min_citations", [""], ""),
        ("rules.min_citations", ["9" * 401], "9" * 401),
        ("rules.max_claims", [""], None),
        ("rules.max_claims", [], None),
        ("rules.min_grounding_score", ["0.7"], 0.7),
        ("rules.min_grounding_score", [".5"], 0.5),
        ("rules.min_grounding_score", ["1e-2"], 0.01),
        ("rules.min_grounding_score", ["0,7"], "0,7"),
        ("rules.min_grounding_score", ["nan"], "nan"),
        ("rules.factual_consistency_check", ["on"], True),
        ("rules.factual_consistency_check", [], False),
        ("rules.abstention_response", ["two\r\nlines"], "two\nlines"),
        ("rules.llm_grounding_criteria", [""], ""),
        ("scope.agents", ["a", "", "b*"], ["a", "b*"]),
    ],
)
def test_entries_are_parsed_by_kind_or_kept_as_text(key: str, texts: list[str], value: Any) -> None:
    (field,) = (field for field in all_fields("grounding") if field.key == key)
    read = field.read(texts)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "texts", "said"),
    [
        ("rules.min_chunks", ["-1"], "greater than or equal to 0"),
        ("rules.min_chunks", ["many"], "valid integer"),
        ("rules.max_single_source_ratio", ["0,5"], "valid number"),
        ("rules.action_on_domination", ["scold"], "'warn', 'block' or 'drop'"),
        ("scope.agents", ["fine", "x" * 201], "item 2: must have at most 200"),
        ("name", [""], "at least 1 character"),
        ("canary_percent", ["101"], "less than or equal to 100"),
    ],
)
def test_errors_are_assigned_to_their_field(key: str, texts: list[str], said: str) -> None:
    entries = entries_of(asdict(draft("retrieval")), "retrieval") | {key: texts}
    with pytest.raises(InvalidAdminRequestError) as caught:
        parse_document(document_of(entries, "retrieval"))
    found = errors_by_field(caught.value.errors, "retrieval")
    assert list(found) == [key]
    assert said in found[key]


def test_errors_without_a_field_are_kept() -> None:
    errors = [{"loc": ["rules"], "msg": "no"}, {"loc": ["rules", "new_rule"], "msg": "Unknown rule"}]
    assert errors_by_field(errors, "grounding") == {"": "rules: no; rules.new_rule: unknown rule"}
