"""A policy as it is written down: in a request to the admin API, in a file, in an older version."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.errors import InvalidAdminRequestError
from policies.base import RulesError
from policies.registry import CATEGORIES, parse_rules

Line = StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
Globs = Annotated[list[Annotated[str, Line]], Field(max_length=1_000)]
Mode = Literal["enforce", "shadow"]


class ScopeDocument(BaseModel):
    """Shell globs; an empty list means all."""

    model_config = ConfigDict(extra="forbid", strict=True)

    agents: Globs = Field([], description="Agents, by name or shell glob (support-*); none: every agent")
    models: Globs = Field([], description="Models, as requests name them, or shell globs (gpt-4o*); none: every model")
    keys: Globs = Field([], description="Gateway keys, by name or prefix, or shell globs; none: every key, and no key")


class PolicyDocument(BaseModel):
    """What a client writes. ``rules`` are checked by their category."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Line, Field(description="What it is called; no two policies share a name")]
    category: Annotated[str, Field(description="What it looks at: retrieval, the documents; grounding, the reply")]
    rules: Annotated[dict[str, Any], Field(description="The rules of its category; left out: their defaults")] = {}
    scope: Annotated[ScopeDocument, Field(description="Which requests it is for")] = ScopeDocument()
    enabled: Annotated[bool, Field(description="Off, it is kept and never asked")] = True
    priority: Annotated[
        int,
        Field(
            ge=-(2**31),
            lt=2**31,
            description="Policies with a higher one are asked first, and their answer is the one given in place of a "
            "blocked reply; the strictest action wins whatever the order",
        ),
    ] = 0
    mode: Annotated[Mode, Field(description="enforce: what it decides is done; shadow: it is only logged")] = "enforce"
    canary_percent: Annotated[
        int,
        Field(ge=0, le=100, description="Share of requests on which it is enforced; on the others it is in shadow"),
    ] = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDraft:
    """A checked document. ``rules`` and ``scope`` are plain JSON with every default filled in."""

    name: str
    category: str
    rules: Mapping[str, Any]
    scope: Mapping[str, list[str]]
    enabled: bool
    priority: int
    mode: str
    canary_percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A policy as the admin API answers it."""

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
class PolicyVersion:
    """What a policy was. ``change``: ``create``, ``update``, ``rollback`` or ``delete``."""

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


def draft(document: PolicyDocument) -> PolicyDraft:
    """Check the rules of ``document``. Raises InvalidAdminRequestError, which names each rule that is wrong."""
    try:
        rules = parse_rules(document.category, document.rules).model_dump(mode="json")
    except RulesError as error:
        raise invalid(error.errors) from None
    if any("\0" in text for text in _texts(rules)):
        raise invalid([{"loc": ["rules"], "msg": "A text must not contain the character U+0000"}])
    values = document.model_dump(exclude={"rules"})
    return PolicyDraft(rules=rules, **values)


def parse_document(document: Any) -> PolicyDraft:
    """Check a policy decoded from JSON or TOML. Raises InvalidAdminRequestError, which names each bad field."""
    try:
        parsed = PolicyDocument.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise invalid([*found, *_wrong_rules(document)]) from None
    return draft(parsed)


def _wrong_rules(document: Any) -> Sequence[Mapping[str, Any]]:
    """What is wrong with the rules of a document that is wrong elsewhere."""
    match document:
        case {"category": str() as category, "rules": Mapping() as rules} if category in CATEGORIES:
            try:
                parse_rules(category, rules)
            except RulesError as error:
                return error.errors
    return ()


def patched(current: PolicyDraft, patch: Mapping[str, Any]) -> PolicyDraft:
    """``current`` with a JSON merge patch (RFC 7396) applied: objects merge key by key, and null brings a field or rule
    back to its default. Raises InvalidAdminRequestError."""
    return parse_document(merge(asdict(current), patch))


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch, as RFC 7396 defines it; neither argument is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def invalid(errors: Any) -> InvalidAdminRequestError:
    """The answer to a bad document: what is wrong, field by field, and the first of it in words."""
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
