"""Differences between two versions of a policy, field by field."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import SequenceMatcher
from functools import cache
from typing import Any, Literal

from app.dashboard.policies.form_fields import all_fields
from app.policy_admin.policy_document import PolicyDraft, PolicyVersion, complete_rules

_WORDS = re.compile(r"\s+|[^\s]+")
_MOST_WORDS = 2_000
_SEVERAL_WORDS = 4
_CATEGORY = "category"
_OUTCOMES = {
    "allow": "allowed",
    "flag": "warned",
    "warn": "warned",
    "correct": "corrected",
    "strip": "left out",
    "drop": "dropped",
    "block": "blocked",
    "pass": "passed on",
    "hold": "held",
    "judge": "judged",
}


@dataclass(frozen=True, slots=True)
class DiffPiece:
    """A part of a value. ``kind`` says whether it is in both versions, only in the old one, or only in the new one."""

    kind: Literal["same", "gone", "new"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A field with different values. ``pieces`` shows both values inline."""

    key: str
    meaning: str
    before: str
    after: str
    pieces: tuple[DiffPiece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditConflict:
    """A field that differs between the form and a version that someone else saved in the meantime. ``by`` says who
    changed it."""

    key: str
    theirs: str
    ours: str
    by: Literal["them", "you", "both"]


def draft_of(version: PolicyVersion) -> PolicyDraft:
    """Return the draft of a saved version."""
    return PolicyDraft(**{field.name: getattr(version, field.name) for field in fields(PolicyDraft)})


def changes(before: PolicyDraft, after: PolicyDraft) -> list[FieldChange]:
    """Return the fields that differ, in form order."""
    old, new = _values(before), _values(after)
    shown = {**_shown_as(before.category), **_shown_as(after.category)}
    return [
        FieldChange(
            key=key,
            meaning=meaning,
            before=words(old.get(key)),
            after=words(new.get(key)),
            pieces=_pieces(old.get(key), new.get(key)),
        )
        for key, meaning in shown.items()
        if old.get(key) != new.get(key)
    ]


def non_default_rules(draft: PolicyDraft) -> list[tuple[str, str, str, str]]:
    """Return the rules that differ from their defaults, as (name, value, default, description)."""
    values = _values(draft)
    return [
        (field.name, words(values.get(field.key)), words(field.default), field.meaning)
        for field in all_fields(draft.category)
        if field.path[0] == "rules" and values.get(field.key) != field.default
    ]


def action_rules(draft: PolicyDraft) -> list[tuple[str, str]]:
    """Return, for each rule that sets an action, its subject and the action: ("contradiction", "warned")."""
    values = _values(draft)
    fields = (field for field in all_fields(draft.category) if field.kind == "choice" and "action" in field.name)
    return [
        (
            field.name.removeprefix("action_on_").removesuffix("_action").replace("_", " "),
            _OUTCOMES.get(str(values.get(field.key)), words(values.get(field.key))),
        )
        for field in fields
    ]


def conflicts(base: PolicyDraft, theirs: PolicyDraft, ours: PolicyDraft) -> list[EditConflict]:
    """Return the fields that differ between ``theirs`` and ``ours``. Both are based on ``base``."""
    was, saved, entered = _values(base), _values(theirs), _values(ours)
    return [
        EditConflict(
            key=key,
            theirs=words(saved.get(key)),
            ours=words(entered.get(key)),
            by="you" if saved.get(key) == was.get(key) else "them" if entered.get(key) == was.get(key) else "both",
        )
        for key in _shown_as(ours.category)
        if saved.get(key) != entered.get(key)
    ]


def words(value: Any) -> str:
    """Return a value as text."""
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        case list() | tuple():
            return ", ".join(map(str, value)) if value else "none"
        case "":
            return "empty"
    return str(value)


@cache
def _shown_as(category: str) -> Mapping[str, str]:
    return {_CATEGORY: "", **{field.key: field.meaning for field in all_fields(category)}}


def _values(draft: PolicyDraft) -> dict[str, Any]:
    return replace(draft, rules=complete_rules(draft)).flat()


def _pieces(before: Any, after: Any) -> tuple[DiffPiece, ...]:
    match before, after:
        case list(), list() if set(before) != set(after):
            return _by_item(before, after)
        case str(), str() if max(len(before.split()), len(after.split())) >= _SEVERAL_WORDS:
            return _by_word(before, after)
    return DiffPiece("gone", words(before)), DiffPiece("new", words(after))


def _by_item(before: Sequence[Any], after: Sequence[Any]) -> tuple[DiffPiece, ...]:
    gone = [DiffPiece("gone", str(item)) for item in before if item not in after]
    new = [DiffPiece("new", str(item)) for item in after if item not in before]
    same = [DiffPiece("same", str(item)) for item in before if item in after]
    return (*same, *gone, *new)


def _by_word(before: str, after: str) -> tuple[DiffPiece, ...]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > _MOST_WORDS:
        return DiffPiece("gone", before), DiffPiece("new", after)
    pieces: list[DiffPiece] = []
    for _, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if old[old_from:old_to] == new[new_from:new_to]:
            pieces.append(DiffPiece("same", "".join(old[old_from:old_to])))
            continue
        both = DiffPiece("gone", "".join(old[old_from:old_to])), DiffPiece("new", "".join(new[new_from:new_to]))
        pieces += [piece for piece in both if piece.text]
    return tuple(pieces)
