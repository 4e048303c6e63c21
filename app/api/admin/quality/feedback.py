"""``/admin/v1/feedback``: feedback on decisions and replies."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from app.analytics.policy_quality import policy_quality
from app.api.admin.common import AdminRoute, CursorText, Limit, decode_cursor, encode_cursor, page
from app.api.admin.events import Time
from app.dependencies import ResourcesDep
from app.events.feedback import FeedbackMark, FeedbackStore, Subject
from app.field_types import Word
from app.identity import Role, requires

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
    """Feedback on a request. ``about`` is its subject: ``reply`` is the reply as the model wrote it, and ``decision``
    is the decision with ``decision_id`` or, if no id is given, the outcome of the request. ``correct`` says whether the
    subject was right."""

    model_config = ConfigDict(extra="forbid", strict=True)

    request_id: Word
    about: Subject = "decision"
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
@requires(Role.EDITOR)
async def create_mark(feedback: FeedbackDep, document: MarkDocument) -> FeedbackMark:
    """Mark a decision or a reply as correct or incorrect. Only the latest mark on a decision or reply counts."""
    return await feedback.add(
        document.request_id,
        about=document.about,
        decision_id=document.decision_id,
        correct=document.correct,
        note=document.note,
    )


@router.get("")
@requires(Role.VIEWER)
async def list_marks(
    feedback: FeedbackDep,
    request_id: Word | None = None,
    about: Subject | None = None,
    correct: bool | None = None,
    limit: Limit = 50,
    cursor: CursorText | None = None,
) -> MarkPage:
    """List the marks, newest first."""
    after = None if cursor is None else decode_cursor(cursor, datetime, str)
    found = await feedback.marks(request_id=request_id, about=about, correct=correct, limit=limit + 1, after=after)
    items = list(found[:limit])
    more = len(found) > limit
    return MarkPage(items=items, next_cursor=encode_cursor(items[-1].created_at, items[-1].id) if more else None)


@router.get("/quality")
@requires(Role.VIEWER)
async def get_quality(
    resources: ResourcesDep,
    since: Annotated[Time | None, Query()] = None,
    until: Annotated[Time | None, Query()] = None,
) -> dict[str, Any]:
    """Get the precision and recall of each policy, based on the marked requests in the time range."""
    found = await policy_quality(resources.database, since=since, until=until)
    return page([quality.to_dict() for quality in found], None)
