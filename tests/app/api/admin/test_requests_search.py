"""Requests are searched, filtered, sorted and counted alike on each database."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, text

from app.db.database import Database
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from app.events.storage.retention import prune
from app.settings import StoreText

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]
START = datetime(2026, 1, 1, tzinfo=UTC)
REPLIES = (
    "A refund takes five days.",
    "The parcel is late.",
    "Refunds for late parcels take a week.",
    "返金は五日です。",
)
HASH = "sha256:" + "0" * 64


@pytest.fixture
async def log(resources: SimpleNamespace, event: Event) -> SimpleNamespace:
    """Forty requests, four at the same time every second, of which every eighth has no trust score and no tokens."""
    resources.settings = SimpleNamespace(store_text=StoreText.FULL)
    events = [
        event(
            number,
            ts=START + timedelta(seconds=number // 4),
            prompt=f"Question {number} about a café",
            reply=REPLIES[number % 4],
            question=f"Question {number}",
            key_prefix=f"gl-{number % 3}",
            verdict="supported" if number % 2 else "has_unverifiable",
            status="completed" if number % 5 else "failed",
            total_ms=100.0 * (number % 7),
            trust_score=None if number % 8 == 0 else round(number % 5 / 5, 2),
            prompt_tokens=None if number % 8 == 0 else number % 6,
        )
        for number in range(40)
    ]
    assert await store(resources.database, [event_rows(each) for each in events]) == []
    return resources


async def answer(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    found = await client.get(f"/admin/v1/{path}", params=params)
    assert found.status_code == 200, found.text
    return found.json()


async def everything(client: httpx.AsyncClient, limit: int = 7, **params: Any) -> list[dict[str, Any]]:
    """The items of all pages."""
    items: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await answer(client, "requests", limit=limit, **params, **cursor)
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        cursor = {"cursor": page["next_cursor"]}


def numbers(items: list[dict[str, Any]]) -> list[int]:
    return [int(item["request_id"].removeprefix("req_")) for item in items]


@pytest.mark.parametrize(
    ("q", "remainders"),
    [
        ("refund", {0}),
        ("refund*", {0, 2}),
        ("REFUND", {0}),
        ("late", {1, 2}),
        ('"is late"', {1}),
        ('"late is"', set()),
        ("late refunds", {2}),
        ("cafe question", {0, 1, 2, 3}),
        ("五日", {3}),
        ("日五", set()),
        ("nothing", set()),
    ],
)
async def test_search_finds_words_phrases_and_prefixes(
    client: httpx.AsyncClient, log: SimpleNamespace, q: str, remainders: set[int]
) -> None:
    found = numbers(await everything(client, q=q))
    assert found == [number for number in reversed(range(40)) if number % 4 in remainders]


@pytest.mark.parametrize("reading", [0.0, 1e9])
@pytest.mark.parametrize(("q", "matches"), [
    ("refund", lambda n: n % 4 == 0), ('"is late"', lambda n: n % 4 == 1), ('"late is"', lambda n: False),
    ("cafe question", lambda n: True), ("question 17", lambda n: n == 17), ("refund* week", lambda n: n % 4 == 2),
    ('"question 3" late', lambda n: False), ("nothing late", lambda n: False),
])  # fmt: skip
async def test_searches_that_stop_early_continue_on_the_next_page(
    client: httpx.AsyncClient, log: SimpleNamespace, monkeypatch: pytest.MonkeyPatch,
    q: str, matches: Callable[[int], bool], reading: float,
) -> None:  # fmt: skip
    """On PostgreSQL: both where the newest requests are read, and where the index of words is thought to be cheaper."""
    monkeypatch.setattr("app.events.search.matches.FIRST_READ", 3)
    monkeypatch.setattr("app.events.search.matches.MOST_READ", 6)
    monkeypatch.setattr("app.events.search.matches._COST_OF_READING", reading)
    wanted = [number for number in reversed(range(40)) if matches(number)]
    assert numbers(await everything(client, q=q, limit=3)) == wanted
    facets = await answer(client, "requests/facets", q=q)
    assert facets["total"] <= len(wanted)
    assert not facets["complete"] or facets["total"] == len(wanted)


@pytest.mark.parametrize(
    "q",
    [
        '"',
        "*",
        "a*b*",
        "()",
        "NEAR(a b",
        "AND",
        "' OR 1=1 --",
        "body:x",
        "^a",
        "a & | !",
        "<->",
        "\\",
        "%",
        "-x",
        ":*",
        "é" * 400,
    ],
)
async def test_any_search_is_valid(client: httpx.AsyncClient, log: SimpleNamespace, q: str) -> None:
    assert set(await answer(client, "requests", q=q)) == {"items", "next_cursor", "search"}
    await answer(client, "requests/facets", q=q)
    await answer(client, "requests", q=q, sort="-latency")


@pytest.mark.parametrize(
    ("params", "matches"),
    [
        ({"verdict": "supported"}, lambda n: n % 2 == 1),
        ({"status": "failed", "verdict": "supported"}, lambda n: n % 5 == 0 and n % 2 == 1),
        ({"status": "cancelled"}, lambda n: False),
        ({"key": "gl-1", "q": "late"}, lambda n: n % 3 == 1 and n % 4 in (1, 2)),
        ({"min_ms": 300, "max_ms": 400}, lambda n: 3 <= n % 7 <= 4),
        ({"min_trust": 0.4, "max_trust": 0.6}, lambda n: n % 8 and 2 <= n % 5 <= 3),
    ],
)
async def test_filters_and_their_counts(
    client: httpx.AsyncClient, log: SimpleNamespace, params: dict[str, Any], matches: Callable[[int], bool]
) -> None:
    wanted = [number for number in reversed(range(40)) if matches(number)]
    assert numbers(await everything(client, **params)) == wanted
    facets = await answer(client, "requests/facets", **params)
    assert (facets["total"], facets["complete"]) == (len(wanted), True)
    for name in ("verdict", "status", "key", "action"):
        assert sum(each["count"] for each in facets[name]["values"]) == len(wanted)
    assert sum(each["count"] for each in facets["latency_ms"]["bands"]) == len(wanted)
    assert sum(each["count"] for each in facets["trust"]["bands"]) == sum(number % 8 != 0 for number in wanted)


@pytest.mark.parametrize("sort", ["-time", "time", "-latency", "trust", "-tokens"])
@pytest.mark.parametrize(
    ("params", "matches"),
    [
        ({"status": "failed", "verdict": "supported"}, lambda n: n % 5 == 0 and n % 2 == 1),
        ({"min_ms": 300, "key": "gl-1"}, lambda n: n % 7 >= 3 and n % 3 == 1),
        ({"min_trust": 0.4, "max_trust": 0.6}, lambda n: n % 8 and 2 <= n % 5 <= 3),
        ({"min_trust": 0.8, "status": "failed"}, lambda n: False),
    ],
)
async def test_page_reads_a_bounded_number_of_requests_and_the_next_page_continues(
    client: httpx.AsyncClient, resources: SimpleNamespace, event: Event, monkeypatch: pytest.MonkeyPatch,
    params: dict[str, Any], matches: Callable[[int], bool], sort: str,
) -> None:  # fmt: skip
    for name, value in (("MOST_READ", 4), ("MOST_SORTED", 3), ("_FEW", 0)):
        monkeypatch.setattr(f"app.events.request_pages.{name}", value)
    monkeypatch.setattr("app.events.rollups.active_hours._MOST_JOINED", 3)
    events = [
        event(
            number,
            ts=START + timedelta(minutes=20 * number),
            key_prefix=f"gl-{number % 3}",
            verdict="supported" if number % 2 else "has_unverifiable",
            status="completed" if number % 5 else "failed",
            total_ms=100.0 * (number % 7),
            trust_score=None if number % 8 == 0 else round(number % 5 / 5, 2),
            prompt_tokens=None if number % 8 == 0 else number % 6,
        )
        for number in range(40)
    ]
    assert await store(resources.database, [event_rows(each) for each in events]) == []
    first = await answer(client, "requests", limit=30, sort=sort, **params)
    assert len(first["items"]) <= 8, "all were read for one page"
    assert first["next_cursor"] is not None
    found = numbers(await everything(client, limit=30, sort=sort, **params))
    wanted = [number for number in range(40) if matches(number)]
    assert sorted(found) == wanted
    if sort == "-time":
        assert found == wanted[::-1]
    facets = await answer(client, "requests/facets", **params)
    assert (facets["total"] <= 8, facets["complete"]) == (True, False)


@pytest.mark.parametrize("walked", [False, True])
@pytest.mark.parametrize("column", ["time", "latency", "trust", "tokens"])
@pytest.mark.parametrize("sign", ["", "-"])
async def test_pages_in_any_order_have_no_gaps(
    client: httpx.AsyncClient,
    log: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    sign: str,
    walked: bool,
) -> None:
    """Both when the selection is sorted, and when it is so large that an index is read."""
    monkeypatch.setattr("app.events.request_pages.MOST_SORTED", 5 if walked else 5_000)
    name = {"time": "ts", "latency": "total_ms", "trust": "trust_score", "tokens": "total_tokens"}[column]
    items = await everything(client, sort=f"{sign}{column}")
    assert sorted(numbers(items)) == list(range(40))
    keys = [(item[name], item["request_id"]) for item in items]
    valued = [key for key in keys if key[0] is not None]
    rest = [key for key in keys if key[0] is None]
    assert keys == [*valued, *rest]
    for part in (valued, rest):
        assert part == sorted(part, reverse=bool(sign))


async def test_cursor_of_another_order_is_rejected(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    cursor = (await answer(client, "requests", limit=5, sort="-latency"))["next_cursor"]
    for sort in ("-time", "-trust", "tokens"):
        found = await client.get("/admin/v1/requests", params={"cursor": cursor, "sort": sort})
        assert found.status_code == 422, sort


async def test_large_selections_are_counted_from_rollups_where_possible(
    client: httpx.AsyncClient, log: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.analytics.request_facets.MOST_COUNTED", 10)
    facets = await answer(client, "requests/facets")
    assert (facets["total"], facets["complete"]) == (40, True)
    assert sum(each["count"] for each in facets["verdict"]["values"]) == 40
    assert (facets["key"]["complete"], sum(each["count"] for each in facets["key"]["values"])) == (False, 10)
    facets = await answer(client, "requests/facets", q="late")
    assert (facets["total"], facets["complete"]) == (10, False)


async def entries(database: Database) -> int:
    async with database.read() as connection:
        return int((await connection.execute(select(func.count()).select_from(text("request_search")))).scalar_one())


async def test_deleted_requests_leave_the_index(client: httpx.AsyncClient, log: SimpleNamespace) -> None:
    assert await entries(log.database) == 40
    await prune(log.database, START + timedelta(seconds=4), batch=3)
    assert await entries(log.database) == 24
    assert min(numbers(await everything(client, q="refund"))) == 16


async def test_event_is_indexed_once_and_only_if_texts_are_stored(resources: SimpleNamespace, event: Event) -> None:
    whole, hashed = event(0, prompt="One", reply="Two"), event(1, prompt=HASH, reply=HASH)
    for _ in range(2):
        assert await store(resources.database, [event_rows(whole), event_rows(hashed)]) == []
    assert await entries(resources.database) == 1
