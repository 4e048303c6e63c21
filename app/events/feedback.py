"""Feedback on decisions and replies, and the resulting precision and recall of each policy."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import exists, insert, select, tuple_

from app.auth import audit_log
from app.db.database import Database
from app.db.tables import decisions, feedback, requests
from app.errors import InvalidAdminRequestError, NotFoundError
from app.events.filters import EventFilter, Key
from app.events.sql_conditions import within
from policies.registry import decides_on
from policies.types import Action, PolicySubject

_AT_ONCE = 500
_ALLOW = Action.ALLOW.value

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
    whether the reply was correct. Each is None without such feedback."""

    outcome: bool | None = None
    reply: bool | None = None

    def reply_was_bad(self, *, flagged: bool) -> bool | None:
        """Return whether the reply should have been flagged, given whether it was ``flagged``. None if there is no
        feedback."""
        if self.reply is not None:
            return not self.reply
        return None if self.outcome is None else self.outcome is flagged

    def updated(self, about: Subject, correct: bool) -> "RequestFeedback":
        return replace(self, reply=correct) if about == "reply" else replace(self, outcome=correct)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """A policy's decisions on a request. ``flagged`` means that at least one of them is not ``allow``."""

    request_id: str
    policy_id: str
    policy_name: str
    category: str
    shadow: bool
    flagged: bool
    decision_ids: frozenset[str]


@dataclass(slots=True, kw_only=True)
class PolicyQuality:
    """How well a policy flags bad requests, according to feedback. ``precision`` is the share of flagged requests that
    were bad, or None if none was flagged. ``recall`` is the share of bad requests that were flagged, or None if none
    was bad."""

    policy_id: str
    policy_name: str
    shadow: bool
    true_positives: int = 0
    false_positives: int = 0
    true_negatives: int = 0
    false_negatives: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the admin API returns."""
        found = self.true_positives
        return asdict(self) | {
            "precision": _ratio(found, found + self.false_positives),
            "recall": _ratio(found, found + self.false_negatives),
        }


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

    async def quality(self, *, since: datetime | None, until: datetime | None) -> list[dict[str, Any]]:
        """Compute each policy's precision and recall over the requests with feedback in the given time range."""
        marks = await self._marks(since, until)
        decided = await self._decided(EventFilter(since=since, until=until))
        counted = await asyncio.to_thread(policy_quality, marks, decided)
        found = sorted(counted, key=lambda quality: (quality.policy_name, quality.policy_id, quality.shadow))
        return [quality.to_dict() for quality in found]

    async def on_requests(self, ids: Sequence[str]) -> Mapping[str, RequestFeedback]:
        """Return the feedback on whole requests. Requests in ``ids`` without feedback are left out."""
        columns = feedback.c
        query = select(columns.request_id, columns.about, columns.correct).where(columns.decision_id.is_(None))
        query = query.order_by(columns.created_at, columns.id)
        found: dict[str, RequestFeedback] = defaultdict(RequestFeedback)
        async with self._database.read() as connection:
            for start in range(0, len(ids), _AT_ONCE):
                of = query.where(columns.request_id.in_(ids[start : start + _AT_ONCE]))
                for request_id, about, correct in await connection.execute(of):
                    found[request_id] = found[request_id].updated(about, correct)
        return dict(found)

    async def _marks(self, since: datetime | None, until: datetime | None) -> Sequence[Any]:
        """Return the columns of marks that ``policy_quality`` needs."""
        # Start from the feedback, which is small: a join might start from the requests, of which there are many.
        of_that_time = exists().where(
            requests.c.request_id == feedback.c.request_id,
            *within(EventFilter(since=since, until=until), requests.c.ts),
        )
        columns = feedback.c
        query = select(columns.request_id, columns.about, columns.decision_id, columns.correct).where(of_that_time)
        async with self._database.read() as connection:
            return (await connection.execute(query.order_by(columns.created_at, columns.id))).all()

    async def _decided(self, filter: EventFilter) -> list[PolicyOutcome]:
        """Return the decisions on the requests that have feedback."""
        columns = decisions.c
        query = select(
            columns.request_id,
            columns.policy_id,
            columns.policy_name,
            columns.category,
            columns.shadow,
            columns.action,
            columns.id,
        ).where(columns.request_id.in_(select(feedback.c.request_id)), *within(filter, columns.ts))
        found: dict[tuple[str, str], list[Any]] = defaultdict(list)
        async with self._database.read() as connection:
            for request_id, policy_id, *row in await connection.execute(query):
                found[request_id, policy_id].append(row)
        return [
            PolicyOutcome(
                request_id=request_id,
                policy_id=policy_id,
                policy_name=rows[-1][0],
                category=rows[-1][1],
                shadow=rows[-1][2],
                flagged=any(action != _ALLOW for _, _, _, action, _ in rows),
                decision_ids=frozenset(row[-1] for row in rows),
            )
            for (request_id, policy_id), rows in found.items()
        ]


