"""Valid policy documents, and the errors for invalid ones."""

from typing import Any

import pytest

from app.errors import InvalidAdminRequestError
from app.policy_admin.policy_document import merge, parse_document, patched

MINIMAL: dict[str, Any] = {"name": "gate", "category": "retrieval"}


def test_every_default_is_filled_in() -> None:
    draft = parse_document(MINIMAL)
    assert (draft.enabled, draft.priority, draft.mode, draft.canary_percent) == (True, 0, "enforce", 100)
    assert draft.scope == {"agents": [], "models": [], "keys": []}
    assert (draft.rules["min_relevance_score"], draft.rules["max_chunks"]) == (0.7, 10)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a\0"}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"category": "weather"}, "category"),
        ({"category": 7}, "category"),
        ({"rules": []}, "rules"),
        ({"rules": {"min_relevance_score": 1.5}}, "rules.min_relevance_score"),
        ({"rules": {"min_relevance_score": "0.5"}}, "rules.min_relevance_score"),
        ({"rules": {"min_relevance_score": float("nan")}}, "rules.min_relevance_score"),
        ({"rules": {"min_relevance": 0.5}}, "rules.min_relevance"),
        ({"rules": {"blocked_sources": ["a\0"]}}, "rules"),
        ({"scope": {"agents": "all"}}, "scope.agents"),
        ({"scope": {"agents": [""]}}, "scope.agents.0"),
        ({"scope": {"teams": []}}, "scope.teams"),
        ({"enabled": "yes"}, "enabled"),
        ({"enabled": 1}, "enabled"),
        ({"priority": 1.5}, "priority"),
        ({"priority": 2**31}, "priority"),
        ({"mode": "off"}, "mode"),
        ({"canary_percent": 101}, "canary_percent"),
        ({"canary_percent": -1}, "canary_percent"),
        ({"canary_percent": 12.5}, "canary_percent"),
        ({"version": 3}, "version"),
    ],
)
def test_invalid_fields_are_named(change: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidAdminRequestError) as caught:
        parse_document(MINIMAL | change)
    assert caught.value.message.startswith(f"{where}: ")
    assert ".".join(map(str, caught.value.errors[0]["loc"])) == where
    assert set(caught.value.errors[0]) == {"loc", "msg"}


@pytest.mark.parametrize(
    ("rules", "named"),
    [({"min_chunks": -1}, ["name", "rules.min_chunks"]), ({"min_chunks": 2}, ["name"]), (7, ["name", "rules"])],
)
def test_all_errors_are_reported_at_once(rules: Any, named: list[str]) -> None:
    with pytest.raises(InvalidAdminRequestError) as caught:
        parse_document(MINIMAL | {"name": "", "rules": rules})
    assert [".".join(map(str, error["loc"])) for error in caught.value.errors] == named


@pytest.mark.parametrize("document", [None, [], "policy", 7, {}])
def test_other_json_is_rejected(document: Any) -> None:
    with pytest.raises(InvalidAdminRequestError):
        parse_document(document)


# The cases of RFC 7396, appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_rfc_7396(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


def test_patch_keeps_other_rules_and_null_restores_the_default() -> None:
    draft = parse_document(MINIMAL | {"rules": {"min_relevance_score": 0.5, "max_chunks": 3}})
    changed = patched(draft, {"rules": {"min_relevance_score": None, "min_chunks": 2}, "priority": 4})
    assert (changed.rules["min_relevance_score"], changed.rules["min_chunks"]) == (0.7, 2)
    assert (changed.rules["max_chunks"], changed.priority, changed.name) == (3, 4, "gate")
    assert draft.rules["max_chunks"] == 3
