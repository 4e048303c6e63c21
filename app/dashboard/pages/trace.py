"""``/dashboard/requests/{id}``: the trace of one request, and feedback on it."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from app.api.admin.common import Word
from app.api.admin.export import dump
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dashboard.trace.trace_view import trace_view
from app.dependencies import QueriesDep, ResourcesDep
from app.errors import InvalidAdminRequestError
from app.events.feedback import FeedbackStore

router = APIRouter(route_class=DashboardRoute)
RequestId = Annotated[Word, Path()]
PARTLY = "Partly right"
"""Feedback is right or wrong. "Partly right" is stored as wrong, with a note that begins with these words."""
_MOST_MARKS = 500
_LONGEST_NOTE = 4_000


@router.get("/requests/{request_id}")
async def show_trace(request: Request, queries: QueriesDep, resources: ResourcesDep, request_id: RequestId) -> Response:
    trace = await queries.trace(request_id)
    marks = await FeedbackStore(resources.database).marks(request_id=request_id, limit=_MOST_MARKS)
    store_text = resources.settings.store_text
    view = trace_view(trace, store_text=store_text, marks=marks)
    return page(request, "trace/page.html", view=view, store_text=store_text)


@router.get("/requests/{request_id}/trace.json")
async def export_trace(queries: QueriesDep, request_id: RequestId) -> Response:
    """Download the trace, as returned by ``GET /admin/v1/requests/{id}``."""
    body = dump(await queries.trace(request_id))
    name = "".join(char for char in request_id if char.isascii() and (char.isalnum() or char in "_-"))[:80]
    disposition = {"Content-Disposition": f'attachment; filename="{name or "request"}.json"'}
    return Response(body, media_type="application/json", headers=disposition)


@router.post("/requests/{request_id}/feedback")
async def add_feedback(request: Request, resources: ResourcesDep, request_id: RequestId) -> Response:
    """Mark a decision, or the request as a whole, as ``right``, ``partly`` or ``wrong``."""
    form = await request.form()
    mark, decision_id, note = (_storable(form.get(name)) for name in ("mark", "decision_id", "note"))
    if mark not in ("right", "partly", "wrong"):
        raise InvalidAdminRequestError("mark: must be right, partly or wrong")
    if len(note) > _LONGEST_NOTE:
        raise InvalidAdminRequestError(f"note: must be at most {_LONGEST_NOTE:,} characters")
    await FeedbackStore(resources.database).add(
        request_id, decision_id=decision_id or None, correct=mark == "right", note=_stored_note(mark, note)
    )
    anchor = f"c-{decision_id}" if decision_id else "whole"
    return RedirectResponse(f"/dashboard/requests/{quote(request_id, safe='')}#{quote(anchor)}", status_code=303)


def _storable(value: object) -> str:
    """A field's text, without characters that the database can't store."""
    text = value.strip() if isinstance(value, str) else ""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _stored_note(mark: str, note: str) -> str | None:
    own = note.removeprefix(PARTLY).removeprefix(":").strip()
    if mark == "partly":
        return f"{PARTLY}: {own}" if own else PARTLY
    return own or None
