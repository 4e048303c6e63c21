"""Labels that people assign to claims, and the queue of claims to label."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import and_, delete, func, insert, select

from app.auth.audit_log import actor, note
from app.db.database import Database
from app.db.tables import claim_labels, claims, documents, requests
from app.errors import InvalidAdminRequestError, NotFoundError
from app.events.feedback import FeedbackStore
from judges.label_thresholds import Thresholds

Verdict = Literal["supported", "contradicted", "unverifiable"]
Key = tuple[str, int]
"""The request id and the number of a claim."""

_REQUESTS = 1_000
_HASH = "sha256:"
_claims, _labels = claims.c, claim_labels.c


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A claim to label, with the data needed to decide. ``why`` says why the claim is in the queue. ``distance`` is how
    far the claim's score is from the threshold. If an LLM decided the verdict, ``judge_score`` is the score that the
    judge gave before it."""

    request_id: str
    seq: int
    ts: datetime
    agent: str | None
    question: str | None
    prompt: str | None
    text: str
    judged: str
    score: float | None
    judge_score: float | None
    evidence: str | None
    document_id: str | None
    documents: Sequence[Mapping[str, Any]]
    why: Sequence[str]
    distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedClaims:
    """The first claims in the queue, the total number of claims in it, and the number of disputed claims among them."""

    items: Sequence[ReviewItem]
    waiting: int
    disputed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLabel:
    """A label, with its author and time."""

    request_id: str
    seq: int
    verdict: Verdict
    author: str
    created_at: datetime


