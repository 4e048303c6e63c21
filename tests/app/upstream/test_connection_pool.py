"""Connections are kept, shared, limited and closed; waiting requests get one in order, and none is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import httpx
import pytest

from tests.support.gateways.mock_upstream import closed_port
from tests.support.gateways.upstream_client import HEAD, STREAM, Server, client, loops, says, serving, until

pytestmark = [pytest.mark.anyio, loops]


@dataclass
class Gated:
    """Answers requests one at a time, as scripted."""

    let: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        await self.let.acquire()
        writer.write(HEAD + b"ok")


def asked(server: Server, times: int) -> bool:
    return len(server.heads) == times


async def test_pool_limit_is_kept_and_no_connection_idles_while_one_waits() -> None:
    gate = Gated()
    async with serving(gate) as server, client(connections=2) as http, asyncio.TaskGroup() as group:
        tasks = [group.create_task(http.get(server.url)) for _ in range(7)]
        for done in range(7):
            await until(partial(asked, server, min(7, done + 2)))
            gate.let.release()
        assert [task.result().text for task in tasks if await task] == ["ok"] * 7
    assert server.connections == 2


async def test_waiting_requests_are_served_in_order() -> None:
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


async def test_cancelled_waiter_takes_no_connection() -> None:
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


async def test_waiting_for_a_connection_times_out() -> None:
    async with serving(says(STREAM)) as server, client(connections=1, connect=0.1, first_byte=0.3) as http:
        async with http.stream("GET", server.url):
            began = asyncio.get_running_loop().time()
            assert issubclass(await fails_with(http, server.url), httpx.TimeoutException)
            assert asyncio.get_running_loop().time() - began < 3
        assert len(server.heads) == 1


async def fails_with(http: httpx.AsyncClient, url: str) -> type[Exception]:
    with pytest.raises(httpx.TransportError) as caught:
        await http.get(url)
    return caught.type


async def test_failed_connection_attempt_frees_its_slot() -> None:
    async with serving(says(HEAD, b"ok")) as server, client(connections=1) as http:
        for _ in range(3):
            assert await fails_with(http, f"http://127.0.0.1:{closed_port()}") is httpx.ConnectError
        assert (await http.get(server.url)).text == "ok"


# A connection that the upstream closed while it was idle


@asynccontextmanager
async def closing_after(requests: int) -> AsyncIterator[Server]:
    """A server that closes each connection at the request after a given number, before any byte of the answer."""
    server = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for _ in range(requests):
                server.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(HEAD if server.heads[-1].startswith(b"HEAD") else HEAD + b"ok")
            server.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
async def test_repeatable_request_is_sent_once_more_on_another_connection(method: str) -> None:
    async with closing_after(1) as server, client() as http:
        assert (await http.get(server.url)).text == "ok"
        assert (await http.request(method, server.url)).status_code == 200
    assert (server.connections, len(server.heads)) == (2, 3)


async def test_unrepeatable_request_is_not_sent_again() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"x"

    async with closing_after(1) as server, client() as http:
        for method in ("POST", "PUT"):
            assert (await http.get(server.url)).text == "ok"
            with pytest.raises(httpx.ReadError):
                await http.request(method, server.url, content=pieces())


async def test_unrepeatable_request_on_a_new_connection_is_not_sent_again() -> None:
    async with closing_after(0) as server, client() as http:
        with pytest.raises(httpx.ReadError):
            await http.post(server.url)
    assert (server.connections, len(server.heads)) == (1, 1)


@dataclass
class DyingOnReuse:
    """Answers the first request on a connection, and closes the connection at the second, after sending ``last``."""

    last: bytes = b""
    served: set[asyncio.StreamWriter] = field(default_factory=set)

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        if writer in self.served:
            writer.write(self.last)
            writer.close()
            return
        self.served.add(writer)
        writer.write(HEAD + b"ok")


@pytest.mark.parametrize("size", [2, 2_000_000])
@pytest.mark.parametrize("kept", [1, 3])
async def test_dead_kept_connection_is_replaced(kept: int, size: int) -> None:
    async with serving(DyingOnReuse()) as server, client() as http:
        await asyncio.gather(*(http.post(server.url, content=b"{}") for _ in range(kept)))
        opened = server.connections
        response = await http.post(server.url, content=b"x" * size)
    assert (response.text, server.connections) == ("ok", opened + 1)
    assert [len(body) for body in server.bodies].count(size) >= 1


async def test_connection_lost_after_the_first_byte_is_not_replaced() -> None:
    async with serving(DyingOnReuse(last=b"H")) as server, client() as http:
        await http.post(server.url, content=b"{}")
        with pytest.raises(httpx.TransportError):
            await http.post(server.url, content=b"{}")
    assert server.connections == 1


async def test_new_connection_lost_before_its_first_response_is_not_replaced() -> None:
    async def end(writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with serving(end) as server, client() as http:
        with pytest.raises(httpx.TransportError):
            await http.post(server.url, content=b"{}")
    assert server.connections == 1
