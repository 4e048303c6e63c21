"""What people say of decisions: whether they were right, and how good each policy is by that."""

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
    """Somebody says that a decision, or what became of a request as a whole, was right (``correct``) or wrong."""

    id: str
    request_id: str
    decision_id: str | None
    correct: bool
    note: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """What a policy made of a request: ``flagged`` if one of its decisions did not allow."""

    request_id: str
    policy_id: str
    policy_name: str
    shadow: bool
    flagged: bool
    decision_ids: frozenset[str]


@dataclass(slots=True, kw_only=True)
class PolicyQuality:
    """How a policy does by what is known: ``precision``, how many of those it flagged were bad; ``recall``, how many of
    those that were bad it flagged. None where there were none."""

    policy_id: str
    policy_name: str
    shadow: bool
    true_positives: int = 0
    false_positives: int = 0
    true_negatives: int = 0
    false_negatives: int = 0

    def told(self) -> dict[str, Any]:
        found = self.true_positives
        return asdict(self) | {
            "precision": _ratio(found, found + self.false_positives),
            "recall": _ratio(found, found + self.false_negatives),
        }


class FeedbackStore:
    """The marks of one database; all raise DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, request_id: str, *, decision_id: str | None, correct: bool, note: str | None) -> FeedbackMark:
        """Raises NotFoundError for a request that is not in the event log (yet), InvalidAdminRequestError for a
        decision that is not one of its."""
        mark = FeedbackMark(
            id=f"fb_{uuid4().hex}",
            request_id=request_id,
            decision_id=decision_id,
            correct=correct,
            note=note,
            created_at=datetime.now(UTC),
        )
        async with self._database.write() as connection:
            # Locked, so that it is not deleted before the mark is there to be deleted with it.
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
            # Without the note: it may quote the request, and this line outlives it.
            after = {"id": mark.id, "decision_id": decision_id, "correct": correct}
            await audit_log.note(connection, "feedback.create", request_id, after=after)
        return mark

    async def marks(
        self, *, request_id: str | None = None, correct: bool | None = None, limit: int, after: Key | None = None
    ) -> Sequence[FeedbackMark]:
        """Up to ``limit`` marks, newest first."""
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
        """Precision and recall of each policy over the requests of that time that were marked."""
        marks = await self._marks(since, until)
        ids = sorted({mark.request_id for mark in marks})
        decided: list[PolicyOutcome] = []
        for start in range(0, len(ids), _AT_ONCE):
            decided += await self._decided(ids[start : start + _AT_ONCE], EventFilter(since=since, until=until))
        found = sorted(
            rate(marks, decided), key=lambda quality: (quality.policy_name, quality.policy_id, quality.shadow)
        )
        return [quality.told() for quality in found]

    async def verdicts(self, ids: Sequence[str]) -> Mapping[str, bool]:
        """Of those of ``ids`` that were marked as a whole: whether what became of each was right."""
        query = select(feedback.c.request_id, feedback.c.correct).where(feedback.c.decision_id.is_(None))
        query = query.order_by(feedback.c.created_at, feedback.c.id)
        found: dict[str, bool] = {}
        async with self._database.read() as connection:
            for start in range(0, len(ids), _AT_ONCE):
                of = query.where(feedback.c.request_id.in_(ids[start : start + _AT_ONCE]))
                found |= {row[0]: row[1] for row in await connection.execute(of)}
        return found

    async def _marks(self, since: datetime | None, until: datetime | None) -> list[FeedbackMark]:
        # By the marks, which are few: a join may be done by the requests, which are not.
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


def rate(marks: Iterable[FeedbackMark], decided: Sequence[PolicyOutcome]) -> list[PolicyQuality]:
    """The quality of each policy. ``marks`` come with the oldest first: the last one of a thing counts.

    A mark of a decision is about its policy alone. A mark of a request says whether it was bad: right and flagged, or
    wrong and allowed. That is held against every policy that was asked, in shadow or not; a policy that let pass what
    another rightly flagged was not wrong, as it may look at something else.
    """
    of_requests: dict[str, bool] = {}
    of_decisions: dict[str, bool] = {}
    for mark in marks:
        if mark.decision_id is None:
            of_requests[mark.request_id] = mark.correct
        else:
            of_decisions[mark.decision_id] = mark.correct
    flagged = {one.request_id for one in decided if one.flagged and not one.shadow}
    found: dict[tuple[str, bool], PolicyQuality] = {}
    for one in decided:
        bad = _was_bad(one, of_requests, of_decisions, flagged)
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
    one: PolicyOutcome, of_requests: Mapping[str, bool], of_decisions: Mapping[str, bool], flagged: set[str]
) -> bool | None:
    """Whether the request was bad as far as the policy is concerned; None where nobody said."""
    own = [of_decisions[decision] for decision in sorted(one.decision_ids) if decision in of_decisions]
    if own:
        return one.flagged == own[-1]
    correct = of_requests.get(one.request_id)
    if correct is None:
        return None
    bad = (one.request_id in flagged) == correct
    if bad and correct and not one.flagged:
        return None
    return bad


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
