"""Models that requests began to use, or no longer use."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

import pytest

from app.analytics.model_changes import changes_in, model_changes
from app.analytics.usage import TokenStatistics, TokenTotals
from app.db.database import Database
from app.events.filters import EventFilter
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from judges.llm import PriceTable
from tests.app.conftest import EPOCH

Open = Callable[[], AbstractAsyncContextManager[Database]]
Usage = Mapping[datetime, TokenTotals]

HOUR = timedelta(hours=1)


def hourly(first: int, **counts: Sequence[int]) -> Usage:
    """Usage in consecutive hours, by the requests to each model. Hours without requests are omitted."""
    steps: dict[datetime, TokenTotals] = {}
    for hour, numbers in enumerate(zip(*counts.values(), strict=True), first):
        models = {model: number for model, number in zip(counts, numbers, strict=True) if number}
        if models:
            steps[EPOCH + hour * HOUR] = TokenTotals(requests=sum(models.values()), models=models)
    return steps


def found(before: Usage, now: Usage) -> list[tuple[str, str, int]]:
    return [
        (change.model, "first" if change.appeared else "last", (change.ts - EPOCH) // HOUR)
        for change in changes_in(before, now)
    ]


def test_switch_of_models_is_found_where_it_happened() -> None:
    before, now = hourly(0, old=[9, 9, 9], new=[0, 0, 0]), hourly(3, old=[9, 5, 0, 0], new=[0, 4, 9, 9])
    assert found(before, now) == [("new", "first", 4), ("old", "last", 4)]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(hourly(0), hourly(2, a=[9, 9]), id="first traffic of all"),
        pytest.param(hourly(0, a=[9, 9]), hourly(2, a=[9, 0, 0]), id="no traffic any more"),
        pytest.param(hourly(0, a=[9, 9], b=[1, 1]), hourly(2, a=[9, 9], b=[1, 0]), id="few requests"),
        pytest.param(hourly(0, a=[9, 9], b=[0, 0]), hourly(2, a=[9, 9], b=[0, 1]), id="a single request"),
        pytest.param(hourly(0, a=[9, 9], b=[9, 0]), hourly(2, a=[9, 9], b=[0, 9]), id="a pause"),
        pytest.param(
            hourly(0, a=[9, 9, 9, 9], b=[9, 0, 0, 9]),
            hourly(4, a=[9, 9, 9], b=[9, 0, 0]),
            id="as long a pause as before",
        ),
        pytest.param(hourly(0, a=[9, 9], b=[9, 0]), hourly(2, a=[9, 9], b=[0, 0]), id="gone before the range"),
    ],
)
def test_model_that_may_be_missing_by_chance_has_not_changed(before: Usage, now: Usage) -> None:
    assert found(before, now) == []


def test_requests_without_a_model_are_no_model() -> None:
    assert found(hourly(0, a=[9, 9]), hourly(2, **{"a": [9, 0], "": [0, 9]})) == [("a", "last", 2)]


@pytest.mark.anyio
async def test_time_is_that_of_the_request_itself(open_database: Open, event: Callable[..., RequestEvent]) -> None:
    def sent(number: int, model: str, agent: str = "desk") -> RequestEvent:
        return event(number, ts=EPOCH + number * timedelta(minutes=5), model=model, agent=agent)

    switched = [sent(number, "old" if number < 31 else "new") for number in range(72)]
    others = [sent(number, "old", agent="other") for number in range(100, 130)]
    async with open_database() as database:
        assert await store(database, [event_rows(each) for each in [*switched, *others]]) == []
        usage = TokenStatistics(database, PriceTable())

        async def changes(agent: str | None, limit: int) -> list[tuple[str, bool, timedelta]]:
            filter = EventFilter(since=EPOCH + 2 * HOUR, until=EPOCH + 12 * HOUR, agent=agent)
            before = await usage.buckets(EventFilter(until=filter.since, agent=agent), 3_600)
            now = await usage.buckets(filter, 3_600)
            found = await model_changes(database, filter, before, now, step_s=3_600, limit=limit)
            return [(change.model, change.appeared, change.ts - EPOCH) for change in found]

        minutes = timedelta(minutes=5)
        first, last = ("new", True, 31 * minutes), ("old", False, 30 * minutes)
        assert await changes("desk", 9) == [first, last]
        assert await changes("desk", 1) == [first]
        assert await changes(None, 9) == [("new", False, 71 * minutes), first]
