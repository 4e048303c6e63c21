"""Policy documents, which are used in requests to the admin API, in files, and in stored versions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import InvalidAdminRequestError
from app.field_types import Line
from policies.base import RulesError
from policies.policy_warnings import GatewayFacts, RuleWarning, policy_warnings
from policies.registry import CATEGORIES, parse_rules, without_derived

Globs = Annotated[list[Line], Field(max_length=1_000)]
Mode = Literal["enforce", "shadow"]


class ScopeDocument(BaseModel):
    """Names or shell globs. An empty list matches everything."""

    model_config = ConfigDict(extra="forbid", strict=True)

    agents: Globs = Field([], description="Agent names or shell globs (support-*); empty: all agents")
    models: Globs = Field([], description="Model names as in requests, or shell globs (gpt-4o*); empty: all models")
    keys: Globs = Field(
        [], description="Names or prefixes of gateway keys, or shell globs; empty: all keys, and requests without a key"
    )


class PolicyDocument(BaseModel):
    """A policy as a client sends it. ``rules`` are validated according to the category."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[Line, Field(description="Unique name")]
    category: Annotated[str, Field(description=f"What the policy checks: {', '.join(CATEGORIES)}")]
    rules: Annotated[dict[str, Any], Field(description="Rules of the category; omitted rules use their defaults")] = {}
    scope: Annotated[ScopeDocument, Field(description="Requests that the policy applies to")] = ScopeDocument()
    enabled: Annotated[bool, Field(description="Disabled policies are kept but not evaluated")] = True
    priority: Annotated[
        int,
        Field(
            ge=-(2**31),
            lt=2**31,
            description="Policies with a higher priority are evaluated first, and their abstention_response takes "
            "precedence; the strictest action wins regardless of priority",
        ),
    ] = 0
    mode: Annotated[Mode, Field(description="enforce: decisions take effect; shadow: decisions are only logged")] = (
        "enforce"
    )
    canary_percent: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="Percentage of requests on which the policy is enforced; on all others, it runs in shadow mode",
        ),
    ] = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDraft:
    """A validated document. ``rules`` and ``scope`` are plain JSON with every default filled in."""

    name: str
    category: str
    rules: Mapping[str, Any]
    scope: Mapping[str, list[str]]
    enabled: bool
    priority: int
    mode: str
    canary_percent: int

    def flat(self) -> dict[str, Any]:
        """Return the fields by their dotted paths, such as ``scope.models``."""
        return dict(_flat(asdict(self), ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A policy as the admin API returns it."""

    id: str
    name: str
    category: str
    rules: Mapping[str, Any]
    scope: Mapping[str, list[str]]
    enabled: bool
    priority: int
    mode: str
    canary_percent: int
    version: int
    created_at: datetime
    updated_at: datetime

    def draft(self) -> PolicyDraft:
        return PolicyDraft(**{field.name: getattr(self, field.name) for field in fields(PolicyDraft)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPolicy(StoredPolicy):
    """The admin API's response after it saves a policy. ``warnings`` lists rules that are valid but cannot take
    effect."""

    warnings: tuple[RuleWarning, ...] = ()

    @classmethod
    def of(cls, policy: StoredPolicy, facts: GatewayFacts) -> "SavedPolicy":
        values = {field.name: getattr(policy, field.name) for field in fields(StoredPolicy)}
        return cls(**values, warnings=warnings_of(policy.draft(), facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """A version of a policy. ``change`` is ``create``, ``update``, ``rollback`` or ``delete``."""

    policy_id: str
    version: int
    change: str
    ts: datetime
    name: str
    category: str
    rules: Mapping[str, Any]
    scope: Mapping[str, list[str]]
    enabled: bool
    priority: int
    mode: str
    canary_percent: int


def warnings_of(policy: PolicyDraft, facts: GatewayFacts) -> tuple[RuleWarning, ...]:
    """Return warnings about the rules of ``policy`` that are valid but cannot take effect on a gateway described by
    ``facts``."""
    rules = parse_rules(policy.category, policy.rules)
    return policy_warnings(policy.category, rules, policy.scope.get("models", ()), facts)


def draft(document: PolicyDocument) -> PolicyDraft:
    """Validate the rules of ``document``. Raises InvalidAdminRequestError, which lists all invalid rules."""
    try:
        rules = parse_rules(document.category, document.rules).model_dump(mode="json")
    except RulesError as error:
        raise document_error(error.errors) from None
    if any("\0" in text for text in _texts(rules)):
        raise document_error([{"loc": ["rules"], "msg": "Text must not contain the character U+0000"}])
    values = document.model_dump(exclude={"rules"})
    return PolicyDraft(rules=rules, **values)


def complete_rules(policy: PolicyDraft | StoredPolicy) -> Mapping[str, Any]:
    """Return all rules of ``policy``. A rule that didn't exist when the policy was stored has its current default. If
    the rules can't be parsed, they are returned unchanged."""
    try:
        return parse_rules(policy.category, policy.rules).model_dump(mode="json")
    except RulesError:
        return policy.rules


def parse_document(document: Any) -> PolicyDraft:
    """Validate a policy decoded from JSON or TOML. Raises InvalidAdminRequestError, which lists all invalid fields."""
    try:
        parsed = PolicyDocument.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise document_error([*found, *_wrong_rules(document)]) from None
    return draft(parsed)


def _wrong_rules(document: Any) -> Sequence[Mapping[str, Any]]:
    """Return the errors in the rules of a document that also has other errors."""
    match document:
        case {"category": str() as category, "rules": Mapping() as rules} if category in CATEGORIES:
            try:
                parse_rules(category, rules)
            except RulesError as error:
                return error.errors
    return ()


def patched(current: PolicyDraft, patch: Mapping[str, Any]) -> PolicyDraft:
    """Apply a JSON merge patch (RFC 7396) to ``current``: objects are merged key by key, and null resets a field or
    rule to its default. If a default depends on another rule, it changes with that rule. Raises
    InvalidAdminRequestError."""
    document = asdict(current)
    document["rules"] = without_derived(current.category, current.rules)
    return parse_document(merge(document, patch))


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch as defined in RFC 7396. Neither argument is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def document_error(errors: Any) -> InvalidAdminRequestError:
    """Build the error for an invalid document. It lists all ``errors`` by field, and the first one is the message."""
    shown = [{"loc": list(error["loc"]), "msg": error["msg"]} for error in errors]
    first = shown[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    return InvalidAdminRequestError(f"{where}: {first['msg']}", errors=shown)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for item in value.values():
                yield from _texts(item)


def _flat(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
