"""Feedback on decisions: whether they were right, and the precision and recall of each policy."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import exists, insert, select, tuple_

from app.auth import audit_log
from app.db.database import Database
from app.db.tables import decisions, feedback, requests
from app.errors import InvalidAdminRequestError, NotFoundError
from app.events.queries import EventFilter, Key, within
from policies.types import Action

_AT_ONCE = 500
_ALLOW = Action.ALLOW.value


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackMark:
    """Feedback on a decision, or on the outcome of a whole request. ``correct`` says whether it was right."""

    id: str
    request_id: str
    decision_id: str | None
    correct: bool
    note: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """A policy's decisions on a request. ``flagged`` means that at least one of them is not ``allow``."""

    request_id: str
    policy_id: str
    policy_name: str
    shadow: bool
    flagged: bool
    decision_ids: frozenset[str]


@dataclass(slots=True, kw_only=True)
class PolicyQuality:
    """How well a policy flags bad requests, according to feedback. ``precision`` is the ratio of flagged requests that
    were bad (None if none was flagged), and ``recall`` the ratio of bad requests that were flagged (None if none was
    bad)."""

    policy_id: str
    policy_name: str
    shadow: bool
    true_positives: int = 0
    false_positives: int = 0
    true_negatives: int = 0
    false_negatives: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Convert to the JSON object that the admin API returns."""
        found = self.true_positives
        return asdict(self) | {
            "precision": _ratio(found, found + self.false_positives),
            "recall": _ratio(found, found + self.false_negatives),
        }


class FeedbackStore:
    """The feedback in one database. All methods raise DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, request_id: str, *, decision_id: str | None, correct: bool, note: str | None) -> FeedbackMark:
        """Store feedback. Raises NotFoundError if the request is not (or not yet) in the event log, and
        InvalidAdminRequestError if the decision belongs to a different request."""
        mark = FeedbackMark(
            id=f"fb_{uuid4().hex}",
            request_id=request_id,
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
                    detail = f"request {request_id!r} has no decision {decision_id!r}"
                    raise InvalidAdminRequestError(
                        f"decision_id: {detail}", errors=[{"loc": ["decision_id"], "msg": detail}]
                    )
            await connection.execute(insert(feedback), asdict(mark))
            # The note is left out: it may quote the request, and the audit entry outlives the request.
            after = {"id": mark.id, "decision_id": decision_id, "correct": correct}
            await audit_log.note(connection, "feedback.create", request_id, after=after)
        return mark

    async def marks(
        self, *, request_id: str | None = None, correct: bool | None = None, limit: int, after: Key | None = None
    ) -> Sequence[FeedbackMark]:
        """Return up to ``limit`` feedback marks, newest first."""
        columns = feedback.c
        query = select(feedback).order_by(columns.created_at.desc(), columns.id.desc()).limit(limit)
        for column, value in ((columns.request_id, request_id), (columns.correct, correct)):
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
        ids = sorted({mark.request_id for mark in marks})
        decided: list[PolicyOutcome] = []
        for start in range(0, len(ids), _AT_ONCE):
            decided += await self._decided(ids[start : start + _AT_ONCE], EventFilter(since=since, until=until))
        found = sorted(
            policy_quality(marks, decided), key=lambda quality: (quality.policy_name, quality.policy_id, quality.shadow)
        )
        return [quality.to_dict() for quality in found]

    async def verdicts(self, ids: Sequence[str]) -> Mapping[str, bool]:
        """Return whether the outcome of each request was right, for the requests in ``ids`` with feedback on the whole
        request."""
        query = select(feedback.c.request_id, feedback.c.correct).where(feedback.c.decision_id.is_(None))
        query = query.order_by(feedback.c.created_at, feedback.c.id)
        found: dict[str, bool] = {}
        async with self._database.read() as connection:
            for start in range(0, len(ids), _AT_ONCE):
                of = query.where(feedback.c.request_id.in_(ids[start : start + _AT_ONCE]))
                found |= {row[0]: row[1] for row in await connection.execute(of)}
        return found

    async def _marks(self, since: datetime | None, until: datetime | None) -> list[FeedbackMark]:
        # Start from the feedback, which is small: a join might start from the requests, of which there are many.
        of_that_time = exists().where(
            requests.c.request_id == feedback.c.request_id,
            *within(EventFilter(since=since, until=until), requests.c.ts),
        )
        query = select(feedback).where(of_that_time).order_by(feedback.c.created_at, feedback.c.id)
        async with self._database.read() as connection:
            return [FeedbackMark(**row._mapping) for row in (await connection.execute(query)).all()]

    async def _decided(self, ids: Sequence[str], filter: EventFilter) -> list[PolicyOutcome]:
        columns = decisions.c
        query = select(
            columns.request_id, columns.policy_id, columns.policy_name, columns.shadow, columns.action, columns.id
        ).where(columns.request_id.in_(ids), *within(filter, columns.ts))
        found: dict[tuple[str, str], list[Any]] = defaultdict(list)
        async with self._database.read() as connection:
            for row in await connection.execute(query):
                found[row.request_id, row.policy_id].append(row)
        return [
            PolicyOutcome(
                request_id=request_id,
                policy_id=policy_id,
                policy_name=rows[-1].policy_name,
                shadow=rows[-1].shadow,
                flagged=any(row.action != _ALLOW for row in rows),
                decision_ids=frozenset(row.id for row in rows),
            )
            for (request_id, policy_id), rows in found.items()
        ]


def policy_quality(marks: Iterable[FeedbackMark], decided: Sequence[PolicyOutcome]) -> list[PolicyQuality]:
    """Compute the quality of each policy. ``marks`` must be sorted oldest first; the latest mark on a decision or
    request counts.

    Feedback on a decision concerns only that decision's policy. Feedback on a request says whether the request was bad,
    which it was if it was rightly flagged or wrongly allowed. It counts for every policy that decided on the request,
    in shadow mode or not. However, a policy that allowed a request rightly flagged by another policy was not wrong,
    because it may check something else.
    """
    by_request: dict[str, bool] = {}
    by_decision: dict[str, bool] = {}
    for mark in marks:
        if mark.decision_id is None:
            by_request[mark.request_id] = mark.correct
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
    one: PolicyOutcome, by_request: Mapping[str, bool], by_decision: Mapping[str, bool], flagged: set[str]
) -> bool | None:
    """Return whether the request was bad from the policy's point of view, or None without feedback on that."""
    own = [by_decision[decision] for decision in sorted(one.decision_ids) if decision in by_decision]
    if own:
        return one.flagged == own[-1]
    correct = by_request.get(one.request_id)
    if correct is None:
        return None
    bad = (one.request_id in flagged) == correct
    if bad and correct and not one.flagged:
        return None
    return bad


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
