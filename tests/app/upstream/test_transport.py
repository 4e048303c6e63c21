"""The transport against a handwritten server: exact bytes, separate timeouts, and specific errors."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from app.config import Timeouts
from app.upstream.transport import AiohttpTransport
from tests.support.gateways.mock_upstream import closed_port
from tests.support.gateways.upstream_client import HEAD, STREAM, Answer, client, loops, says, serving

pytestmark = [pytest.mark.anyio, loops]


@pytest.mark.parametrize(
    "target",
    [b"/v1/files/a%2Fb", b"/v1/x?after=file%2Fb%20c&d=%2b+", b"/v1/x?a=%e4%C3&b=%41", b"/v1/a%7Eb/../c//d?q=a,b;c:d@e"],
)
async def test_path_and_query_are_sent_unchanged(target: bytes) -> None:
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        response = await http.get(server.url, extensions={"target": target})
    assert response.text == "ok"
    assert server.heads[0].split(b" ")[1] == target


async def test_url_is_sent_without_a_target() -> None:
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        await http.get(f"{server.url}/a%2Fb?c=%2F")
    assert server.heads[0].startswith(b"GET /a%2Fb?c=%2F HTTP/1.1\r\n")


async def test_headers_are_sent_as_given_without_additions() -> None:
    headers = [(b"x-a", b"1"), (b"x-a", b"2"), (b"x-name", "Jürgen".encode())]
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        http.headers.clear()
        await http.post(server.url, headers=headers, content=b"{}")
    lines = server.heads[0].split(b"\r\n")[1:-2]
    assert [line for line in lines if line.startswith(b"x-")] == [b"x-a: 1", b"x-a: 2", "x-name: Jürgen".encode()]
    assert {line.partition(b":")[0].lower() for line in lines} == {b"host", b"content-length", b"x-a", b"x-name"}


async def test_status_headers_and_encoded_body_arrive_unchanged() -> None:
    reply = (
        b"HTTP/1.1 418 Teapot\r\nX-A: 1\r\nx-a: 2\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x00"
    )
    async with serving(says(reply)) as server, client() as http, http.stream("GET", server.url) as response:
        assert (response.status_code, response.headers.get_list("x-a")) == (418, ["1", "2"])
        assert b"".join([data async for data in response.aiter_raw()]) == b"\x1f\x8b\x00"


async def test_non_ascii_bytes_are_sent_unchanged() -> None:
    headers = [(b"x-a", "Jürgen ☃".encode())]
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        await http.get(server.url, headers=headers, extensions={"target": "/ä?☃".encode()})
    assert server.heads[0].startswith("GET /ä?☃ HTTP/1.1\r\n".encode())
    assert "\r\nx-a: Jürgen ☃\r\n".encode() in server.heads[0]


async def test_invalid_utf8_keeps_its_bytes() -> None:
    """The client library only sends UTF-8."""
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        await http.get(server.url, headers=[(b"x-a", b"J\xfcrgen")], extensions={"target": b"/\xe4/%2F?\xff=%41"})
    assert server.heads[0].startswith(b"GET /%E4/%2F?%FF=%41 HTTP/1.1\r\n")
    assert "\r\nx-a: Jürgen\r\n".encode() in server.heads[0]


@pytest.mark.parametrize(
    "part", [b"\r\nx-evil: 1", b"\nx-evil: 1", b"\rx-evil: 1", b"\0", b"\x7f", b"\r\n\r\nGET / HTTP/1.1"]
)
@pytest.mark.parametrize("where", ["name", "value", "target"])
async def test_headers_and_targets_cannot_inject_lines(part: bytes, where: str) -> None:
    names = {"name": [(b"x-a" + part, b"1")], "value": [(b"x-a", b"1" + part)], "target": []}
    target = b"/a" + part if where == "target" else b"/"
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        with pytest.raises(httpx.LocalProtocolError):
            await http.get(server.url, headers=names[where], extensions={"target": target})
    assert server.heads == []


@pytest.mark.parametrize(
    ("method", "length"),
    [("GET", b""), ("HEAD", b""), ("POST", b"content-length: 0\r\n"), ("DELETE", b"content-length: 0\r\n")],
)
async def test_empty_body_has_a_content_length_where_expected(method: str, length: bytes) -> None:
    async with serving(says(HEAD)) as server, client() as http:
        http.headers.clear()
        async with http.stream(method, server.url):
            pass
    head = server.heads[0].lower()
    assert head.partition(b"\r\n")[2] == b"host: 127.0.0.1:%d\r\n" % server.port + length + b"\r\n"


@pytest.mark.parametrize("framing", [("content-length", "2"), ("transfer-encoding", "chunked")])
async def test_whole_body_has_a_content_length(framing: tuple[str, str]) -> None:
    async with serving(says(HEAD, b"ok")) as server, client() as http:
        await http.post(server.url, headers=[framing], content=b"{}")
    head = server.heads[0].lower()
    assert (head.count(b"content-length: 2"), head.count(b"transfer-encoding")) == (1, 0)
    assert server.bodies == [b"{}"]


async def test_upload_is_streamed() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first,"
        yield b"second"

    async with serving(says(HEAD, b"ok")) as server, client() as http:
        await http.post(server.url, content=pieces())
    assert server.bodies == [b"first,second"]
    assert server.heads[0].lower().count(b"transfer-encoding") == 1


async def test_upload_may_take_longer_than_the_first_byte_limit() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(4):
            await asyncio.sleep(0.1)
            yield b"x"

    async with serving(says(HEAD, b"ok")) as server, client(first_byte=0.25) as http:
        assert (await http.post(server.url, content=slowly())).text == "ok"


async def test_connections_are_reused_after_a_reply_was_read() -> None:
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


async def test_missing_response_head_times_out() -> None:
    assert await fails(says(), first_byte=0.05) is httpx.ReadTimeout


async def test_missing_first_byte_times_out() -> None:
    assert await fails(says(STREAM), first_byte=0.05) is httpx.ReadTimeout


async def test_first_byte_limit_covers_head_and_body() -> None:
    async def late_head(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(STREAM)

    started = asyncio.get_running_loop().time()
    assert await fails(late_head, first_byte=0.6) is httpx.ReadTimeout
    assert asyncio.get_running_loop().time() - started < 1.0


async def test_silence_after_the_first_byte_has_its_own_limit() -> None:
    assert await fails(says(STREAM, b"2\r\nok\r\n"), between_bytes=0.05) is httpx.ReadTimeout


async def test_first_byte_limit_may_exceed_the_silence_limit() -> None:
    async def late(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await asyncio.sleep(0.3)
        writer.write(b"2\r\nok\r\n0\r\n\r\n")

    async with serving(late) as server, client(first_byte=5.0, between_bytes=0.2) as http:
        assert (await http.get(server.url)).text == "ok"


async def test_next_request_on_a_connection_has_its_own_time() -> None:
    async with serving(says(HEAD, b"ok")) as server, client(first_byte=0.05, between_bytes=0.05) as http:
        await http.get(server.url)
        await asyncio.sleep(0.1)
        assert (await http.get(server.url)).text == "ok"
    assert server.connections == 1


async def test_closed_port_is_a_connect_error() -> None:
    async with client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"http://127.0.0.1:{closed_port()}")


@pytest.mark.parametrize("host", ["name.invalid", "x" * 60 + "." + "y" * 60, "x" * 64, "a..b"])
async def test_unresolvable_name_is_a_connect_error(host: str) -> None:
    async with client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"http://{host}")


async def test_slow_connect_is_a_connect_timeout() -> None:
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
async def test_connection_lost_before_the_head_is_a_read_error(answer: Answer) -> None:
    assert await fails(answer) is httpx.ReadError


async def test_connection_lost_in_the_body_is_a_read_error() -> None:
    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"o")
        writer.close()

    assert await fails(half) is httpx.ReadError


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"SMTP ready\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 099 Low\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 600 High\r\ncontent-length: 0\r\n\r\n",
        OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok",
        OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        OK + b"content-length: -2\r\n\r\n",
        OK + b"x-a: b\0c\r\n\r\n",
        OK + b"x a: b\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 33,
        OK + b"x-a: b\r\n" * 257 + b"content-length: 0\r\n\r\n",
        OK + b"x-a: %b\r\n\r\n" % (b"a" * 65_537),
    ],
    ids=lambda data: data[:60].decode("latin-1").replace("\r\n", " "),
)
async def test_non_http_response_is_a_protocol_error(data: bytes) -> None:
    assert await fails(says(data)) is httpx.RemoteProtocolError


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"fffffffffffffffff\r\n", b"2\r\nokay\r\n"])
async def test_invalid_body_is_an_error_at_once(chunk: bytes) -> None:
    assert await fails(says(STREAM, b"2\r\nok\r\n", chunk)) in (httpx.ReadError, httpx.RemoteProtocolError)


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (OK + b"x-a: ", b"a" * 8_192),
        (b"HTTP/1.1 200 ", b"a" * 8_192),
        (OK, b"x-a: b\r\n" * 1_000),
        (STREAM + b"0\r\n", b"x-a: b\r\n" * 1_000),
    ],
    ids=["header", "reason", "headers", "trailers"],
)
async def test_endless_response_is_abandoned_early(start: bytes, more: bytes) -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(start)
        with contextlib.suppress(ConnectionError):
            while sent < 64 * 1024 * 1024 and not writer.is_closing():
                writer.write(more)
                sent += len(more)
                await writer.drain()

    await fails(endless)
    assert sent < 32 * 1024 * 1024


async def test_interim_responses_are_ignored() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    async with serving(says(hints * 32 + HEAD, b"ok")) as server, client() as http:
        for _ in range(2):
            response = await http.get(server.url)
            assert (response.headers.raw, response.text) == ([(b"content-length", b"2")], "ok")
    assert server.connections == 1


async def test_trailers_are_not_headers() -> None:
    async with serving(says(STREAM, b"0\r\nset-x: 1\r\n\r\n")) as server, client() as http:
        assert "set-x" not in (await http.get(server.url)).headers


async def test_cookies_are_not_kept_and_redirects_not_followed() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nlocation: /x\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n"
    async with serving(says(redirect)) as server:
        transport = AiohttpTransport(timeouts=Timeouts())
        for _ in range(2):
            response = await transport.handle_async_request(httpx.Request("GET", server.url))
            assert response.status_code == 302
            await response.aclose()
        await transport.aclose()
    assert len(server.heads) == 2
    assert not any(b"cookie" in head.lower() for head in server.heads)


@pytest.mark.parametrize(("from_env", "requests"), [(True, 1), (False, 0)])
async def test_environment_proxy_is_used_only_if_configured(
    monkeypatch: pytest.MonkeyPatch, from_env: bool, requests: int
) -> None:
    target = f"http://127.0.0.1:{closed_port()}/v1/x%2Fy"
    async with serving(says(HEAD, b"ok")) as proxy, client(from_env=from_env) as http:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "other.test")
        with contextlib.suppress(httpx.ConnectError):
            await http.get(target)
    assert [head.split(b" ")[1] for head in proxy.heads] == [target.encode()] * requests


async def test_no_proxy_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(says(HEAD, b"ok")) as server, client(from_env=True) as http:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert (await http.get(server.url)).text == "ok"


async def test_unused_transport_can_be_closed() -> None:
    async with client():
        pass