class ReviewStore:
    """Manages the review queue and the labels in a database. All methods raise DatabaseUnavailableError.

    Only claims whose text is stored can be reviewed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def queue(self, *, agent: str | None = None, skipped: Sequence[Key] = (), limit: int = 1) -> QueuedClaims:
        """Return the claims for which a label is most useful, from the latest 1,000 requests with documents. Claims on
        which the judge, the LLM judge or people disagree come first. The others follow, with scores closest to the
        threshold first. Labelled and ``skipped`` claims are left out."""
        recent = select(requests.c.request_id).where(requests.c.documents > 0)
        if agent is not None:
            recent = recent.where(requests.c.agent == agent)
        recent = recent.order_by(requests.c.ts.desc()).limit(_REQUESTS)
        labelled = and_(_labels.request_id == _claims.request_id, _labels.seq == _claims.seq)
        query = (
            select(_claims.request_id, _claims.seq, _claims.label, _claims.score, _claims.extra)
            .outerjoin(claim_labels, labelled)
            .where(_claims.request_id.in_(recent), _claims.score.is_not(None), _labels.seq.is_(None))
            .where(_claims.text.is_not(None), ~_claims.text.startswith(_HASH))
        )
        async with self._database.read() as connection:
            found = (await connection.execute(query)).all()
        told = await FeedbackStore(self._database).on_requests(list({row.request_id for row in found}))
        left_out = set(skipped)
        ranked = []
        for row in found:
            if (row.request_id, row.seq) in left_out:
                continue
            reply = told[row.request_id].reply if row.request_id in told else None
            why = disputes(row.label, row.extra, reply)
            ranked.append((-len(why), _distance(row.score, row.extra), row.request_id, row.seq, why))
        ranked.sort()
        items = [await self._item(id, seq, why, distance) for _, distance, id, seq, why in ranked[:limit]]
        disputed = sum(1 for *_, why in ranked if why)
        return QueuedClaims(items=items, waiting=len(ranked), disputed=disputed)

    async def label(self, request_id: str, seq: int, verdict: Verdict) -> ClaimLabel:
        """Label a claim as the current actor. A later label replaces an earlier one.

        Raises NotFoundError, and InvalidAdminRequestError if the text of the claim isn't stored.
        """
        made = ClaimLabel(request_id=request_id, seq=seq, verdict=verdict, author=actor(), created_at=datetime.now(UTC))
        async with self._database.write() as connection:
            text = select(_claims.text).where(_claims.request_id == request_id, _claims.seq == seq)
            row = (await connection.execute(text)).first()
            if row is None:
                raise NotFoundError(f"request {request_id!r} has no claim {seq}")
            if row.text is None or row.text.startswith(_HASH):
                detail = "the text of the claim is not stored; set GROUNDLANE_STORE_TEXT to full"
                raise InvalidAdminRequestError(f"seq: {detail}", errors=[{"loc": ["seq"], "msg": detail}])
            await connection.execute(delete(claim_labels).where(_of(request_id, seq)))
            values = {name: getattr(made, name) for name in ClaimLabel.__dataclass_fields__}
            await connection.execute(insert(claim_labels), values)
            await note(connection, "label.create", request_id, after={"seq": seq, "verdict": verdict})
        return made

    async def remove(self, request_id: str, seq: int) -> None:
        """Remove the label of a claim. Raises NotFoundError."""
        async with self._database.write() as connection:
            if (await connection.execute(delete(claim_labels).where(_of(request_id, seq)))).rowcount == 0:
                raise NotFoundError(f"claim {seq} of request {request_id!r} has no label")
            await note(connection, "label.delete", request_id, before={"seq": seq})

    async def counts(self) -> Mapping[str, int]:
        """Return the number of labels by verdict."""
        query = select(_labels.verdict, func.count()).group_by(_labels.verdict)
        async with self._database.read() as connection:
            return {verdict: count for verdict, count in (await connection.execute(query)).all()}

    async def exported(self) -> AsyncIterator[dict[str, Any]]:
        """Yield a case for each labelled claim, in the form that ``groundlane eval`` reads, oldest first."""
        query = select(claim_labels).order_by(_labels.created_at, _labels.request_id, _labels.seq)
        async with self._database.read() as connection:
            labels = [ClaimLabel(**row._mapping) for row in (await connection.execute(query)).all()]
        for made in labels:
            try:
                item = await self._item(made.request_id, made.seq, (), 0.0)
            except NotFoundError:
                continue  # the claim was deleted in the meantime
            yield {
                "case_id": f"{made.request_id}-{made.seq}",
                "input": item.prompt,
                "output": item.text,
                "documents": item.documents,
                "label": made.verdict,
                "judged": item.judged,
                "score": item.score,
                "author": made.author,
                "labelled_at": made.created_at,
            }

    async def _item(self, request_id: str, seq: int, why: Sequence[str], distance: float) -> ReviewItem:
        """Read a claim in the queue. Raises NotFoundError."""
        same = requests.c.request_id == _claims.request_id, requests.c.ts == _claims.ts
        query = select(claims, requests.c.agent, requests.c.question, requests.c.prompt).join(requests, and_(*same))
        of = documents.c.request_id == request_id, documents.c.text.is_not(None), documents.c.kept.is_(True)
        texts = select(documents.c.document_id, documents.c.text).where(*of).order_by(documents.c.position)
        async with self._database.read() as connection:
            query = query.where(_claims.request_id == request_id, _claims.seq == seq)
            row = (await connection.execute(query)).first()
            if row is None:
                raise NotFoundError(f"request {request_id!r} has no claim {seq}")
            given = (await connection.execute(texts)).all()
        return ReviewItem(
            request_id=request_id,
            seq=seq,
            ts=row.ts,
            agent=row.agent,
            question=row.question or row.prompt,
            prompt=row.prompt,
            text=row.text,
            judged=row.label,
            score=row.score,
            judge_score=_verdict(row.extra).get("judge_score"),
            evidence=row.evidence,
            document_id=row.document_id,
            documents=[{"id": id, "text": text} for id, text in given],
            why=why,
            distance=round(distance, 4),
        )


def disputes(label: str, extra: Mapping[str, Any] | None, reply_correct: bool | None) -> list[str]:
    """Return the sources that disagree about the verdict ``label`` of a claim. ``llm`` means that the judge had found
    the claim unverifiable, and the LLM judge decided otherwise. ``feedback`` means that people's feedback on the reply
    contradicts the verdict. ``extra`` is the column ``extra`` of the claim's row."""
    found = []
    if _verdict(extra).get("judge_score") is not None and label != "unverifiable":
        found.append("llm")
    if (reply_correct is False and label == "supported") or (reply_correct is True and label == "contradicted"):
        found.append("feedback")
    return found


def _distance(score: float, extra: Mapping[str, Any] | None) -> float:
    """Return how far the claim's probabilities are from the thresholds that decide its label."""
    contradicted = float(_verdict(extra).get("contradicted", 0.0))
    thresholds = Thresholds()
    return min(abs(score - thresholds.entailment), abs(contradicted - thresholds.contradiction))


def _verdict(extra: Mapping[str, Any] | None) -> Mapping[str, Any]:
    verdict: Mapping[str, Any] = (extra or {}).get("verdict", {})
    return verdict


def _of(request_id: str, seq: int) -> Any:
    return and_(_labels.request_id == request_id, _labels.seq == seq)
