"""Rules fire once, are resolved, and their messages arrive, whichever worker checks them."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from sqlalchemy import select, update

from app.alerts.delivery_queue import AlertDeliveryQueue
from app.alerts.http_sender import DeliveryError
from app.alerts.measures import measure
from app.alerts.rules import AlertDocument, DestinationDocument
from app.alerts.store import AlertStore
from app.alerts.watcher import AlertWatcher
from app.auth.secrets import Vault, new_secret_key
from app.db.access_tables import audit
from app.db.alert_tables import alert_deliveries, alert_rules
from app.db.database import Database
from app.errors import ConflictError
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store as store_events
from judges.llm import PriceTable

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]
SECRET_URL = "https://hooks.example.com/T0/B0/very-secret"


class Inbox:
    """Stands in for the destinations. ``fault`` is raised instead of accepting a message."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.fault: DeliveryError | None = None

    async def send(self, url: str, body: bytes, headers: Any) -> None:
        if self.fault is not None:
            raise self.fault
        self.received.append((url, orjson.loads(body), dict(headers)))

    def types(self) -> list[str]:
        return [str(body.get("type")) for _, body, _ in self.received]


@pytest.fixture
async def alerts(open_database: Callable[[], AbstractAsyncContextManager[Database]]) -> AsyncIterator[SimpleNamespace]:
    async with open_database() as database:
        vault, inbox, seen = Vault(database, SecretStr(new_secret_key())), Inbox(), []
        store = AlertStore(database, vault)
        deliveries = AlertDeliveryQueue(database, store, inbox, seen.append)  # type: ignore[arg-type]
        watchers = [AlertWatcher(database, store, deliveries, PriceTable(), seen.append) for _ in range(2)]
        yield SimpleNamespace(
            database=database,
            store=store,
            deliveries=deliveries,
            inbox=inbox,
            seen=seen,
            watcher=watchers[0],
            watchers=watchers,
        )


async def rule(alerts: SimpleNamespace, **changes: Any) -> str:
    kind = changes.pop("kind", "webhook")
    given = {"url": SECRET_URL} if kind != "pagerduty" else {}
    document = DestinationDocument.model_validate({"name": "On call", "kind": kind, "key": "a-long-key", **given})
    destination = await alerts.store.put_destination(document)
    values = {"name": "Blocked", "metric": "blocked", "threshold": 0.5, "min_requests": 4, "cooldown_minutes": 0}
    made = await alerts.store.create(AlertDocument(**values | changes, destinations=[destination.id]))
    return str(made.id)


async def requests(alerts: SimpleNamespace, event: Event, count: int, first: int = 0, **values: Any) -> None:
    now = datetime.now(UTC) - timedelta(seconds=30)
    events = [event_rows(event(number, ts=now, **values)) for number in range(first, first + count)]
    assert await store_events(alerts.database, events) == []


async def due(alerts: SimpleNamespace) -> None:
    """Let all rules and messages be due now."""
    now = datetime.now(UTC)
    async with alerts.database.write() as connection:
        await connection.execute(update(alert_rules).values(due_at=now))
        await connection.execute(update(alert_deliveries).values(next_at=now))


async def test_rule_fires_once_and_is_resolved(alerts: SimpleNamespace, event: Event) -> None:
    id = await rule(alerts)
    await requests(alerts, event, 3, action="block")
    await alerts.watcher.run_once()
    assert alerts.inbox.received == []  # fewer than four requests
    await requests(alerts, event, 3, first=3, action="block")
    for _ in range(3):
        await due(alerts)
        await alerts.watcher.run_once()
    assert alerts.inbox.types() == ["alert.firing"]
    assert (await alerts.store.rule(id)).to_dict()["state"] == "firing"
    await requests(alerts, event, 20, first=6, action="allow")
    for _ in range(2):
        await due(alerts)
        await alerts.watcher.run_once()
    assert alerts.inbox.types() == ["alert.firing", "alert.resolved"]
    assert alerts.seen == ["firing", "sent", "resolved", "sent"]
    (firing,) = await alerts.store.firings(limit=10)
    assert (firing.value, firing.requests, firing.rule_id) == (1.0, 6, id)
    assert firing.resolved_value == pytest.approx(6 / 26)
    assert "Blocked: blocked is 100.0%, above 50.0%" in firing.summary


