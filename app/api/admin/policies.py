"""``/admin/v1/policies``."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.api.admin.common import AdminRoute, CursorText, Expected, Limit, Word, decode_cursor, encode_cursor, etag, page
from app.dependencies import FactsDep, PoliciesDep
from app.policy_admin.policy_document import (
    PolicyDocument,
    PolicyDraft,
    PolicyVersion,
    SavedPolicy,
    StoredPolicy,
    draft,
    warnings_of,
)
from policies.policy_warnings import GatewayFacts, RuleWarning
from policies.registry import CATEGORIES, json_schema
from policies.templates import templates

router = APIRouter(prefix="/policies", route_class=AdminRoute, tags=["policies"])


def _known(category: str) -> str:
    if category not in CATEGORIES:
        raise ValueError(f"unknown category; known categories: {', '.join(CATEGORIES)}")
    return category


PolicyId = Annotated[Word, Path()]
CategoryName = Annotated[str, AfterValidator(_known)]


class PolicyPage(BaseModel):
    items: list[StoredPolicy]
    next_cursor: str | None


class VersionPage(BaseModel):
    items: list[PolicyVersion]
    next_cursor: str | None


class Validation(BaseModel):
    """``policy``: the document with every default filled in. ``warnings``: what it cannot do although it is valid."""

    policy: PolicyDraft
    warnings: tuple[RuleWarning, ...]


class Rollback(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Annotated[int, Field(ge=1, lt=2**31)]


@router.post("", status_code=201)
async def create_policy(
    store: PoliciesDep, facts: FactsDep, document: PolicyDocument, response: Response
) -> SavedPolicy:
    """Create a policy. It takes effect on every worker within a second. `warnings` says what it cannot do although it
    is valid."""
    policy = await store.create(draft(document))
    response.headers["Location"] = f"/admin/v1/policies/{policy.id}"
    return _saved(response, policy, facts)


@router.post("/validate")
async def validate_policy(facts: FactsDep, document: PolicyDocument) -> Validation:
    """Check a policy without saving it: 422 if it is invalid, otherwise the warnings that saving it would answer."""
    policy = draft(document)
    return Validation(policy=policy, warnings=warnings_of(policy, facts))


@router.get("")
async def list_policies(
    store: PoliciesDep,
    category: CategoryName | None = None,
    enabled: bool | None = None,
    name: Word | None = None,
    limit: Limit = 50,
    cursor: CursorText | None = None,
) -> PolicyPage:
    """The policies, by name."""
    after = None if cursor is None else decode_cursor(cursor, str)[0]
    found = await store.list(category=category, enabled=enabled, name=name, after=after, limit=limit + 1)
    items = list(found[:limit])
    return PolicyPage(items=items, next_cursor=encode_cursor(items[-1].name) if len(found) > limit else None)


@router.get("/templates")
async def list_templates() -> dict[str, Any]:
    """Templates for policies."""
    return page(templates(), None)


@router.get("/schema")
async def get_schema() -> dict[str, Any]:
    """The JSON Schema of the rules of each category."""
    return json_schema()


@router.get("/{policy_id}")
async def get_policy(store: PoliciesDep, policy_id: PolicyId, response: Response) -> StoredPolicy:
    return _tagged(response, await store.get(policy_id))


@router.put("/{policy_id}")
async def replace_policy(
    store: PoliciesDep,
    facts: FactsDep,
    policy_id: PolicyId,
    document: PolicyDocument,
    expected: Expected,
    response: Response,
) -> SavedPolicy:
    """Replace a policy. Omitted fields get their defaults."""
    return _saved(response, await store.replace(policy_id, draft(document), expected=expected), facts)


@router.patch("/{policy_id}")
async def patch_policy(
    store: PoliciesDep,
    facts: FactsDep,
    policy_id: PolicyId,
    patch: Annotated[dict[str, Any], Body(description="JSON merge patch (RFC 7396)")],
    expected: Expected,
    response: Response,
) -> SavedPolicy:
    """Change the given fields and rules. null resets a rule to its default."""
    return _saved(response, await store.patch(policy_id, patch, expected=expected), facts)


@router.delete("/{policy_id}", status_code=204)
async def delete_policy(store: PoliciesDep, policy_id: PolicyId, expected: Expected) -> None:
    """Delete a policy. Its versions are kept."""
    await store.delete(policy_id, expected=expected)


@router.get("/{policy_id}/versions")
async def list_versions(
    store: PoliciesDep, policy_id: PolicyId, limit: Limit = 50, cursor: CursorText | None = None
) -> VersionPage:
    """The versions of a policy, newest first, even if it is deleted."""
    before = None if cursor is None else decode_cursor(cursor, int)[0]
    found = await store.versions(policy_id, before=before, limit=limit + 1)
    items = list(found[:limit])
    return VersionPage(items=items, next_cursor=encode_cursor(items[-1].version) if len(found) > limit else None)


@router.post("/{policy_id}/rollback")
async def roll_back_policy(
    store: PoliciesDep, facts: FactsDep, policy_id: PolicyId, to: Rollback, expected: Expected, response: Response
) -> SavedPolicy:
    """Make an earlier version current again."""
    return _saved(response, await store.rollback(policy_id, to.version, expected=expected), facts)


def _saved(response: Response, policy: StoredPolicy, facts: GatewayFacts) -> SavedPolicy:
    response.headers["ETag"] = etag(policy.version)
    return SavedPolicy.of(policy, facts)


def _tagged(response: Response, policy: StoredPolicy) -> StoredPolicy:
    response.headers["ETag"] = etag(policy.version)
    return policy
