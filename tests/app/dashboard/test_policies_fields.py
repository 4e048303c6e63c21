"""The form of a policy is its schema: every field is in it, and what is entered comes back as the document it means."""

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
from app.dashboard.policies.version_diff import changes, conflicts, non_default_rules
from app.errors import InvalidAdminRequestError
from app.policy_admin.policy_document import PolicyDocument, PolicyDraft, parse_document
from policies.registry import CATEGORIES
from policies.templates import templates


def draft(category: str = "grounding", rules: dict[str, Any] | None = None, **fields: Any) -> PolicyDraft:
    return parse_document({"name": "p", "category": category, "rules": rules or {}, **fields})


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_rule_has_its_place_and_its_meaning(category: str) -> None:
    groups = rule_groups(category)
    shown = [field.name for group in groups for field in group.fields]
    assert sorted(shown) == sorted(CATEGORIES[category].rules.model_fields)
    assert "More rules" not in [group.title for group in groups]
    assert [field.key for field in all_fields(category) if not field.meaning] == []


def test_the_other_fields_are_those_of_a_policy() -> None:
    assert {key.partition(".")[0] for key in basics()} | {"category", "rules"} == set(PolicyDocument.model_fields)


@pytest.mark.parametrize("template", templates(), ids=lambda template: template["name"])
def test_a_template_goes_through_the_form_unchanged(template: dict[str, Any]) -> None:
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
def test_any_policy_goes_through_the_form_unchanged(
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
def test_what_is_entered_is_read_as_its_kind_or_left_as_it_is(key: str, texts: list[str], value: Any) -> None:
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
def test_what_is_wrong_is_said_of_its_field(key: str, texts: list[str], said: str) -> None:
    entries = entries_of(asdict(draft("retrieval")), "retrieval") | {key: texts}
    with pytest.raises(InvalidAdminRequestError) as caught:
        parse_document(document_of(entries, "retrieval"))
    found = errors_by_field(caught.value.errors, "retrieval")
    assert list(found) == [key]
    assert said in found[key]


def test_what_is_wrong_of_no_field_is_said_all_the_same() -> None:
    errors = [{"loc": ["rules"], "msg": "no"}, {"loc": ["rules", "new_rule"], "msg": "Unknown rule"}]
    assert errors_by_field(errors, "grounding") == {"": "rules: no; rules.new_rule: unknown rule"}


def test_changes_are_told_field_by_field_and_word_by_word() -> None:
    old = draft(rules={"abstention_response": "Please ask your own pharmacist."}, scope={"agents": ["a", "b"]})
    new = draft(
        rules={"abstention_response": "Please ask your doctor.", "max_claims": 9, "evidence_from_tools": True},
        scope={"agents": ["b", "c"]},
    )
    found = {change.key: [(piece.kind, piece.text) for piece in change.pieces] for change in changes(old, new)}
    assert found == {
        "scope.agents": [("same", "b"), ("gone", "a"), ("new", "c")],
        "rules.abstention_response": [
            ("same", "Please ask your "),
            ("gone", "own pharmacist."),
            ("new", "doctor."),
        ],
        "rules.max_claims": [("gone", "none"), ("new", "9")],
        "rules.evidence_from_tools": [("gone", "off"), ("new", "on")],
    }
    assert changes(old, old) == []
    assert [(name, value, default) for name, value, default, _ in non_default_rules(new)] == [
        ("abstention_response", "Please ask your doctor.", "none"),
        ("max_claims", "9", "none"),
        ("evidence_from_tools", "on", "off"),
    ]


def test_another_category_and_another_order_are_changes() -> None:
    found = changes(draft("retrieval", {"min_chunks": 2}), draft("grounding"))
    assert [(found[0].key, found[0].before, found[0].after)] == [("category", "retrieval", "grounding")]
    assert {"rules.min_chunks", "rules.min_citations"} <= {change.key for change in found}
    turned = changes(draft(scope={"models": ["a", "b"]}), draft(scope={"models": ["b", "a"]}))
    assert [piece.text for piece in turned[0].pieces] == ["a, b", "b, a"]


def test_of_two_edits_it_is_told_who_changed_what() -> None:
    base = draft(priority=1, rules={"min_citations": 1, "max_claims": 5})
    theirs = draft(priority=2, rules={"min_citations": 2, "max_claims": 5})
    ours = draft(priority=1, rules={"min_citations": 3, "max_claims": 6})
    assert [
        (conflict.key, conflict.theirs, conflict.ours, conflict.by) for conflict in conflicts(base, theirs, ours)
    ] == [
        ("priority", "2", "1", "them"),
        ("rules.max_claims", "5", "6", "you"),
        ("rules.min_citations", "2", "3", "both"),
    ]