def policy_quality(marks: Iterable[FeedbackMark], decided: Sequence[PolicyOutcome]) -> list[PolicyQuality]:
    """Compute the quality of each policy. ``marks`` must be sorted oldest first. The latest mark on a decision or
    request counts.

    Feedback on a decision counts only for the policy that made it. Feedback on a request shows whether the request was
    bad: a bad request was either rightly flagged or wrongly allowed. This feedback counts for every policy that decided
    on the request, in shadow mode or not. However, if another policy rightly flagged the request, a policy that allowed
    it was not wrong, because it may check something else.

    Feedback on a reply counts for the policies that check replies, unless there is feedback on the decision. An
    incorrect reply should have been flagged, and a correct one should not. Here too, if an enforced policy flagged an
    incorrect reply, the policies that allowed it were not wrong.
    """
    by_request: dict[str, RequestFeedback] = defaultdict(RequestFeedback)
    by_decision: dict[str, bool] = {}
    for mark in marks:
        if mark.decision_id is None:
            by_request[mark.request_id] = by_request[mark.request_id].updated(mark.about, mark.correct)
        else:
            by_decision[mark.decision_id] = mark.correct
    flagged = {one.request_id for one in decided if one.flagged and not one.shadow}
    found: dict[tuple[str, bool], PolicyQuality] = {}
    for one in decided:
        bad = _was_bad(one, by_request, by_decision, flagged)
        if bad is None:
            continue
        quality = found.setdefault(
            (one.policy_id, one.shadow),
            PolicyQuality(policy_id=one.policy_id, policy_name=one.policy_name, shadow=one.shadow),
        )
        match bad, one.flagged:
            case True, True:
                quality.true_positives += 1
            case True, False:
                quality.false_negatives += 1
            case False, True:
                quality.false_positives += 1
            case _:
                quality.true_negatives += 1
    return list(found.values())


def _was_bad(
    one: PolicyOutcome, by_request: Mapping[str, RequestFeedback], by_decision: Mapping[str, bool], flagged: set[str]
) -> bool | None:
    """Return whether the policy should have flagged the request, or None if there is no feedback on that."""
    own = [by_decision[decision] for decision in sorted(one.decision_ids) if decision in by_decision]
    if own:
        return one.flagged == own[-1]
    told = by_request.get(one.request_id, RequestFeedback())
    others_flagged = one.request_id in flagged and not one.flagged
    outcome = None if told.outcome is None else (one.request_id in flagged) == told.outcome
    reply = None if told.reply is None or not decides_on(one.category, PolicySubject.REPLY) else not told.reply
    for bad in (outcome, reply):
        if bad is not None and not (bad and others_flagged):
            return bad
    return None


def _invalid_decision(detail: str) -> InvalidAdminRequestError:
    return InvalidAdminRequestError(f"decision_id: {detail}", errors=[{"loc": ["decision_id"], "msg": detail}])


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
