"""The policy form: generates its fields from the JSON Schema of the rules, and converts entries to and from a document.

Nothing is validated here. A value that can't be parsed as its field's type is passed on as text. The validation that
applies to all policies then reports it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from app.dashboard.error_messages import readable
from app.policy_admin.policy_document import PolicyDocument
from policies.registry import json_schema

Entries = Mapping[str, Sequence[str]]
"""The contents of a form: the text entries of each input, by input name."""
Kind = Literal["flag", "choice", "number", "integer", "line", "text", "names"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER = re.compile(r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ON = "on"
_LARGEST_SHOWN = 1_000_000_000
_BASICS = ("name", "enabled")
_ROLLOUT = ("mode", "canary_percent", "priority")
_OTHER_RULES = "Other rules"
_RULES = "Rules"
_GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "grounding": {
        "Violations": (
            "contradiction_action",
            "unverifiable_action",
            "max_unverifiable_ratio",
            "max_unsupported_claims",
            "max_regenerations",
            "factual_consistency_check",
        ),
        "Unjudged text": ("unjudged_action", "min_coverage", "reasoning_action", "tool_call_action"),
        "Actions": (
            "action_on_violation",
            "on_block",
            "abstention_response",
            "stream_mode",
            "on_judge_unavailable",
        ),
        "Judging claims": (
            "entailment_threshold",
            "contradiction_threshold",
            "max_sources_per_claim",
            "max_claims",
            "evidence_from_tools",
        ),
        "Scores": (
            "min_grounding_score",
            "score_source",
            "score_eval_mode",
            "score_top_n",
            "score_relevance_floor",
            "abstention_threshold",
        ),
        "Answers": ("min_answer_relevance", "report_completeness"),
        "Citations": ("require_source_grounding", "min_citations", "require_valid_citations"),
        "LLM judge": (
            "llm_grounding_check",
            "llm_grounding_model",
            "llm_grounding_threshold",
            "llm_grounding_criteria",
            "llm_grounding_phase",
        ),
    },
    "retrieval": {
        "Relevance and age": (
            "relevance_scale",
            "min_relevance_score",
            "relevance_scale",
            "action_on_low_relevance",
            "max_source_age_days",
            "action_on_stale_source",
            "on_missing_metadata",
        ),
        "Number of documents": (
            "require_documents",
            "min_chunks",
            "max_chunks",
            "action_on_chunk_violation",
            "on_all_dropped",
        ),
        "Allowed sources": (
            "allowed_collections",
            "action_on_disallowed_collection",
            "blocked_sources",
            "action_on_blocked_source",
        ),
        "Source diversity": ("require_source_diversity", "max_single_source_ratio", "action_on_domination"),
        "Conflicting documents": ("check_conflicts",),
        "Instructions in documents": ("on_injected_instructions",),
    },
}
"""The form's headings and the rules under each, by category. Rules that aren't listed come last. If a category isn't
listed, all of its rules are under one heading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """An input of the form. ``path`` locates its value in the document. If ``optional``, an empty input means null."""

    path: tuple[str, ...]
    kind: Kind
    meaning: str
    default: Any = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    optional: bool = False

    @property
    def key(self) -> str:
        """The name of the input."""
        return ".".join(self.path)

    @property
    def name(self) -> str:
        return self.path[-1]

    def read(self, texts: Sequence[str]) -> Any:
        """Convert the entered text to a JSON value. If it can't be parsed as this kind, return the text itself."""
        if self.kind == "flag":
            return bool(texts)
        if self.kind == "names":
            return [text for text in map(_with_plain_breaks, texts) if text]
        text = _with_plain_breaks(texts[0]) if texts else ""
        if self.optional and not text.strip():
            return None
        if self.kind == "integer" and _INTEGER.fullmatch(text.strip()):
            return int(text)
        if self.kind == "number" and _NUMBER.fullmatch(text.strip()):
            return float(text)
        return text

    def write(self, value: Any) -> list[str]:
        """Convert ``value`` to input texts. This is the inverse of ``read``."""
        match value:
            case None:
                return []
            case bool():
                return [_ON] if value else []
            case list() | tuple():
                return [str(item) for item in value]
            case float():
                return [f"{value:g}" if float(f"{value:g}") == value else repr(value)]
        return [str(value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleGroup:
    """A heading and its fields."""

    title: str
    fields: tuple[FormField, ...]

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z]+", "-", self.title.lower())


@cache
def basics() -> Mapping[str, FormField]:
    """Return the fields, by key, that every policy has in addition to its rules."""
    schema = PolicyDocument.model_json_schema()
    scope = schema["$defs"]["ScopeDocument"]["properties"]
    properties = {name: schema["properties"][name] for name in (*_BASICS, *_ROLLOUT)}
    fields = [*_fields(properties, ()), *_fields(scope, ("scope",))]
    return {field.key: field for field in fields}


@cache
def rule_groups(category: str) -> tuple[RuleGroup, ...]:
    """Return the rules of a known category, grouped."""
    rules = {field.name: field for field in _fields(json_schema()[category]["properties"], ("rules",))}
    groups = []
    for title, names in _GROUPS.get(category, {}).items():
        if found := [rules.pop(name) for name in names if name in rules]:
            groups.append(RuleGroup(title=title, fields=tuple(found)))
    if rules:
        groups.append(RuleGroup(title=_OTHER_RULES if groups else _RULES, fields=tuple(rules.values())))
    return tuple(groups)


def all_fields(category: str) -> Iterator[FormField]:
    """Yield all fields of a policy of a known category."""
    yield from basics().values()
    for group in rule_groups(category):
        yield from group.fields


def entries_of(document: Mapping[str, Any], category: str) -> dict[str, list[str]]:
    """Convert ``document`` to form entries. Missing values get their defaults."""
    return {field.key: field.write(_at(document, field.path, field.default)) for field in all_fields(category)}


def document_of(entries: Entries, category: str) -> dict[str, Any]:
    """Convert form entries to a document, without validating it."""
    document: dict[str, Any] = {"category": category}
    for field in all_fields(category):
        place = document
        for part in field.path[:-1]:
            place = place.setdefault(part, {})
        place[field.name] = field.read(entries.get(field.key, ()))
    return document


def errors_by_field(errors: Iterable[Mapping[str, Any]], category: str) -> dict[str, str]:
    """Group ``[{loc, msg}]`` errors by field key. Errors that don't belong to a field are under ``""``."""
    known = {field.key for field in all_fields(category)}
    found: dict[str, list[str]] = {}
    for error in errors:
        loc = [str(part) for part in error["loc"]]
        key = next((".".join(loc[:end]) for end in (2, 1) if ".".join(loc[:end]) in known), "")
        rest = loc[key.count(".") + 1 :] if key else loc
        where = f"item {int(rest[0]) + 1}" if rest and rest[0].isdecimal() else "" if key else ".".join(rest)
        found.setdefault(key, []).append(readable(str(error["msg"]), where))
    return {key: "; ".join(messages) for key, messages in found.items()}


def _at(document: Mapping[str, Any], path: Sequence[str], default: Any) -> Any:
    place: Any = document
    for part in path:
        if not isinstance(place, Mapping) or part not in place:
            return default
        place = place[part]
    return place


def _fields(properties: Mapping[str, Mapping[str, Any]], path: tuple[str, ...]) -> Iterator[FormField]:
    for name, schema in properties.items():
        kinds = schema.get("anyOf", [schema])
        typed = next(kind for kind in kinds if kind.get("type") != "null")
        yield FormField(
            path=(*path, name),
            kind=_kind(typed),
            meaning=schema.get("description", ""),
            default=schema.get("default"),
            choices=tuple(typed.get("enum", ())),
            least=typed.get("minimum"),
            most=most if (most := typed.get("maximum", _LARGEST_SHOWN)) < _LARGEST_SHOWN else None,
            optional=len(kinds) > 1,
        )


def _kind(schema: Mapping[str, Any]) -> Kind:
    match schema:
        case {"enum": _}:
            return "choice"
        case {"type": "boolean"}:
            return "flag"
        case {"type": "number"}:
            return "number"
        case {"type": "integer"}:
            return "integer"
        case {"type": "array"}:
            return "names"
        # Strings that must not be empty are names; all others are prose.
        case {"minLength": least} if least > 0:
            return "line"
    return "text"


def _with_plain_breaks(text: str) -> str:
    """Convert the CRLF line breaks that browsers send to LF."""
    return text.replace("\r\n", "\n")
