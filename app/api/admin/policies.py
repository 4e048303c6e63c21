"""``/admin/v1/policies``."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.api.admin.common import AdminRoute, CursorText, Expected, Limit, decode_cursor, encode_cursor, etag, page
from app.dependencies import FactsDep, PoliciesDep
from app.field_types import Word
from app.identity import Role, requires
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
    """``policy`` is the document with all defaults filled in. ``warnings`` lists valid rules that can't have their
    intended effect."""

    policy: PolicyDraft
    warnings: tuple[RuleWarning, ...]


class Rollback(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Annotated[int, Field(ge=1, lt=2**31)]


@router.post("", status_code=201)
@requires(Role.EDITOR)
async def create_policy(
    store: PoliciesDep, facts: FactsDep, document: PolicyDocument, response: Response
) -> SavedPolicy:
    """Create a policy. It takes effect on every worker within a second. `warnings` lists valid rules that can't have
    their intended effect."""
    policy = await store.create(draft(document))
    response.headers["Location"] = f"/admin/v1/policies/{policy.id}"
    return _saved(response, policy, facts)


@router.post("/validate")
@requires(Role.EDITOR)
async def validate_policy(facts: FactsDep, document: PolicyDocument) -> Validation:
    """Validate a policy without saving it. If the policy is invalid, the response is 422. Otherwise, it has the
    warnings that saving the policy would return."""
    policy = draft(document)
    return Validation(policy=policy, warnings=warnings_of(policy, facts))


@router.get("")
@requires(Role.VIEWER)
async def list_policies(
    store: PoliciesDep,
    category: CategoryName | None = None,
    enabled: bool | None = None,
    name: Word | None = None,
    limit: Limit = 50,
    cursor: CursorText | None = None,
) -> PolicyPage:
    """List the policies, sorted by name."""
    after = None if cursor is None else decode_cursor(cursor, str)[0]
    found = await store.list(category=category, enabled=enabled, name=name, after=after, limit=limit + 1)
    items = list(found[:limit])
    return PolicyPage(items=items, next_cursor=encode_cursor(items[-1].name) if len(found) > limit else None)


@router.get("/templates")
@requires(Role.VIEWER)
async def list_templates() -> dict[str, Any]:
    """List the policy templates."""
    return page(templates(), None)


@router.get("/schema")
@requires(Role.VIEWER)
async def get_schema() -> dict[str, Any]:
    """Get the JSON Schema of each category's rules."""
    return json_schema()


@router.get("/{policy_id}")
@requires(Role.VIEWER)
async def get_policy(store: PoliciesDep, policy_id: PolicyId, response: Response) -> StoredPolicy:
    return _tagged(response, await store.get(policy_id))


@router.put("/{policy_id}")
@requires(Role.EDITOR)
async def replace_policy(
    store: PoliciesDep,
    facts: FactsDep,
    policy_id: PolicyId,
    document: PolicyDocument,
    expected: Expected,
    response: Response,
) -> SavedPolicy:
    """Replace a policy. Omitted fields are reset to their defaults."""
    return _saved(response, await store.replace(policy_id, draft(document), expected=expected), facts)


@router.patch("/{policy_id}")
@requires(Role.EDITOR)
async def patch_policy(
    store: PoliciesDep,
    facts: FactsDep,
    policy_id: PolicyId,
    patch: Annotated[dict[str, Any], Body(description="JSON merge patch (RFC 7396)")],
    expected: Expected,
    response: Response,
) -> SavedPolicy:
    """Change only the given fields and rules. Setting a rule to null resets it to its default."""
    return _saved(response, await store.patch(policy_id, patch, expected=expected), facts)


@router.delete("/{policy_id}", status_code=204)
@requires(Role.EDITOR)
async def delete_policy(store: PoliciesDep, policy_id: PolicyId, expected: Expected) -> None:
    """Delete a policy. Its version history is kept."""
    await store.delete(policy_id, expected=expected)


@router.get("/{policy_id}/versions")
@requires(Role.VIEWER)
async def list_versions(
    store: PoliciesDep, policy_id: PolicyId, limit: Limit = 50, cursor: CursorText | None = None
) -> VersionPage:
    """List the versions of a policy, newest first. Works for deleted policies too."""
    before = None if cursor is None else decode_cursor(cursor, int)[0]
    found = await store.versions(policy_id, before=before, limit=limit + 1)
    items = list(found[:limit])
    return VersionPage(items=items, next_cursor=encode_cursor(items[-1].version) if len(found) > limit else None)


@router.post("/{policy_id}/rollback")
@requires(Role.EDITOR)
async def roll_back_policy(
    store: PoliciesDep, facts: FactsDep, policy_id: PolicyId, to: Rollback, expected: Expected, response: Response
) -> SavedPolicy:
    """Restore an earlier version of a policy."""
    return _saved(response, await store.rollback(policy_id, to.version, expected=expected), facts)


def _saved(response: Response, policy: StoredPolicy, facts: GatewayFacts) -> SavedPolicy:
    response.headers["ETag"] = etag(policy.version)
    return SavedPolicy.of(policy, facts)


def _tagged(response: Response, policy: StoredPolicy) -> StoredPolicy:
    response.headers["ETag"] = etag(policy.version)
    return policy
