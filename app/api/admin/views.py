"""``/admin/v1/views``: saved views of the request list. ``/admin/v1/shares``: links that share one trace."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.api.admin.common import AdminRoute
from app.auth.share_links import ShareLinks, TraceShare
from app.dependencies import ResourcesDep
from app.errors import InvalidAdminRequestError
from app.events.search.saved_views import SavedView, SavedViews
from app.field_types import Line, Word
from app.identity import Role, requires
from app.resources import Resources

router = APIRouter(route_class=AdminRoute, tags=["events"])

VIEW_PARAMETERS = (
    *("q", "agent", "model", "policy", "action", "verdict", "status", "key", "code", "run", "span", "since", "until"),
    *("min_ms", "max_ms", "min_trust", "max_trust", "sort", "columns"),
)
"""The query parameters of the dashboard's requests page."""
SHARED_PATH = "/dashboard/shared"


def _known(query: dict[str, str | list[str]]) -> dict[str, str | list[str]]:
    if unknown := [name for name in query if name not in VIEW_PARAMETERS]:
        raise ValueError(f"unknown parameter {unknown[0]!r}; known: {', '.join(VIEW_PARAMETERS)}")
    return query


_Value = Line
ViewQuery = Annotated[
    dict[str, _Value | Annotated[list[_Value], Field(max_length=20)]],
    AfterValidator(_known),
    Field(description="Query parameters of the dashboard's requests page"),
]
ViewId = Annotated[Word, Path()]


class ViewDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Line
    query: ViewQuery = {}


class ViewPatch(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Line = Field(default_factory=str)  # Unlike a plain default, a factory doesn't appear in the schema.
    query: ViewQuery = {}


class ViewPage(BaseModel):
    items: list[SavedView]
    next_cursor: str | None


class ShareDocument(BaseModel):
    """A link to create. It expires after ``hours``."""

    model_config = ConfigDict(extra="forbid", strict=True)

    hours: Annotated[int, Field(ge=1)] = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedShare(TraceShare):
    """A new share. ``path`` is the path of the link on this gateway. It is returned only in this response."""

    path: str


class SharePage(BaseModel):
    items: list[TraceShare]
    next_cursor: str | None


@router.post("/views", status_code=201)
@requires(Role.EDITOR)
async def create_view(resources: ResourcesDep, document: ViewDocument) -> SavedView:
    """Save a view under a name."""
    return await SavedViews(resources.database).create(document.name, document.query)


@router.get("/views")
@requires(Role.VIEWER)
async def list_views(resources: ResourcesDep) -> ViewPage:
    """List the saved views, sorted by name."""
    return ViewPage(items=list(await SavedViews(resources.database).list()), next_cursor=None)


@router.get("/views/{view_id}")
@requires(Role.VIEWER)
async def get_view(resources: ResourcesDep, view_id: ViewId) -> SavedView:
    return await SavedViews(resources.database).get(view_id)


@router.patch("/views/{view_id}")
@requires(Role.EDITOR)
async def change_view(resources: ResourcesDep, view_id: ViewId, patch: ViewPatch) -> SavedView:
    """Change a view's name or query."""
    return await SavedViews(resources.database).change(view_id, patch.model_dump(exclude_unset=True))


@router.delete("/views/{view_id}", status_code=204)
@requires(Role.EDITOR)
async def delete_view(resources: ResourcesDep, view_id: ViewId) -> None:
    await SavedViews(resources.database).delete(view_id)


@router.post("/requests/{request_id}/shares", status_code=201)
@requires(Role.EDITOR)
async def share_request(
    resources: ResourcesDep, request_id: Annotated[Word, Path()], document: ShareDocument
) -> CreatedShare:
    """Create a link to the trace of a request. Anyone who has the link can view that trace, and nothing else."""
    links = share_links(resources)
    share = await links.create(request_id, share_lifetime(resources, document.hours))
    return CreatedShare(
        id=share.id,
        request_id=share.request_id,
        created_at=share.created_at,
        expires_at=share.expires_at,
        path=f"{SHARED_PATH}/{links.token(share)}",
    )


@router.get("/requests/{request_id}/shares")
@requires(Role.VIEWER)
async def list_shares(resources: ResourcesDep, request_id: Annotated[Word, Path()]) -> SharePage:
    """List the active links to a trace, newest first, without their paths."""
    return SharePage(items=list(await share_links(resources).list(request_id)), next_cursor=None)


@router.delete("/shares/{share_id}", status_code=204)
@requires(Role.EDITOR)
async def revoke_share(resources: ResourcesDep, share_id: Annotated[Word, Path()]) -> None:
    """Revoke a link. The link stops working immediately on every worker."""
    await share_links(resources).revoke(share_id)


def share_links(resources: Resources) -> ShareLinks:
    longest = timedelta(hours=resources.settings.share_max_hours)
    return ShareLinks(resources.database, resources.admin.session_key, longest=longest)


def share_lifetime(resources: Resources, hours: int) -> timedelta:
    """Return the lifetime of a link. Raises InvalidAdminRequestError if it exceeds the configured maximum."""
    most = resources.settings.share_max_hours
    if hours <= most:
        return timedelta(hours=hours)
    detail = (
        f"must be at most {most} (GROUNDLANE_SHARE_MAX_HOURS)"
        if most
        else "links to traces are disabled (GROUNDLANE_SHARE_MAX_HOURS is 0)"
    )
    raise InvalidAdminRequestError(f"hours: {detail}", errors=[{"loc": ["hours"], "msg": detail}])
