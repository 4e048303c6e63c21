"""One connection: sending, receiving, backpressure, and closing."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest

from tests.support.gateways.upstream_client import HEAD, STREAM, Answer, Server, client, loops, says, serving, until

pytestmark = [pytest.mark.anyio, loops]

MIB = 1024 * 1024
TOO_LARGE = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"
LONG = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


def head_of(reply: bytes) -> bytes:
    return b"HTTP/1.1 " + reply + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "reply", "status"),
    [
        ("HEAD", b"200 OK\r\ncontent-length: 5", 200),
        ("GET", b"204 No Content", 204),
        ("GET", b"304 Not Modified\r\ncontent-length: 5", 304),
        ("POST", b"200 OK\r\ncontent-length: 0", 200),
        ("GET", b"103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 204 No Content", 204),
    ],
)
async def test_response_without_a_body_leaves_its_connection_reusable(method: str, reply: bytes, status: int) -> None:
    async with serving(says(head_of(reply))) as server, client() as http:
        for _ in range(3):
            response = await http.request(method, server.url)
            assert (response.status_code, response.content) == (status, b"")
    assert server.connections == 1


@pytest.mark.parametrize("length", [b"content-length: 4", b"transfer-encoding: chunked"])
async def test_body_of_a_204_does_not_reach_the_next_response(length: bytes) -> None:
    asked: list[int] = []
    received = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter) -> None:
        asked.append(1)
        if len(asked) > 1:
            writer.write(HEAD + b"ok")
            return
        writer.write(head_of(b"204 No Content\r\n" + length))
        await received.wait()
        writer.write(b"body")

    async with serving(answer) as server, client() as http:
        assert (await http.get(server.url)).status_code == 204
        received.set()
        assert (await http.get(server.url)).text == "ok"
    assert server.connections == 2


@pytest.mark.parametrize(
    "reply",
    [
        HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + b"ok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        HEAD + b"ok" + HEAD + b"no",
    ],
    ids=["close", "http/1.0", "a second answer"],
)
async def test_connection_not_to_be_reused_is_closed(reply: bytes) -> None:
    async with serving(says(reply)) as server, client() as http:
        for _ in range(2):
            assert (await http.get(server.url)).text == "ok"
            await asyncio.wait_for(server.gone.wait(), 5)
            server.gone.clear()
    assert server.connections == 2


@pytest.mark.parametrize("rest", [b" garbage", b"\0"])
async def test_garbage_after_a_response_closes_the_connection(rest: bytes) -> None:
    async with serving(says(HEAD + b"ok" + rest)) as server, client() as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(server.url)
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_unsolicited_response_is_never_delivered() -> None:
    unasked = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"ok")
        await unasked.wait()
        writer.write(HEAD + b"no")

    async with serving(answer) as server, client() as http:
        assert (await http.get(server.url)).text == "ok"
        unasked.set()
        await asyncio.sleep(0.1)
        for _ in range(2):
            assert (await http.get(server.url)).text == "ok"
        assert server.connections > 1


async def test_body_can_end_with_its_connection() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of ")
        writer.write(b"it")
        writer.close()

    async with serving(answer) as server, client() as http:
        assert (await http.get(server.url)).text == "all of it"


async def test_data_before_a_lost_connection_is_read_first() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + b"5\r\nfirst\r\n3\r\nha")
        writer.close()

    async with serving(answer) as server, client() as http, http.stream("GET", server.url) as response:
        await asyncio.wait_for(server.gone.wait(), 5)
        await asyncio.sleep(0.05)
        assert await rest_of(response.aiter_raw()) == (b"firstha", httpx.ReadError)


async def rest_of(body: AsyncIterator[bytes]) -> tuple[bytes, type[Exception] | None]:
    """The received data, and the error that ends it."""
    got = b""
    try:
        async for data in body:
            got += data
    except httpx.HTTPError as error:
        return got, type(error)
    return got, None


async def test_body_is_delivered_in_pieces() -> None:
    more = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + b"3\r\none\r\n")
        await more.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with serving(answer) as server, client() as http, http.stream("GET", server.url) as response:
        body = response.aiter_raw()
        assert await anext(body) == b"one"
        more.set()
        assert [data async for data in body] == [b"two"]


@pytest.mark.parametrize("size", [1, 64 * 1024, 64 * 1024 + 1, 5 * MIB])
async def test_whole_body_of_any_size_is_sent(size: int) -> None:
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        for _ in range(2):
            await http.post(server.url, content=b"x" * size)
    assert (server.connections, [len(body) for body in server.bodies]) == (1, [size] * 2)


# Each side can be slower than the other


async def flooded(writer: asyncio.StreamWriter) -> int:
    """How much of a long answer the peer has read when it stops reading."""
    total = 64 * MIB
    writer.write(LONG % total)
    piece = b"x" * 65_536
    taken = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        while taken < total:
            writer.write(piece)
            taken += len(piece)
            await asyncio.wait_for(writer.drain(), 0.5)
    return taken


async def test_unread_response_applies_back_pressure_without_a_timeout() -> None:
    taken: list[int] = []
    waits = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter) -> None:
        taken.append(await flooded(writer))
        waits.set()

    patience = client(between_bytes=0.3)
    async with serving(answer) as server, patience as http, http.stream("GET", server.url) as response:
        body = response.aiter_raw()
        first = len(await anext(body))
        await asyncio.wait_for(waits.wait(), 20)
        assert taken[0] < 32 * MIB  # the kernel's buffers and a little of ours
        rest, error = await rest_of(body)
    assert first + len(rest) >= taken[0] - 65_536
    assert error is httpx.ReadTimeout  # once all sent data was read, the upstream is silent


async def test_upload_waits_for_a_slow_upstream() -> None:
    given = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(1_000):
            given += 65_536
            yield b"x" * 65_536

    async with stuck() as server, client(first_byte=0.3) as http:
        with pytest.raises(httpx.WriteTimeout):
            await http.post(server.url, content=pieces())
    assert given < 32 * MIB


async def test_upload_resumes_when_the_upstream_reads_on() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(128):
            yield b"x" * 65_536

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.write(HEAD + b"ok")
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=16 * MIB)
    async with client() as http:
        response = await http.post(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", content=pieces())
        assert response.text == "ok"
    listening.close()


@contextlib.asynccontextmanager
async def stuck() -> AsyncIterator[Server]:
    """A server that accepts connections and reads nothing."""
    leave = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast(asyncio.Transport, writer.transport).pause_reading()
        await leave.wait()
        writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Server(port=listening.sockets[0].getsockname()[1])
    finally:
        leave.set()
        listening.close()


async def test_response_ends_an_unfinished_upload() -> None:
    refused = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.wait_for(refused.wait(), 5)
        await asyncio.sleep(0.05)
        for _ in range(1_000):
            yield b"x" * 65_536

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"first")
        writer.write(TOO_LARGE)
        await writer.drain()
        refused.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with client() as http:
        response = await http.post(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", content=pieces())
        assert (response.status_code, response.text) == (413, "no")
    listening.close()


@pytest.mark.parametrize(
    ("reply", "status"), [(b"HTTP/1.1 413 Large\r\ncontent-length: 2\r\n\r\nno", 413), (b"", None)]
)
async def test_response_is_read_before_the_upload_ends(reply: bytes, status: int | None) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"first")
        writer.write(reply)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with client() as http:
        sending = asyncio.wait_for(http.post(url, content=pieces()), 5)
        if status is None:
            with pytest.raises(httpx.ReadError):
                await sending
        else:
            assert (await sending).status_code == status
    listening.close()


async def test_failed_upload_closes_its_connection() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError("the client went away")

    async with serving(says(HEAD, b"ok")) as server, client() as http:
        with pytest.raises(RuntimeError):
            await http.post(server.url, content=pieces())
        await asyncio.wait_for(server.gone.wait(), 5)
        assert (await http.get(server.url)).text == "ok"


# Time


async def test_upload_failure_after_the_response_is_ignored() -> None:
    """When a client disconnects, its body breaks off, and its request is cancelled."""
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    gone, asked = loop.create_future(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        asked.set()
        await gone

    async with serving(says(HEAD, b"ok")) as server, client() as http:
        asking = asyncio.ensure_future(http.post(server.url, content=body()))
        await asked.wait()
        gone.set_exception(OSError("the client is gone"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    del asking
    gc.collect()
    assert told == []


async def test_bytes_outside_the_body_do_not_count_as_the_first_byte() -> None:
    async def drips(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + b"2")
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)

    async with serving(drips) as server, client(first_byte=0.2) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(server.url)
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_total_time_may_exceed_the_silence_limit() -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        for _ in range(6):
            await asyncio.sleep(0.1)
            writer.write(b"1\r\nx\r\n")
        writer.write(b"0\r\n\r\n")

    async with serving(slowly) as server, client(first_byte=0.4, between_bytes=0.4) as http:
        assert (await http.get(server.url)).text == "xxxxxx"


async def test_timeouts_restart_with_each_request() -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15)
        writer.write(HEAD + b"ok")

    async with serving(slowly) as server, client(first_byte=0.4, between_bytes=0.4) as http:
        for _ in range(5):
            assert (await http.get(server.url)).text == "ok"
    assert server.connections == 1


# Ends


async def stalls(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + b"2\r\nok\r\n")


@pytest.mark.parametrize(
    "answer", [says(), says(b"HTTP/1.1 200"), says(STREAM), stalls], ids=["-", "half", "head", "body"]
)
async def test_cancelling_at_any_point_closes_the_connection(answer: Answer) -> None:
    async with serving(answer) as server, client() as http:
        task = asyncio.ensure_future(http.get(server.url))
        await until(lambda: bool(server.heads))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_closing_a_reply_ends_a_pending_read() -> None:
    async with serving(stalls) as server, client() as http, http.stream("GET", server.url) as response:
        body = aiter(response.stream)
        assert await anext(body) == b"ok"
        reading = asyncio.ensure_future(anext(body))
        await asyncio.sleep(0.05)
        assert not reading.done()
        await response.aclose()
        with pytest.raises(httpx.ReadError):
            await asyncio.wait_for(reading, 5)
        await response.aclose()


async def test_buffered_reply_survives_reuse_of_its_connection() -> None:
    async with serving(says(HEAD, b"ok")) as server, client() as http, http.stream("GET", server.url) as first:
        while True:
            await asyncio.sleep(0.01)
            if (await http.get(server.url)).text == "ok" and server.connections == 1:
                break
        assert await first.aread() == b"ok"
