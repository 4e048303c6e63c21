"""The agents, models, reason codes and keys in the event log. Forms offer them as choices."""

from collections.abc import Iterable
from typing import Literal

from sqlalchemy import func, select

from app.auth.key_store import KeyStore
from app.db.database import Database
from app.db.tables import decisions, requests

_MOST = 200
_COLUMNS = {
    "agent": requests.c.agent,
    "model": requests.c.model,
    "reason_code": decisions.c.reason_code,
    "key_prefix": requests.c.key_prefix,
}


async def distinct_values(
    database: Database, column: Literal["agent", "model", "reason_code", "key_prefix"]
) -> list[str]:
    """Return up to 200 distinct values of ``column``, sorted. Raises DatabaseUnavailableError.

    Reads one index entry per value, regardless of the number of requests.
    """
    named = _COLUMNS[column]
    first = select(func.min(named).label("name")).cte("seen", recursive=True)
    following = select(func.min(named)).where(named > first.c.name).scalar_subquery()
    each = first.union_all(select(following).where(first.c.name.is_not(None)))
    query = select(each.c.name).limit(_MOST)
    async with database.read() as connection:
        return [name for (name,) in await connection.execute(query) if name]


async def known_keys(database: Database, others: Iterable[str | None]) -> dict[str, str]:
    """Return the names of the gateway keys in the event log and in ``others``, by prefix, sorted by name. For a key
    that is not in the database, the name is its prefix. Raises DatabaseUnavailableError."""
    prefixes = {*await distinct_values(database, "key_prefix"), *(prefix for prefix in others if prefix)}
    names = await KeyStore(database).names(prefixes)
    labels = {prefix: names.get(prefix, prefix) for prefix in prefixes}
    return dict(sorted(labels.items(), key=lambda item: (item[0] not in names, item[1].casefold(), item[0])))
