"""``/dashboard/requests/{id}`` shows the trace of a request, and lets operators give feedback and create share links.

``/dashboard/shared/{token}`` shows a shared trace, read-only, to anyone who has its link.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Path, Request, Response
from fastapi.responses import RedirectResponse

from app.api.admin.export import dump
from app.api.admin.views import SHARED_PATH, share_lifetime, share_links
from app.dashboard.page_security import DashboardRoute, OpenRoute
from app.dashboard.templating import page
from app.dashboard.trace.trace_view import trace_view
from app.dependencies import QueriesDep, ResourcesDep
from app.errors import InvalidAdminRequestError, NotFoundError
from app.events.feedback import FeedbackStore, Subject
from app.field_types import Word
from app.identity import Role, requires

router = APIRouter(route_class=DashboardRoute)
shared = APIRouter(route_class=OpenRoute)
_PRIVATE = {
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
RequestId = Annotated[Word, Path()]
PARTLY = "Partly right"
"""A stored reply mark is either correct or incorrect. "Partly" is stored as incorrect, with a note that starts with
these words."""
_MARKS: Mapping[Subject, Sequence[str]] = {"decision": ("right", "wrong"), "reply": ("right", "partly", "wrong")}
_MOST_MARKS = 500
_LONGEST_NOTE = 4_000


@router.get("/requests/{request_id}")
@requires(Role.VIEWER)
async def show_trace(request: Request, queries: QueriesDep, resources: ResourcesDep, request_id: RequestId) -> Response:
    trace = await queries.trace(request_id)
    marks = await FeedbackStore(resources.database).marks(request_id=request_id, limit=_MOST_MARKS)
    store_text = resources.settings.store_text
    view = trace_view(trace, store_text=store_text, marks=marks)
    shares = await share_links(resources).list(request_id)
    return page(
        request,
        "trace/page.html",
        view=view,
        store_text=store_text,
        shares=shares,
        share_hours=resources.settings.share_max_hours,
    )


@router.get("/requests/{request_id}/trace.json")
@requires(Role.VIEWER)
async def export_trace(queries: QueriesDep, request_id: RequestId) -> Response:
    """Download the trace, as returned by ``GET /admin/v1/requests/{id}``."""
    body = dump(await queries.trace(request_id))
    name = "".join(char for char in request_id if char.isascii() and (char.isalnum() or char in "_-"))[:80]
    disposition = {"Content-Disposition": f'attachment; filename="{name or "request"}.json"'}
    return Response(body, media_type="application/json", headers=disposition)


@router.post("/requests/{request_id}/feedback")
@requires(Role.EDITOR)
async def add_feedback(request: Request, resources: ResourcesDep, request_id: RequestId) -> Response:
    """Mark a decision or the whole outcome as ``right`` or ``wrong``. A reply can also be ``partly`` right."""
    form = await request.form()
    mark, decision_id, note = (_storable(form.get(name)) for name in ("mark", "decision_id", "note"))
    about: Subject = "reply" if form.get("about") == "reply" else "decision"
    if mark not in _MARKS[about]:
        raise InvalidAdminRequestError(f"mark: expected {' or '.join(_MARKS[about])}")
    if len(note) > _LONGEST_NOTE:
        raise InvalidAdminRequestError(f"note: must be at most {_LONGEST_NOTE:,} characters")
    await FeedbackStore(resources.database).add(
        request_id,
        about=about,
        decision_id=decision_id or None,
        correct=mark == "right",
        note=_stored_note(mark, note),
    )
    anchor = f"c-{decision_id}" if decision_id else "feedback"
    return RedirectResponse(f"/dashboard/requests/{quote(request_id, safe='')}#{quote(anchor)}", status_code=303)


@router.post("/requests/{request_id}/shares")
@requires(Role.EDITOR)
async def share_trace(
    request: Request,
    resources: ResourcesDep,
    request_id: Annotated[Word, Path()],
    hours: Annotated[int, Form(ge=1)] = 24,
) -> Response:
    """Create a link and show it. This is the only time it is shown."""
    links = share_links(resources)
    made = await links.create(request_id, share_lifetime(resources, hours))
    url = f"{str(request.base_url).rstrip('/')}{SHARED_PATH}/{links.token(made)}"
    return page(request, "trace/share.html", status=201, made=made, url=url)


@router.post("/requests/{request_id}/shares/{share_id}/revoke")
@requires(Role.EDITOR)
async def revoke_share(
    resources: ResourcesDep, request_id: Annotated[Word, Path()], share_id: Annotated[Word, Path()]
) -> Response:
    await share_links(resources).revoke(share_id)
    return RedirectResponse(f"/dashboard/requests/{quote(request_id, safe='')}#share", status_code=303)


@shared.get("/shared/{token}")
async def show_shared(
    request: Request, resources: ResourcesDep, queries: QueriesDep, token: Annotated[Word, Path()]
) -> Response:
    """Show a shared trace. The page doesn't link to other pages, and looks the same whether or not the reader is signed
    in."""
    request.state.operator = None
    found = await share_links(resources).find(token)
    try:
        trace = None if found is None else await queries.trace(found.request_id)
    except NotFoundError:  # the request has been deleted
        trace = None
    if found is None or trace is None:
        message = "This link doesn't exist, has expired or was revoked."
        response: Response = page(request, "trace/shared_missing.html", status=404, message=message)
    else:
        view = trace_view(trace, store_text=resources.settings.store_text)
        response = page(request, "trace/shared.html", view=view, share=found)
    response.headers.update(_PRIVATE)
    return response


def _storable(value: object) -> str:
    """Return a field's text without characters that the database can't store."""
    text = value.strip() if isinstance(value, str) else ""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _stored_note(mark: str, note: str) -> str | None:
    own = note.removeprefix(PARTLY).removeprefix(":").strip()
    if mark == "partly":
        return f"{PARTLY}: {own}" if own else PARTLY
    return own or None