async def test_resolved_rule_stays_quiet_for_its_cooldown(alerts: SimpleNamespace, event: Event) -> None:
    id = await rule(alerts, cooldown_minutes=60)
    found = await alerts.store.rule(id)
    now = datetime.now(UTC)
    for minutes, value, change in ((0, 0.9, "firing"), (1, 0.1, "resolved"), (30, 0.9, None), (62, 0.9, "firing")):
        assert await alerts.store.checked(found, value, 50, now + timedelta(minutes=minutes)) == change
    assert [each.resolved_at is None for each in await alerts.store.firings(limit=10)] == [True, False]


async def test_concurrent_workers_send_one_message(alerts: SimpleNamespace, event: Event) -> None:
    await rule(alerts)
    await requests(alerts, event, 5, action="block")
    for _ in range(3):
        await due(alerts)
        await asyncio.gather(*(watcher.run_once() for watcher in alerts.watchers))
    assert alerts.inbox.types() == ["alert.firing"]


async def test_failed_message_is_retried_by_another_worker(alerts: SimpleNamespace, event: Event) -> None:
    await rule(alerts)
    await requests(alerts, event, 5, action="block")
    alerts.inbox.fault = DeliveryError("timed out")
    await alerts.watcher.run_once()
    # Resolved before the first message was sent: the messages keep their order.
    await requests(alerts, event, 20, first=5, action="allow")
    await due(alerts)
    await alerts.watcher.run_once()
    alerts.inbox.fault = None
    for _ in range(2):
        await due(alerts)
        await alerts.watchers[1].run_once()
    assert alerts.inbox.types() == ["alert.firing", "alert.resolved"]
    assert alerts.seen == ["firing", "retried", "resolved", "retried", "sent", "sent"]


@pytest.mark.parametrize("permanent", [True, False])
async def test_message_is_given_up_after_the_last_retry(alerts: SimpleNamespace, event: Event, permanent: bool) -> None:
    await rule(alerts)
    await requests(alerts, event, 5, action="block")
    alerts.inbox.fault = DeliveryError("HTTP status 410", permanent=permanent)
    for _ in range(8):
        await due(alerts)
        await alerts.watcher.run_once()
    (firing,) = await alerts.store.firings(limit=1)
    (delivery,) = (await alerts.store.deliveries([firing.id]))[firing.id]
    assert (delivery["status"], delivery["error"]) == ("failed", "HTTP status 410")
    assert delivery["attempts"] == (1 if permanent else 6)


async def test_changed_or_deleted_rule_is_resolved(alerts: SimpleNamespace, event: Event) -> None:
    id = await rule(alerts)
    await requests(alerts, event, 5, action="block")
    await alerts.watcher.run_once()
    document = (await alerts.store.rule(id)).document
    await alerts.store.replace(id, document.model_copy(update={"threshold": 0.6}))
    await alerts.watcher.run_once()
    await alerts.store.delete(id)
    await alerts.watcher.run_once()
    assert alerts.inbox.types() == ["alert.firing", "alert.resolved", "alert.firing", "alert.resolved"]
    assert await alerts.store.rules() == []


async def test_disabled_rule_is_not_checked(alerts: SimpleNamespace, event: Event) -> None:
    await rule(alerts, enabled=False)
    await requests(alerts, event, 5, action="block")
    await alerts.watcher.run_once()
    assert alerts.seen == []


