"""The precision and recall of each policy, according to feedback."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, FromClause, ScalarSelect, Select, Subquery, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database
from app.db.tables import decisions, feedback
from app.events.filters import EventFilter
from app.events.sql_conditions import within
from policies.registry import decides_on
from policies.types import Action, PolicySubject


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

    def add(self, count: int, *, bad: bool, flagged: bool) -> None:
        match bad, flagged:
            case True, True:
                self.true_positives += count
            case True, False:
                self.false_negatives += count
            case False, True:
                self.false_positives += count
            case _:
                self.true_negatives += count

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the admin API returns."""
        found = self.true_positives
        return asdict(self) | {
            "precision": _ratio(found, found + self.false_positives),
            "recall": _ratio(found, found + self.false_negatives),
        }


async def policy_quality(
    database: Database, *, policy_id: str | None = None, since: datetime | None = None, until: datetime | None = None
) -> list[PolicyQuality]:
    """Compute the quality of each policy, or of one, over the requests with feedback in the given time range. Return
    the results sorted by policy name. Raises DatabaseUnavailableError.

    The latest mark on a decision or request counts. Feedback on a decision counts only for the policy that made it.
    Feedback on a request shows whether the request was bad: a bad request was either rightly flagged or wrongly
    allowed. This feedback counts for every policy that decided on the request, in shadow mode or not. However, if
    another policy rightly flagged the request, a policy that allowed the request was not wrong, because the two may
    check different things.

    Feedback on a reply counts for the policies that check replies, unless there is feedback on the decision. An
    incorrect reply should have been flagged, and a correct one should not. Here too, if an enforced policy flagged an
    incorrect reply, the policies that allowed it were not wrong.
    """
    async with database.read() as connection:
        rows = await _counted(connection, EventFilter(since=since, until=until), policy_id)
    found: dict[tuple[str, bool], PolicyQuality] = {}
    for row in rows:
        bad = _was_bad(row)
        if bad is not None:
            new = PolicyQuality(policy_id=row.policy_id, policy_name=row.policy_name, shadow=row.shadow)
            quality = found.setdefault((row.policy_id, row.shadow), new)
            quality.policy_name = max(quality.policy_name, row.policy_name)
            quality.add(row.requests, bad=bad, flagged=bool(row.flagged))
    return sorted(found.values(), key=lambda quality: (quality.policy_name, quality.policy_id, quality.shadow))


def _was_bad(row: Any) -> bool | None:
    """Return whether the policy should have flagged these requests, or None if the feedback doesn't say."""
    flagged, any_flagged = bool(row.flagged), bool(row.any_flagged)
    if row.own is not None:
        return flagged is row.own
    others_flagged = any_flagged and not flagged
    outcome = None if row.outcome is None else any_flagged is row.outcome
    reply = None if row.reply is None or not decides_on(row.category, PolicySubject.REPLY) else not row.reply
    for bad in (outcome, reply):
        if bad is not None and not (bad and others_flagged):
            return bad
    return None


async def _counted(connection: AsyncConnection, filter: EventFilter, policy_id: str | None) -> list[Any]:
    """Count the requests with feedback, grouped by policy, by what the policies decided, and by the feedback.

    ``flagged`` means that the policy made a decision other than ``allow``; ``any_flagged`` means that some enforced
    policy did. ``outcome`` and ``reply`` are the feedback on the request, and ``own`` is the feedback on a decision of
    the policy.
    """
    seen = _policies_by_request(filter)
    marks, made = feedback.alias(), decisions.alias()
    own = select(marks.c.correct).join(
        made, and_(made.c.id == marks.c.decision_id, made.c.request_id == marks.c.request_id)
    )
    own = own.where(marks.c.request_id == seen.c.request_id, made.c.policy_id == seen.c.policy_id)
    groups: list[ColumnElement[Any]] = [
        *(seen.c[name] for name in ("policy_id", "shadow", "category", "flagged", "any_flagged")),
        _latest(seen, feedback.c.about == "decision", feedback.c.decision_id.is_(None)).label("outcome"),
        _latest(seen, feedback.c.about == "reply").label("reply"),
        _newest(own, marks).label("own"),
    ]
    rows = select(*groups, seen.c.policy_name)
    if policy_id is not None:
        rows = rows.where(seen.c.policy_id == policy_id)
    plain = rows.subquery()
    keys = [column for column in plain.c if column.key != "policy_name"]
    query = select(*keys, func.max(plain.c.policy_name).label("policy_name"), func.count().label("requests"))
    return list((await connection.execute(query.group_by(*keys))).all())


def _policies_by_request(filter: EventFilter) -> Subquery:
    """Build a query with one row for each request with feedback and each policy that decided on the request."""
    columns = decisions.c
    keys = columns.request_id, columns.policy_id, columns.shadow
    flagged = func.max(case((columns.action != Action.ALLOW.value, 1), else_=0))
    decided: Select[Any] = select(
        *keys,
        func.max(columns.policy_name).label("policy_name"),
        func.max(columns.category).label("category"),
        flagged.label("flagged"),
    )
    decided = decided.where(columns.request_id.in_(select(feedback.c.request_id)), *within(filter, columns.ts))
    by_policy = decided.group_by(*keys).subquery()
    enforced = case((and_(by_policy.c.flagged == 1, ~by_policy.c.shadow), 1), else_=0)
    any_flagged = func.max(enforced).over(partition_by=by_policy.c.request_id)
    return select(*by_policy.c, any_flagged.label("any_flagged")).subquery()


def _latest(seen: Subquery, *wanted: ColumnElement[bool]) -> ScalarSelect[bool]:
    """Build a query for the latest feedback on a request that meets the conditions ``wanted``."""
    return _newest(select(feedback.c.correct).where(feedback.c.request_id == seen.c.request_id, *wanted), feedback)


def _newest(query: Select[tuple[bool]], marks: FromClause) -> ScalarSelect[bool]:
    return query.order_by(marks.c.created_at.desc(), marks.c.id.desc()).limit(1).scalar_subquery()


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
