"""The transport against a server written by hand: bytes as they are, each timeout apart, failures by their names."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.upstream_client import HEAD, STREAM, Answer, client, closed_port, loops, says, serving

pytestmark = [pytest.mark.anyio, loops]


@pytest.mark.parametrize(
    "target",
    [b"/v1/files/a%2Fb", b"/v1/x?after=file%2Fb%20c&d=%2b+", b"/v1/x?a=%e4%C3&b=%41", b"/v1/a%7Eb/../c//d?q=a,b;c:d@e"],
)
async def test_path_and_query_go_out_byte_by_byte(target: bytes) -> None:
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        response = await http.get(server.url, extensions={"target": target})
    assert response.text == "ok"
    assert server.heads[0].split(b" ")[1] == target


async def test_without_a_target_the_url_is_sent() -> None:
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        await http.get(f"{server.url}/a%2Fb?c=%2F")
    assert server.heads[0].startswith(b"GET /a%2Fb?c=%2F HTTP/1.1\r\n")


async def test_headers_go_out_as_given_and_nothing_is_made_up() -> None:
    headers = [(b"x-a", b"1"), (b"x-a", b"2"), (b"x-name", "Jürgen".encode())]
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        http.headers.clear()
        await http.post(server.url, headers=headers, content=b"{}")
    lines = server.heads[0].split(b"\r\n")[1:-2]
    assert [line for line in lines if line.startswith(b"x-")] == [b"x-a: 1", b"x-a: 2", "x-name: Jürgen".encode()]
    assert {line.partition(b":")[0].lower() for line in lines} == {b"host", b"content-length", b"x-a", b"x-name"}


async def test_status_headers_and_encoded_body_come_as_they_are() -> None:
    reply = (
        b"HTTP/1.1 418 Teapot\r\nX-A: 1\r\nx-a: 2\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x00"
    )
    async with serving(says(reply)) as server, client() as http, http.stream("GET", server.url) as response:
        assert (response.status_code, response.headers.get_list("x-a")) == (418, ["1", "2"])
        assert b"".join([data async for data in response.aiter_raw()]) == b"\x1f\x8b\x00"


async def test_an_upload_streams() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first,"
        yield b"second"

    async with serving(says(HEAD, b"ok")) as server, client() as http:
        await http.post(server.url, content=pieces())
    assert server.bodies == [b"first,second"]
    assert server.heads[0].lower().count(b"transfer-encoding") == 1


async def test_an_upload_may_take_longer_than_the_first_byte() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(4):
            await asyncio.sleep(0.1)
            yield b"x"

    async with serving(says(HEAD, b"ok")) as server, client(first_byte=0.25) as http:
        assert (await http.post(server.url, content=slowly())).text == "ok"


async def test_connections_are_used_again_once_a_reply_was_read() -> None:
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        for _ in range(3):
            await http.get(server.url)
    assert (server.connections, len(server.heads)) == (1, 3)


async def test_closing_an_unread_reply_closes_its_connection_at_once() -> None:
    async with serving(says(STREAM, b"2\r\nok\r\n")) as server, client() as http:
        async with http.stream("GET", server.url) as response:
            assert await anext(response.aiter_raw()) == b"ok"
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_cancelling_the_wait_for_a_reply_closes_its_connection_at_once() -> None:
    asked = asyncio.Event()

    async def never(_writer: asyncio.StreamWriter) -> None:
        asked.set()

    async with serving(never) as server, client() as http, asyncio.TaskGroup() as group:
        task = group.create_task(http.get(server.url))
        await asyncio.wait_for(asked.wait(), 5)
        task.cancel()
        await asyncio.wait_for(server.gone.wait(), 5)


async def fails(answer: Answer, *, first_byte: float = 5.0, between_bytes: float = 5.0) -> type[Exception]:
    patience = client(first_byte=first_byte, between_bytes=between_bytes)
    async with serving(answer) as server, patience as http:
        with pytest.raises(httpx.HTTPError) as caught:
            await http.get(server.url)
    return type(caught.value)


async def test_no_head_in_time_is_a_timeout() -> None:
    assert await fails(says(), first_byte=0.05) is httpx.ReadTimeout


async def test_a_head_without_a_first_byte_in_time_is_a_timeout() -> None:
    assert await fails(says(STREAM), first_byte=0.05) is httpx.ReadTimeout


async def test_the_time_for_the_first_byte_is_one_for_head_and_body_together() -> None:
    async def late_head(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(STREAM)

    started = asyncio.get_running_loop().time()
    assert await fails(late_head, first_byte=0.6) is httpx.ReadTimeout
    assert asyncio.get_running_loop().time() - started < 1.0


async def test_silence_after_the_first_byte_is_timed_apart() -> None:
    assert await fails(says(STREAM, b"2\r\nok\r\n"), between_bytes=0.05) is httpx.ReadTimeout


async def test_a_late_first_byte_may_be_followed_by_a_short_patience() -> None:
    async def late(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await asyncio.sleep(0.3)
        writer.write(b"2\r\nok\r\n0\r\n\r\n")

    async with serving(late) as server, client(first_byte=5.0, between_bytes=0.2) as http:
        assert (await http.get(server.url)).text == "ok"


async def test_a_next_request_on_the_same_connection_has_its_own_time() -> None:
    async with serving(says(HEAD, b"ok")) as server, client(first_byte=0.05, between_bytes=0.05) as http:
        await http.get(server.url)
        await asyncio.sleep(0.1)
        assert (await http.get(server.url)).text == "ok"
    assert server.connections == 1


async def test_nobody_there_is_a_connect_error() -> None:
    async with client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"http://127.0.0.1:{closed_port()}")


async def test_a_name_that_does_not_resolve_is_a_connect_error() -> None:
    async with client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://name.invalid")


async def test_a_connection_that_is_not_made_in_time_is_a_connect_timeout() -> None:
    # A full backlog: the kernel leaves further connections waiting.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.socket() as one, socket.socket() as two:
            for sock in (one, two):
                sock.setblocking(False)
                sock.connect_ex(full.getsockname())
            async with client(connect=0.1) as http:
                with pytest.raises(httpx.ConnectTimeout):
                    await http.get(f"http://127.0.0.1:{full.getsockname()[1]}")


async def hangs_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def resets(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.mark.parametrize("answer", [hangs_up, resets])
async def test_a_connection_lost_before_the_head_is_a_read_error(answer: Answer) -> None:
    assert await fails(answer) is httpx.ReadError


async def test_a_connection_lost_in_the_body_is_a_read_error() -> None:
    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"o")
        writer.close()

    assert await fails(half) is httpx.ReadError


async def test_what_is_not_http_is_a_protocol_error() -> None:
    assert await fails(says(b"SMTP ready\r\n\r\n")) is httpx.RemoteProtocolError


@pytest.mark.parametrize(("from_env", "requests"), [(True, 1), (False, 0)])
async def test_a_proxy_of_the_environment_is_used_only_where_asked_for(
    monkeypatch: pytest.MonkeyPatch, from_env: bool, requests: int
) -> None:
    target = f"http://127.0.0.1:{closed_port()}/v1/x%2Fy"
    async with serving(says(HEAD, b"ok")) as proxy, client(from_env=from_env) as http:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "other.test")
        with contextlib.suppress(httpx.ConnectError):
            await http.get(target)
    assert [head.split(b" ")[1] for head in proxy.heads] == [target.encode()] * requests


async def test_no_proxy_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(says(HEAD, b"ok")) as server, client(from_env=True) as http:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert (await http.get(server.url)).text == "ok"


async def test_a_transport_that_was_never_used_closes() -> None:
    async with client():
        pass
