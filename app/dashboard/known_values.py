"""What requests have named so far, to choose from where one is to be entered."""

from typing import Literal

from sqlalchemy import func, select

from app.db.database import Database
from app.db.tables import decisions, requests

_MOST = 200
_COLUMNS = {"agent": requests.c.agent, "model": requests.c.model, "reason_code": decisions.c.reason_code}


async def seen(database: Database, column: Literal["agent", "model", "reason_code"]) -> list[str]:
    """The agents or models that requests came with, or the codes of decisions, by name; the first two hundred.

    One look into the index for each of them, however many requests there are. Raises DatabaseUnavailableError.
    """
    named = _COLUMNS[column]
    first = select(func.min(named).label("name")).cte("seen", recursive=True)
    following = select(func.min(named)).where(named > first.c.name).scalar_subquery()
    each = first.union_all(select(following).where(first.c.name.is_not(None)))
    query = select(each.c.name).limit(_MOST)
    async with database.read() as connection:
        return [name for (name,) in await connection.execute(query) if name]
