"""The agents, models and reason codes in the event log, offered as choices in forms."""

from typing import Literal

from sqlalchemy import func, select

from app.db.database import Database
from app.db.tables import decisions, requests

_MOST = 200
_COLUMNS = {"agent": requests.c.agent, "model": requests.c.model, "reason_code": decisions.c.reason_code}


async def distinct_values(database: Database, column: Literal["agent", "model", "reason_code"]) -> list[str]:
    """Return the distinct values in ``column``, sorted, at most 200. Raises DatabaseUnavailableError.

    Reads one index entry per value, regardless of the number of requests.
    """
    named = _COLUMNS[column]
    first = select(func.min(named).label("name")).cte("seen", recursive=True)
    following = select(func.min(named)).where(named > first.c.name).scalar_subquery()
    each = first.union_all(select(following).where(first.c.name.is_not(None)))
    query = select(each.c.name).limit(_MOST)
    async with database.read() as connection:
        return [name for (name,) in await connection.execute(query) if name]