@pytest.mark.parametrize("kind", ["webhook", "slack", "pagerduty"])
async def test_each_kind_of_destination_gets_its_format(alerts: SimpleNamespace, event: Event, kind: str) -> None:
    await rule(alerts, kind=kind, name="<Blocked> & more")
    await requests(alerts, event, 5, action="block")
    await alerts.watcher.run_once()
    ((url, body, headers),) = alerts.inbox.received
    match kind:
        case "webhook":
            assert (url, body["name"], body["value"]) == (SECRET_URL, "<Blocked> & more", 1.0)
            time, _, signature = headers["X-Groundlane-Signature"].removeprefix("t=").partition(",v1=")
            signed = hmac.new(b"a-long-key", f"{time}.".encode() + orjson.dumps(body), hashlib.sha256)
            assert signature == signed.hexdigest()
        case "slack":
            assert list(body) == ["text"]
            assert "&lt;Blocked&gt; &amp; more: blocked is 100.0%" in body["text"]
        case _:
            assert url == "https://events.pagerduty.com/v2/enqueue"
            assert (body["routing_key"], body["event_action"]) == ("a-long-key", "trigger")
            assert body["payload"]["severity"] == "error"
            assert body["dedup_key"].startswith("fir_")


async def test_secrets_are_stored_only_encrypted(alerts: SimpleNamespace, event: Event) -> None:
    await rule(alerts)
    alerts.inbox.fault = DeliveryError("timed out")
    await requests(alerts, event, 5, action="block")
    await alerts.watcher.run_once()
    async with alerts.database.read() as connection:
        for table in (alert_rules, alert_deliveries, audit):
            assert "very-secret" not in str((await connection.execute(select(table))).all())
    assert "very-secret" not in repr(DestinationDocument(name="n", kind="slack", url=SecretStr(SECRET_URL)))


METRICS: list[tuple[str, dict[str, Any], dict[str, Any], float]] = [
    ("blocked", {"action": "block"}, {"action": "allow"}, 0.25),
    ("contradicted", {"verdict": "has_contradictions"}, {"verdict": "supported"}, 0.25),
    ("unjudged", {"verdict": "not_checked"}, {"verdict": "supported"}, 0.25),
    ("judge_errors", {"extra": {"judge_fault": "no model"}}, {}, 0.25),
    ("upstream_errors", {"status": "failed"}, {"status": "completed"}, 0.25),
    ("trust", {"trust_score": 0.2}, {"trust_score": 0.6}, 0.5),
    ("latency_p95_ms", {"total_ms": 900.0}, {"total_ms": 100.0}, 900.0),
    ("cost_usd", {"model": "gpt-4o"}, {"model": "gpt-4o"}, 4 * 0.0075),
]


@pytest.mark.parametrize(("metric", "one", "others", "value"), METRICS, ids=[metric for metric, *_ in METRICS])
async def test_metrics_of_rules_are_measured(
    alerts: SimpleNamespace, event: Event, metric: str, one: Any, others: Any, value: float
) -> None:
    tokens = {"prompt_tokens": 1_000, "completion_tokens": 500, "agent": "a"}
    await requests(alerts, event, 1, **tokens | one)
    await requests(alerts, event, 3, first=1, **tokens | others)
    await requests(alerts, event, 9, first=4, **tokens | {"agent": "b"})
    document = AlertDocument(name="n", metric=metric, threshold=0.1, agent="a")  # type: ignore[arg-type]
    assert await measure(alerts.database, PriceTable(), document, datetime.now(UTC)) == (pytest.approx(value), 4)
    nobody = document.model_copy(update={"agent": "nobody"})
    assert await measure(alerts.database, PriceTable(), nobody, datetime.now(UTC)) == (None, 0)


async def test_refused_change_of_a_destination_keeps_its_secrets(alerts: SimpleNamespace) -> None:
    await rule(alerts)
    pager = DestinationDocument(name="Pager", kind="pagerduty", key=SecretStr("another-long-key"))
    kept = await alerts.store.put_destination(pager)
    taken = DestinationDocument(name="On call", kind="webhook", url=SecretStr(SECRET_URL))
    with pytest.raises(ConflictError, match="'On call' already exists"):
        await alerts.store.put_destination(taken, kept.id)
    assert alerts.store.access(kept.id) == pager.access()
    assert (await alerts.store.destination(kept.id)).kind == "pagerduty"
