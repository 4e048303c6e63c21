"""Differences between policy versions, and conflicts between edits."""

from dataclasses import replace
from typing import Any

from app.dashboard.policies.version_diff import action_rules, changes, conflicts, non_default_rules
from app.policy_admin.policy_document import PolicyDraft, parse_document


def draft(category: str = "grounding", rules: dict[str, Any] | None = None, **fields: Any) -> PolicyDraft:
    return parse_document({"name": "p", "category": category, "rules": rules or {}, **fields})


def test_changes_are_listed_by_field_and_word() -> None:
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


def test_rules_that_an_earlier_version_did_not_store_have_their_defaults() -> None:
    """Each rule in turn is missing, as in a policy that was saved before the rule existed."""
    whole = draft(rules={"min_citations": 0})
    for name in whole.rules.keys() - {"min_citations"}:
        old = replace(whole, rules={key: value for key, value in whole.rules.items() if key != name})
        assert changes(old, whole) == []
        assert [found for found, *_ in non_default_rules(old)] == ["min_citations"]


def test_outcomes_of_all_action_rules_are_listed_even_if_they_are_the_default() -> None:
    found = dict(action_rules(draft(rules={"unverifiable_action": "strip"})))
    assert found == {
        "violation": "warned",
        "contradiction": "warned",
        "unverifiable": "left out",
        "unjudged": "warned",
        "reasoning": "passed on",
        "tool call": "passed on",
    }
    assert dict(action_rules(draft("retrieval", {"action_on_stale_source": "drop"})))["stale source"] == "dropped"


def test_rules_that_cannot_be_read_are_shown_as_they_are() -> None:
    odd = replace(draft(), rules={**draft().rules, "min_citations": "many", "renamed": 1})
    assert [(name, value) for name, value, *_ in non_default_rules(odd)] == [("min_citations", "many")]


def test_different_category_or_order_is_a_change() -> None:
    found = changes(draft("retrieval", {"min_chunks": 2}), draft("grounding"))
    assert [(found[0].key, found[0].before, found[0].after)] == [("category", "retrieval", "grounding")]
    assert {"rules.min_chunks", "rules.min_citations"} <= {change.key for change in found}
    turned = changes(draft(scope={"models": ["a", "b"]}), draft(scope={"models": ["b", "a"]}))
    assert [piece.text for piece in turned[0].pieces] == ["a, b", "b, a"]


def test_conflicts_say_who_changed_what() -> None:
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
