"""Connections are kept, shared, limited and ended; who waits gets one in turn, and nothing is lost on the way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import httpx
import pytest

from app.config import Timeouts
from app.upstream.http.address import Origin
from app.upstream.http.connect import dial, trust
from app.upstream.http.connection import Connection, Owner
from app.upstream.http.pool import Pool
from tests.support.upstream_client import HEAD, STREAM, Server, client, loops, says, serving, until

pytestmark = [pytest.mark.anyio, loops]


@asynccontextmanager
async def pool_to(
    server: Server,
    *,
    limit: int = 2,
    patience: float = 5.0,
    kept_s: float = 60.0,
    meanwhile: Callable[[Connection], Awaitable[None]] | None = None,
) -> AsyncIterator[Pool]:
    """``meanwhile``: happens while a connection is made."""
    timeouts = Timeouts(connect=5.0, first_byte=5.0, between_bytes=5.0)

    async def connect(owner: Owner) -> Connection:
        origin = Origin(tls=False, host="127.0.0.1", port=server.port)
        made = await dial(origin, lambda: Connection(owner, timeouts=timeouts), timeout=5.0, tls=trust())
        if meanwhile is not None:
            await meanwhile(made)
        return made

    pool = Pool(connect, limit=limit, patience=patience, kept_s=kept_s)
    try:
        yield pool
    finally:
        await pool.aclose()


REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@dataclass
class Gated:
    """Answers the requests one by one, as it is told to."""

    let: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        await self.let.acquire()
        writer.write(HEAD + b"ok")


def asked(server: Server, times: int) -> bool:
    return len(server.heads) == times


async def test_no_more_connections_are_made_than_there_may_be_and_none_is_left_idle_while_one_waits() -> None:
    gate = Gated()
    async with serving(gate) as server, client(connections=2) as http, asyncio.TaskGroup() as group:
        tasks = [group.create_task(http.get(server.url)) for _ in range(7)]
        for done in range(7):
            await until(partial(asked, server, min(7, done + 2)))
            gate.let.release()
        assert [task.result().text for task in tasks if await task] == ["ok"] * 7
    assert server.connections == 2


async def test_who_came_first_is_served_first() -> None:
    gate = Gated()
    order: list[int] = []
    async with serving(gate) as server, client(connections=1) as http, asyncio.TaskGroup() as group:

        async def one(number: int) -> None:
            await http.get(server.url)
            order.append(number)

        for number in range(6):
            group.create_task(one(number))
            await asyncio.sleep(0.01)
        for _ in range(6):
            gate.let.release()
    assert (order, server.connections) == (list(range(6)), 1)


async def test_who_is_cancelled_while_waiting_takes_nothing_along() -> None:
    gate = Gated()
    async with serving(gate) as server, client(connections=1) as http, asyncio.TaskGroup() as group:
        tasks = [group.create_task(http.get(server.url)) for _ in range(4)]
        await until(partial(asked, server, 1))
        await asyncio.sleep(0.02)
        tasks[1].cancel()
        gate.let.release()
        await tasks[0]
        tasks[2].cancel()
        gate.let.release()
        gate.let.release()
        assert (await asyncio.wait_for(tasks[3], 5)).text == "ok"


async def test_what_is_given_to_one_who_is_cancelled_at_that_moment_goes_to_the_next() -> None:
    async with serving(says(HEAD, b"ok")) as server, pool_to(server, limit=1) as pool, asyncio.TaskGroup() as group:
        first = await pool.connect()
        waiting = [group.create_task(pool.connect()) for _ in range(2)]
        await asyncio.sleep(0)
        pool.release(first)
        waiting[0].cancel()
        assert await asyncio.wait_for(waiting[1], 5) is first


async def test_a_slot_that_is_given_to_one_who_is_cancelled_at_that_moment_goes_to_the_next() -> None:
    async with serving(says(HEAD, b"ok")) as server, pool_to(server, limit=1) as pool, asyncio.TaskGroup() as group:
        first = await pool.connect()
        waiting = [group.create_task(pool.connect()) for _ in range(2)]
        await asyncio.sleep(0)
        first.abort()
        for _ in iter(lambda: first.is_lost, True):
            await asyncio.sleep(0)
        waiting[0].cancel()
        assert (await asyncio.wait_for(waiting[1], 5)).is_open


async def test_one_that_breaks_on_its_way_to_who_waits_is_made_up_for() -> None:
    async with serving(says(HEAD, b"ok")) as server, pool_to(server, limit=1) as pool, asyncio.TaskGroup() as group:
        first = await pool.connect()
        waiting = [group.create_task(pool.connect()) for _ in range(2)]
        await asyncio.sleep(0)
        pool.release(first)
        first.abort()
        second = await asyncio.wait_for(waiting[0], 5)
        assert second is not first
        assert not waiting[1].done()
        pool.release(second)
        assert await asyncio.wait_for(waiting[1], 5) is second


async def test_waiting_for_a_connection_has_a_limit() -> None:
    async with serving(says(HEAD, b"ok")) as server, pool_to(server, limit=1, patience=0.05) as pool:
        first = await pool.connect()
        with pytest.raises(httpx.PoolTimeout):
            await pool.connect()
        pool.release(first)
        assert pool.idle() is first


async def test_a_connection_that_is_not_made_frees_its_slot() -> None:
    async with serving(says(HEAD, b"ok")) as server, pool_to(server, limit=1) as pool:
        port, server.port = server.port, 1
        for _ in range(3):
            with pytest.raises(httpx.ConnectError):
                await pool.connect()
        server.port = port
        assert (await pool.connect()).is_open


@pytest.mark.parametrize("lost", [True, False])
async def test_a_connection_that_breaks_while_it_is_made_frees_its_slot(lost: bool) -> None:
    async def breaks(connection: Connection) -> None:
        connection.abort()
        if lost:
            await until(lambda: connection.is_lost)

    async with serving(says(HEAD, b"ok")) as server, pool_to(server, limit=1, meanwhile=breaks) as pool:
        for _ in range(3):
            with pytest.raises(httpx.ConnectError):
                await pool.connect()


async def test_a_connection_that_is_made_while_all_are_closed_is_closed_too() -> None:
    closing: list[Pool] = []

    async def closes(_connection: Connection) -> None:
        await closing[0].aclose()

    async with serving(says(HEAD, b"ok")) as server, pool_to(server, meanwhile=closes) as pool:
        closing.append(pool)
        with pytest.raises(httpx.ConnectError):
            await pool.connect()
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_a_connection_that_was_idle_for_long_is_closed_and_a_younger_one_stays() -> None:
    async with serving(says(HEAD, b"ok")) as server, pool_to(server, kept_s=0.2) as pool:
        old, young = await pool.connect(), await pool.connect()
        pool.release(old)
        await asyncio.sleep(0.12)
        pool.release(young)
        await asyncio.wait_for(server.gone.wait(), 5)
        assert (old.is_open, young.is_open) == (False, True)
        await asyncio.sleep(0.2)
        assert (young.is_open, pool.idle()) == (False, None)


async def test_the_one_used_last_is_used_first() -> None:
    async with serving(says(HEAD, b"ok")) as server, pool_to(server) as pool:
        first, second = await pool.connect(), await pool.connect()
        pool.release(first)
        pool.release(second)
        assert (pool.idle(), pool.idle(), pool.idle()) == (second, first, None)


async def test_closing_ends_idle_ones_busy_ones_and_the_wait_of_others() -> None:
    async with serving(says(STREAM)) as server, pool_to(server) as pool, asyncio.TaskGroup() as group:
        idle, busy = await pool.connect(), await pool.connect()

        async def fails() -> type[Exception]:
            with pytest.raises(httpx.TransportError) as caught:
                await pool.connect()
            return caught.type

        waiting = group.create_task(fails())
        answer = await busy.ask(REQUEST, b"")
        await asyncio.sleep(0)
        assert not waiting.done()
        await pool.aclose()
        assert (idle.is_lost, busy.is_lost, await waiting) == (True, True, httpx.ConnectError)
        with pytest.raises(httpx.ReadError):
            await answer.read()
        with pytest.raises(httpx.ConnectError):
            await pool.connect()
        await pool.aclose()


# A connection that the upstream closed while it was idle


@asynccontextmanager
async def closing_after(requests: int) -> AsyncIterator[Server]:
    """A server each of whose connections ends at the request after so many, before any of its answer."""
    server = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for _ in range(requests):
                server.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(HEAD + b"ok")
            server.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
async def test_a_request_that_may_be_repeated_is_sent_once_more_on_another_connection(method: str) -> None:
    async with closing_after(1) as server, client() as http:
        assert (await http.get(server.url)).text == "ok"
        assert (await http.request(method, server.url)).status_code == 200
    assert (server.connections, len(server.heads)) == (2, 3)


async def test_one_that_may_not_be_repeated_is_not() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"x"

    async with closing_after(1) as server, client() as http:
        for method, content in (("POST", b""), ("PUT", pieces())):
            assert (await http.get(server.url)).text == "ok"
            with pytest.raises(httpx.ReadError):
                await http.request(method, server.url, content=content)


async def test_a_first_request_on_a_connection_is_never_repeated() -> None:
    async with closing_after(0) as server, client() as http:
        with pytest.raises(httpx.ReadError):
            await http.get(server.url)
    assert server.connections == 1
