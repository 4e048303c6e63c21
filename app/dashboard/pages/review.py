"""``/dashboard/review``: labels sentences whose verdict is uncertain or disputed, with two keystrokes each."""

from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from app.api.admin.quality.review import ReviewDep, export_labels
from app.dashboard.known_values import distinct_values
from app.dashboard.page_security import DashboardRoute
from app.dashboard.query_fields import OptionalWord
from app.dashboard.templating import page
from app.dependencies import ResourcesDep
from app.errors import NotFoundError
from app.identity import Role, requires
from app.review.labels import Key, Verdict
from app.settings import StoreText

router = APIRouter(prefix="/review", route_class=DashboardRoute)

_MOST_SKIPPED = 50
_VERDICTS = (("s", "supported"), ("c", "contradicted"), ("u", "unverifiable"))
ClaimName = Annotated[str, Field(max_length=300, pattern=r"^[^\x00-\x1f\x7f]+:\d{1,9}$")]
"""A claim, written as ``<request id>:<number>``."""


class ReviewQuery(BaseModel):
    """``skip`` lists claims to skip. ``last`` is the last labelled claim; *Undo* removes its label."""

    agent: OptionalWord = None
    skip: Annotated[list[ClaimName], Field(max_length=500)] = []
    last: ClaimName | None = None

    def url(self, **changes: Any) -> str:
        """Return the page's URL with these parameters, after applying ``changes``."""
        query = {name: value for name, value in (self.model_dump() | changes).items() if value}
        return "/dashboard/review" + (f"?{urlencode(query, doseq=True)}" if query else "")


@router.get("")
@requires(Role.VIEWER)
async def show(
    request: Request, store: ReviewDep, resources: ResourcesDep, query: Annotated[ReviewQuery, Query()]
) -> Response:
    """Show the next claim to label."""
    queued = await store.queue(agent=query.agent, skipped=[_key(name) for name in query.skip])
    item = queued.items[0] if queued.items else None
    name = f"{item.request_id}:{item.seq}" if item else ""
    return page(
        request,
        "review/page.html",
        query=query,
        item=item,
        name=name,
        queued=queued,
        counts=await store.counts(),
        verdicts=_VERDICTS,
        agents=await distinct_values(resources.database, "agent"),
        text_stored=resources.settings.store_text is StoreText.FULL,
        here=query.url(),
        skip_url=query.url(skip=[*query.skip, name][-_MOST_SKIPPED:], last=None),
    )


@router.get("/export")
@requires(Role.VIEWER)
async def export(store: ReviewDep) -> Response:
    """Download the labelled sentences."""
    return await export_labels(store)


@router.post("")
@requires(Role.EDITOR)
async def label(
    store: ReviewDep,
    query: Annotated[ReviewQuery, Query()],
    claim: Annotated[ClaimName, Form()],
    verdict: Annotated[Verdict, Form()],
) -> Response:
    """Label a claim and show the next one."""
    await store.label(*_key(claim), verdict)
    return RedirectResponse(query.url(last=claim), status_code=303)


@router.post("/undo")
@requires(Role.EDITOR)
async def undo(
    store: ReviewDep, query: Annotated[ReviewQuery, Query()], claim: Annotated[ClaimName, Form()]
) -> Response:
    """Remove the last label. Ignore a label that was already removed."""
    with suppress(NotFoundError):
        await store.remove(*_key(claim))
    return RedirectResponse(query.url(last=None), status_code=303)


def _key(name: str) -> Key:
    request_id, _, seq = name.rpartition(":")
    return request_id, int(seq)
