"""Tokens and costs of requests, by agent, model or gateway key, at a cost independent of the number of requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.analytics.live_counts import epoch
from app.analytics.rollup_queries import spans
from app.db.database import Database
from app.db.rollup_tables import DAY, HOUR, NONE, key_of, usage_statistics
from app.db.tables import requests
from app.events.filters import EventFilter
from app.events.sql_conditions import requests_matching, within
from judges.llm import PriceTable

UsageGroup = Literal["agent", "model", "key"]

_MOST_GROUPS = 100
_MICRO = Decimal("0.000001")
_COLUMNS = {"agent": "agent", "model": "model", "key": "key_prefix"}
_usage, _requests = usage_statistics.c, requests.c


@dataclass(slots=True, kw_only=True)
class TokenTotals:
    """The tokens and cost in US dollars of a set of requests. ``cost`` doesn't include requests to models without a
    known price; ``unpriced`` counts their tokens by model. ``models`` counts the requests by model."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost_known(self) -> Decimal | None:
        """The cost, or None if none of the models has a known price."""
        return None if self.unpriced and not self.cost else self.cost

    def add(self, model: str, requests: int, prompt_tokens: int, completion_tokens: int, prices: PriceTable) -> None:
        """Add requests to one model."""
        self.requests += requests
        self.models[model] = self.models.get(model, 0) + requests
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        if tokens := prompt_tokens + completion_tokens:
            cost = prices.cost_of(model, prompt_tokens, completion_tokens)
            if cost is None:
                self.unpriced[model] = self.unpriced.get(model, 0) + tokens
            else:
                self.cost += cost

    def merge(self, other: "TokenTotals") -> None:
        """Add the totals in ``other``."""
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.cost += other.cost
        for theirs, ours in ((other.unpriced, self.unpriced), (other.models, self.models)):
            for model, number in theirs.items():
                ours[model] = ours.get(model, 0) + number

    def to_dict(self) -> dict[str, Any]:
        """Return the totals in the admin API's format."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": None if self.cost_known is None else float(self.cost.quantize(_MICRO)),
            "unpriced_tokens": dict(sorted(self.unpriced.items())),
        }


class TokenStatistics:
    """Token usage, computed from the event log in a database. All methods raise DatabaseUnavailableError.

    Requests are selected by time, agent, model, policy and ``key`` (the prefix of a gateway key). Whole hours and days
    are read from rollups. Partial hours at the ends of the time range are read row by row.
    """

    def __init__(self, database: Database, prices: PriceTable) -> None:
        self._database, self._prices = database, prices

    async def totals(self, filter: EventFilter, *, key: str | None = None) -> TokenTotals:
        """Compute the usage of all matching requests."""
        return (await self._counted(filter, key, None)).get(None, TokenTotals())

    async def groups(
        self, filter: EventFilter, by: UsageGroup, *, key: str | None = None
    ) -> list[tuple[str | None, TokenTotals]]:
        """Group the usage by agent, model or gateway key. Return at most a hundred groups, most expensive first."""
        found = await self._counted(filter, key, by)
        ordered = sorted(found.items(), key=lambda item: (-item[1].cost, -item[1].tokens, str(item[0])))
        return [(None if name is None else str(name), usage) for name, usage in ordered[:_MOST_GROUPS]]

    async def buckets(
        self, filter: EventFilter, seconds: int, *, key: str | None = None
    ) -> dict[datetime, TokenTotals]:
        """Group the usage by time, in steps of ``seconds``, like ``Statistics.buckets``, but without empty steps."""
        found = await self._counted(filter, key, seconds)
        return {datetime.fromtimestamp(int(at), UTC): usage for at, usage in found.items() if at is not None}

    async def _counted(
        self, filter: EventFilter, key: str | None, by: UsageGroup | int | None
    ) -> dict[str | int | None, TokenTotals]:
        found: dict[str | int | None, TokenTotals] = {}
        async with self._database.read() as connection:
            for row in await self._rows(connection, filter, key, by):
                *group, model, count, prompt, completion = tuple(row)
                usage = found.setdefault(_group_of(group, by), TokenTotals())
                usage.add(key_of(model), int(count), int(prompt or 0), int(completion or 0), self._prices)
        return found

    async def _rows(
        self, connection: AsyncConnection, filter: EventFilter, key: str | None, by: UsageGroup | int | None
    ) -> list[Row[Any]]:
        if isinstance(by, int) and by % HOUR:
            return list(await connection.execute(self._of_events(filter, key, by)))
        rows: list[Row[Any]] = []
        for span in spans(filter, largest=HOUR if isinstance(by, int) and by % DAY else DAY):
            if span.step is None:
                query = self._of_events(span.filter, key, by)
            else:
                query = _of_rollups(span.filter, span.step, key, by)
            rows += await connection.execute(query)
        return rows

    def _of_events(self, filter: EventFilter, key: str | None, by: UsageGroup | int | None) -> Select[Any]:
        sums = func.count(), func.sum(_requests.prompt_tokens), func.sum(_requests.completion_tokens)
        match by:
            case None:
                groups: list[ColumnElement[Any]] = []
            case int():
                groups = [epoch(self._database.dialect, _requests.ts, by)]
            case _:
                groups = [_requests[_COLUMNS[by]]]
        groups.append(_requests.model)
        query = requests_matching(filter, *groups, *sums)
        return (query if key is None else query.where(_requests.key_prefix == key)).group_by(*groups)


def _of_rollups(filter: EventFilter, step: int, key: str | None, by: UsageGroup | int | None) -> Select[Any]:
    groups: list[ColumnElement[Any]] = []
    if by is not None:
        groups.append(_usage.start if isinstance(by, int) else _usage[_COLUMNS[by]])
    groups.append(_usage.model)
    wanted = [_usage.step == step, _usage.policy_id == (filter.policy or NONE), *within(filter, _usage.start)]
    named = {"agent": filter.agent, "model": filter.model, "key_prefix": key}
    wanted += [_usage[name] == key_of(value) for name, value in named.items() if value is not None]
    sums = [func.sum(_usage[name]) for name in ("requests", "prompt_tokens", "completion_tokens")]
    return select(*groups, *sums).where(*wanted).group_by(*groups)


def _group_of(key: Sequence[Any], by: UsageGroup | int | None) -> str | int | None:
    if not key:
        return None
    if isinstance(by, int):
        seconds = int(key[0].timestamp() if isinstance(key[0], datetime) else key[0])
        return seconds - seconds % by
    return key_of(key[0]) or None
