"""The database is gone, locked, silent or slow, or its disk is full: replies continue, and every event is eventually
stored once. Data that ``sync`` can't store is not acknowledged."""

import asyncio
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import make_url

from app.cli.demo.content import ScriptedAnswer
from app.cli.demo.servers import bind, serving
from app.cli.demo.upstream import ScriptedUpstream
from app.db.database import Database
from app.events.storage.writer import EventWriter
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.server_process import gateway as process
from tests.support.storage.sqlite_lock import locked
from tests.system.faults.support.scripts import DOCUMENTS, TEXT
from tests.system.faults.support.tunnel import Tunnel

Start = Callable[..., Gateway]
BODY = {"model": "m", "messages": [{"role": "user", "content": "How long is the warranty?"}]}
TOKEN = "admin-token-for-tests-only"


def ask(gateway: Gateway, count: int = 3) -> list[str]:
    """The ids of ``count`` requests, all of which succeed, streamed and not."""
    ids = []
    for number in range(count):
        stream = number % 2 == 0
        gateway.upstream.script(answer(TEXT, stream=stream))
        with gateway.call({**BODY, "documents": DOCUMENTS, "stream": stream}) as call:
            told = call.read_all()
            assert call.status == 200, told
            assert b'"verdict":"supported"' in told
            ids.append(call.request_id)
    return ids


def logged_once(gateway: Gateway, ids: list[str]) -> None:
    """All of ``ids`` are in the log, as soon as possible, and no other model call."""

    def logged() -> list[str]:
        rows = gateway.rows(0)
        return sorted(row["request_id"] for row in rows if row["api"] == "chat.completions")

    eventually(lambda: set(ids) <= set(logged()) or None, "what was acknowledged", 60)
    assert logged() == sorted(ids)


