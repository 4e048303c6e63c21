"""``/admin/v1/review``: the queue of claims to label, and the labels."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from pydantic import BaseModel, ConfigDict

from app.api.admin.common import AdminRoute, Limit
from app.api.admin.export import export
from app.dependencies import ResourcesDep
from app.field_types import Word
from app.identity import Role, requires
from app.review.labels import ClaimLabel, ReviewStore, Verdict
from app.settings import StoreText

router = APIRouter(prefix="/review", route_class=AdminRoute, tags=["review"])

ClaimNumber = Annotated[int, Path(ge=0, le=2**31 - 1, description="``seq`` of the claim")]
_COLUMNS = "case_id", "input", "output", "documents", "label", "judged", "score", "author", "labelled_at"


class LabelDocument(BaseModel):
    """A label for a claim. ``verdict`` says whether the documents support the claim, contradict it, or do neither."""

    model_config = ConfigDict(extra="forbid", strict=True)

    verdict: Verdict


class ReviewedDocument(BaseModel):
    id: str
    text: str


class ReviewClaim(BaseModel):
    """A claim to label. ``judged`` is its verdict, and ``score`` is the probability that the claim is supported. If an
    LLM judge decided the verdict, ``judge_score`` is the score from the judge alone. ``distance`` is how far the scores
    are from the thresholds. ``why`` lists who disagrees with the verdict: ``llm``, ``feedback`` or both."""

    request_id: str
    seq: int
    ts: datetime
    agent: str | None
    question: str | None
    text: str
    judged: str
    score: float | None
    judge_score: float | None
    evidence: str | None
    document_id: str | None
    documents: list[ReviewedDocument]
    why: list[str]
    distance: float


class ReviewQueue(BaseModel):
    """The review queue. ``waiting`` is the number of claims in it, and ``disputed`` is how many of them are disputed.
    ``text_stored`` says whether the gateway stores the text of new requests; claims without text can't be reviewed.
    ``labels`` counts the labels so far, by verdict."""

    items: list[ReviewClaim]
    waiting: int
    disputed: int
    text_stored: bool
    labels: dict[str, int]


async def _store(resources: ResourcesDep) -> ReviewStore:
    return ReviewStore(resources.database)


ReviewDep = Annotated[ReviewStore, Depends(_store)]


@router.get("")
@requires(Role.VIEWER)
async def get_review(
    store: ReviewDep, resources: ResourcesDep, agent: Word | None = None, limit: Limit = 20
) -> ReviewQueue:
    """List the claims to label: disputed claims first, then those whose score is closest to the threshold."""
    queued = await store.queue(agent=agent, limit=limit)
    fields = ReviewClaim.model_fields
    return ReviewQueue.model_validate(
        {
            "items": [{name: getattr(item, name) for name in fields} for item in queued.items],
            "waiting": queued.waiting,
            "disputed": queued.disputed,
            "text_stored": resources.settings.store_text is StoreText.FULL,
            "labels": await store.counts(),
        }
    )


@router.get("/export")
@requires(Role.VIEWER)
async def export_labels(store: ReviewDep) -> Response:
    """Download the labelled claims as cases for ``groundlane eval``."""
    rows: Any = store.exported()
    return await export("labels", "jsonl", rows, _COLUMNS)


@router.put("/{request_id}/{seq}")
@requires(Role.EDITOR)
async def put_label(
    store: ReviewDep, request_id: Annotated[Word, Path()], seq: ClaimNumber, document: LabelDocument
) -> ClaimLabel:
    """Label a claim. A new label replaces the previous one."""
    return await store.label(request_id, seq, document.verdict)


@router.delete("/{request_id}/{seq}", status_code=204)
@requires(Role.EDITOR)
async def delete_label(store: ReviewDep, request_id: Annotated[Word, Path()], seq: ClaimNumber) -> None:
    """Remove the label from a claim."""
    await store.remove(request_id, seq)
