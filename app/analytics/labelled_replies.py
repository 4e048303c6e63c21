"""Uses the review labels of a reply's claims to determine whether the whole reply is grounded."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import and_, select

from app.db.database import Database
from app.db.tables import claim_labels, claims
from judges.types import Label

_SUPPORTED = Label.SUPPORTED.value


async def labelled_replies(database: Database, ids: Collection[str]) -> Mapping[str, bool]:
    """Return whether the reply to each request in ``ids`` is grounded. Requests without enough labels are omitted.

    A reply isn't grounded if a reviewer labelled one of its claims as contradicted or unverifiable. It is grounded if
    at least one claim has a label, and all claims are supported according to their label or, without a label, the
    judge. In all other cases, the labels aren't enough. Raises DatabaseUnavailableError.
    """
    columns, labels = claims.c, claim_labels.c
    label = and_(labels.request_id == columns.request_id, labels.seq == columns.seq)
    query = select(columns.request_id, columns.label, labels.verdict).outerjoin(claim_labels, label)
    query = query.where(columns.label != Label.NOT_A_CLAIM.value)
    found: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    async with database.read() as connection:
        # Start from the labels, because there are few of them.
        labelled: Any = (await connection.execute(select(labels.request_id).distinct())).scalars()
        wanted = set(labelled).intersection(ids)
        query = query.where(database.among(columns.request_id, wanted))
        for request_id, judged, verdict in await connection.execute(query):
            found[request_id].append((judged, verdict))
    replies = {id: _is_grounded(each) for id, each in found.items()}
    return {id: grounded for id, grounded in replies.items() if grounded is not None}


def _is_grounded(found: Collection[tuple[str, str | None]]) -> bool | None:
    if any(verdict not in (None, _SUPPORTED) for _, verdict in found):
        return False
    return True if all((verdict or judged) == _SUPPORTED for judged, verdict in found) else None