def ready(gateway: Gateway) -> tuple[int, bool]:
    with gateway.call(method="GET", path="/readyz") as call:
        told = call.json()
    return call.status, told["checks"]["database"]["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["batched", "sync"])
def test_locked_file(start_gateway: Start, durability: str) -> None:
    """``sync`` waits as long as SQLite's timeout for the lock, then uses the journal instead."""
    gateway = start_gateway(event_durability=durability)
    ids = ask(gateway, 1)
    with locked(gateway.database):
        ids += ask(gateway, 2)
    logged_once(gateway, ids)


@pytest.fixture
def tunnel() -> Iterator[Tunnel]:
    """A breakable connection to PostgreSQL. Requested before the gateway, it is closed after it."""
    url = os.environ.get("GROUNDLANE_TEST_POSTGRES_URL")
    if url is None:
        pytest.skip("set GROUNDLANE_TEST_POSTGRES_URL (postgresql+asyncpg://…) to run this")
    parsed = make_url(url)
    tunnel = Tunnel(parsed.host or "127.0.0.1", parsed.port or 5432)
    yield tunnel
    tunnel.close()


@pytest.fixture
def through(tunnel: Tunnel, database_url: str) -> str:
    """The URL of a separate database, through the tunnel."""
    return make_url(database_url).set(port=tunnel.port, host="127.0.0.1").render_as_string(hide_password=False)


def break_off(tunnel: Tunnel) -> None:
    tunnel.cut()


def silence(tunnel: Tunnel) -> None:
    tunnel.hush()


@pytest.mark.postgres
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("durability", ["batched", "sync"])
@pytest.mark.parametrize("fault", [break_off, silence])
def test_unavailable_server(
    tunnel: Tunnel,
    through: str,
    start_gateway: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    durability: str,
    fault: Callable[[Tunnel], None],
) -> None:
    """Stopped or unreachable: replies continue, known policies stay in force, and health names the missing
    component. Once it is back, everything is stored."""
    monkeypatch.setitem(EventWriter.__init__.__kwdefaults__, "patience_s", 0.3)
    monkeypatch.setattr("app.runs.run_service._PATIENCE_S", 0.3)
    gateway = start_gateway(database_url=through, event_durability=durability, event_journal=str(tmp_path / "events"))
    agent = gateway.agent(retrieval={"max_source_age_days": 10})
    ids = ask(gateway, 2)
    with gateway.call({"agent": "a"}, path="/v1/runs") as call:
        run = call.json()["run_id"]
    gateway.rows(2)
    fault(tunnel)
    ids += ask(gateway, 3)
    with gateway.call({**BODY, "grounding": {"run_id": run}}) as call:
        assert call.json()["choices"][0]["message"]["content"] == TEXT
        ids.append(call.request_id)
    stale = {**BODY, "documents": [{**DOCUMENTS[0], "age_days": 400}], "grounding": {"agent": agent}}
    with gateway.call(stale) as call:
        assert (call.status, call.json()["error"]["code"]) == (400, "RETRIEVAL_STALE_SOURCE")
        ids.append(call.request_id)
    assert ready(gateway) == (200 if durability == "batched" else 503, False)
    tunnel.mend()
    eventually(lambda: ready(gateway) == (200, True) or None, "the database")
    logged_once(gateway, ids)


@pytest.mark.postgres
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_shutdown_while_the_server_is_silent(
    tunnel: Tunnel, through: str, start_gateway: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shutdown doesn't wait forever: the journal keeps acknowledged events for the next start."""
    monkeypatch.setattr("app.events.storage.writer._CLOSE_S", 0.3)
    journal = str(tmp_path / "events")
    first = Gateway(tmp_path, database_url=through, event_journal=journal).start()
    try:
        ids = ask(first, 2)
        first.rows(2)
        tunnel.hush()
        ids += ask(first, 3)
    finally:
        first.close()
    tunnel.mend()
    logged_once(start_gateway(database_url=through, event_journal=journal), ids)


@pytest.mark.postgres
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.anyio
async def test_closing_does_not_wait_for_a_silent_server(tunnel: Tunnel, through: str) -> None:
    database = Database(through)
    async with AsyncExitStack() as stack:
        for _ in range(3):  # These go back to the pool together.
            await stack.enter_async_context(database.read())
    tunnel.hush()
    async with asyncio.timeout(15):
        await database.aclose()


@pytest.mark.postgres
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("durability", ["batched", "sync"])
def test_slow_server(tunnel: Tunnel, through: str, start_gateway: Start, tmp_path: Path, durability: str) -> None:
    gateway = start_gateway(database_url=through, event_durability=durability, event_journal=str(tmp_path / "events"))
    tunnel.slow(0.05)
    ids = ask(gateway, 2)
    tunnel.mend()
    logged_once(gateway, ids)


@contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """No file of this process can grow."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["batched", "sync"])
def test_full_disk(tmp_path: Path, durability: str) -> None:
    """Neither the database nor the journal can be written. ``batched``: replies continue, and the events wait.
    ``sync``: 503, because data that isn't stored must not be acknowledged. Once there is space, both recover."""
    upstream = ScriptedUpstream([ScriptedAnswer(question="How long is the warranty?", answer=TEXT)])
    settings = {"event_durability": durability, "admin_token": TOKEN, "judge": "none"}
    with serving(upstream.app, bind(0)) as url, process(tmp_path, url, **settings) as gateway:

        def call(**fields: Any) -> httpx.Response:
            return httpx.post(f"{gateway.url}/v1/chat/completions", json={**BODY, **fields}, timeout=60)

        told = [call()]
        assert told[0].status_code == 200
        with full_disk(gateway.child.pid):
            while_full = [call(), call(stream=True)]
            gateway.wait_for("event_journal_unwritable")
        if durability == "batched":
            assert [answer.status_code for answer in while_full] == [200, 200]
            told += while_full
        else:
            whole, stream = while_full
            assert (whole.status_code, whole.json()["error"]["code"]) == (503, "event_not_stored")
            assert stream.text.endswith('"code":"event_not_stored"}}\n\ndata: [DONE]\n\n')
        told.append(eventually(lambda: answer if (answer := call()).status_code == 200 else None, "a reply"))
        ids = {answer.headers["x-groundlane-request-id"] for answer in told}
        eventually(lambda: ids <= set(stored(tmp_path)) or None, "what was acknowledged")
    assert len(stored(tmp_path)) == len(set(stored(tmp_path)))


def stored(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "groundlane.db")) as database:
        return [row[0] for row in database.execute("SELECT request_id FROM requests")]
