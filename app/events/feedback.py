"""Feedback on decisions and replies."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal
from uuid import uuid4

from sqlalchemy import insert, select, tuple_

from app.auth import audit_log
from app.db.database import Database
from app.db.tables import decisions, feedback, requests
from app.errors import InvalidAdminRequestError, NotFoundError
from app.events.filters import Key

Subject = Literal["decision", "reply"]
"""The subject of feedback: the gateway's decision, or the model's reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackMark:
    """Feedback on a decision, on the outcome of a whole request, or on the reply as the model wrote it. For a whole
    request, ``about`` is ``decision`` and ``decision_id`` is None. ``correct`` says whether the decision or reply was
    right."""

    id: str
    request_id: str
    about: Subject
    decision_id: str | None
    correct: bool
    note: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFeedback:
    """The latest feedback on a request as a whole. ``outcome`` says whether the decision was right, and ``reply``
    whether the reply was correct. Each is None if there is no such feedback."""

    outcome: bool | None = None
    reply: bool | None = None

    def reply_was_bad(self, *, flagged: bool) -> bool | None:
        """Return whether the reply should have been flagged, given whether it was ``flagged``. Return None if there is
        no feedback."""
        if self.reply is not None:
            return not self.reply
        return None if self.outcome is None else self.outcome is flagged

    def updated(self, about: Subject, correct: bool) -> "RequestFeedback":
        if about == "reply":
            return RequestFeedback(outcome=self.outcome, reply=correct)
        return RequestFeedback(outcome=correct, reply=self.reply)


class FeedbackStore:
    """Stores feedback in a database. All methods raise DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self, request_id: str, *, about: Subject, decision_id: str | None, correct: bool, note: str | None
    ) -> FeedbackMark:
        """Store feedback. Raises NotFoundError if the request is not in the event log yet. Raises
        InvalidAdminRequestError if the decision belongs to a different request, or if feedback on a reply names a
        decision."""
        if about == "reply" and decision_id is not None:
            raise _invalid_decision("feedback on a reply can't name a decision: leave out decision_id")
        mark = FeedbackMark(
            id=f"fb_{uuid4().hex}",
            request_id=request_id,
            about=about,
            decision_id=decision_id,
            correct=correct,
            note=note,
            created_at=datetime.now(UTC),
        )
        async with self._database.write() as connection:
            # The row is locked, so that the request cannot be deleted before its feedback is stored.
            known = select(requests.c.ts).where(requests.c.request_id == request_id)
            ts = (await connection.execute(known.with_for_update(key_share=True, read=True))).scalar()
            if ts is None:
                raise NotFoundError(f"request {request_id!r} does not exist")
            if decision_id is not None:
                columns = decisions.c
                of_request = columns.request_id == request_id, columns.ts == ts
                made = select(columns.id).where(columns.id == decision_id, *of_request)
                if (await connection.execute(made)).first() is None:
                    raise _invalid_decision(f"request {request_id!r} has no decision {decision_id!r}")
            await connection.execute(insert(feedback), asdict(mark))
            # The note is left out: it may quote the request, and the audit entry outlives the request.
            after = {"id": mark.id, "about": about, "decision_id": decision_id, "correct": correct}
            await audit_log.note(connection, "feedback.create", request_id, after=after)
        return mark

    async def marks(
        self,
        *,
        request_id: str | None = None,
        about: Subject | None = None,
        correct: bool | None = None,
        limit: int,
        after: Key | None = None,
    ) -> Sequence[FeedbackMark]:
        """Return up to ``limit`` feedback marks, newest first."""
        columns = feedback.c
        query = select(feedback).order_by(columns.created_at.desc(), columns.id.desc()).limit(limit)
        wanted = ((columns.request_id, request_id), (columns.about, about), (columns.correct, correct))
        for column, value in wanted:
            if value is not None:
                query = query.where(column == value)
        if after is not None:
            types = [columns.created_at.type, columns.id.type]
            query = query.where(tuple_(columns.created_at, columns.id) < tuple_(*after, types=types))
        async with self._database.read() as connection:
            return [FeedbackMark(**row._mapping) for row in (await connection.execute(query)).all()]

    async def on_requests(self, ids: Collection[str]) -> Mapping[str, RequestFeedback]:
        """Return the feedback on whole requests. Requests in ``ids`` without feedback are left out."""
        columns = feedback.c
        query = select(columns.request_id, columns.about, columns.correct).where(columns.decision_id.is_(None))
        query = query.where(self._database.among(columns.request_id, ids)).order_by(columns.created_at, columns.id)
        found: dict[str, RequestFeedback] = {}
        new = RequestFeedback()
        async with self._database.read() as connection:
            for request_id, about, correct in (await connection.execute(query)).all():
                found[request_id] = found.get(request_id, new).updated(about, correct)
        return found


def _invalid_decision(detail: str) -> InvalidAdminRequestError:
    return InvalidAdminRequestError(f"decision_id: {detail}", errors=[{"loc": ["decision_id"], "msg": detail}])
