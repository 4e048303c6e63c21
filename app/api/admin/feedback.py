"""``/admin/v1/feedback``: decisions marked right or wrong."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from app.api.admin.common import AdminRoute, CursorText, Limit, Word, decode_cursor, encode_cursor, page
from app.api.admin.events import Time
from app.dependencies import ResourcesDep
from app.events.feedback import FeedbackMark, FeedbackStore

router = APIRouter(prefix="/feedback", route_class=AdminRoute, tags=["feedback"])


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("text must not contain U+0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text must not contain lone surrogates") from None
    return text


class MarkDocument(BaseModel):
    """``correct``: the decision was right; without ``decision_id``, the outcome of the request was."""

    model_config = ConfigDict(extra="forbid", strict=True)

    request_id: Word
    decision_id: Word | None = None
    correct: bool
    note: Annotated[str, StringConstraints(max_length=5_000), AfterValidator(_storable)] | None = None


class MarkPage(BaseModel):
    items: list[FeedbackMark]
    next_cursor: str | None


async def _feedback(resources: ResourcesDep) -> FeedbackStore:
    return FeedbackStore(resources.database)


FeedbackDep = Annotated[FeedbackStore, Depends(_feedback)]


@router.post("", status_code=201)
async def create_mark(feedback: FeedbackDep, document: MarkDocument) -> FeedbackMark:
    """Mark a decision or a request as right or wrong. The last mark counts."""
    return await feedback.add(
        document.request_id, decision_id=document.decision_id, correct=document.correct, note=document.note
    )


@router.get("")
async def list_marks(
    feedback: FeedbackDep,
    request_id: Word | None = None,
    correct: bool | None = None,
    limit: Limit = 50,
    cursor: CursorText | None = None,
) -> MarkPage:
    """The marks, newest first."""
    after = None if cursor is None else decode_cursor(cursor, datetime, str)
    found = await feedback.marks(request_id=request_id, correct=correct, limit=limit + 1, after=after)
    items = list(found[:limit])
    more = len(found) > limit
    return MarkPage(items=items, next_cursor=encode_cursor(items[-1].created_at, items[-1].id) if more else None)


@router.get("/quality")
async def get_quality(
    feedback: FeedbackDep,
    since: Annotated[Time | None, Query()] = None,
    until: Annotated[Time | None, Query()] = None,
) -> dict[str, Any]:
    """Precision and recall of each policy, from the marked requests in that time."""
    return page(await feedback.quality(since=since, until=until), None)
