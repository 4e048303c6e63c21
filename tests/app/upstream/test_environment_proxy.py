"""Proxies set in the environment: httpx's behaviour, with our targets, time limits and errors."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.gateways.upstream_client import HEAD, STREAM, Answer, client, says, serving
from tests.system.faults.support.certificates import Authority

pytestmark = pytest.mark.anyio

TARGET = b"/v1/x%2Fy?a=%e4,b"


@contextlib.asynccontextmanager
async def tunnel() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy that connects to the address in CONNECT, and the first lines of the requests it received."""
    asked: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.partition(b"\r\n")[0])
        host, _, port = head.split(b" ")[1].decode().partition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, back), pump(there, writer))

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", asked
    finally:
        listening.close()


@pytest.fixture(autouse=True)
def no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "other.test")


async def test_request_through_a_proxy_keeps_its_target_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(says(HEAD, b"ok")) as proxy, client(from_env=True) as http:
        monkeypatch.setenv("http_proxy", proxy.url)
        response = await http.post("http://up.test", content=b"{}", extensions={"target": TARGET})
    assert response.text == "ok"
    assert proxy.heads[0].startswith(b"POST http://up.test" + TARGET + b" HTTP/1.1\r\n")
    assert proxy.bodies == [b"{}"]


async def test_request_through_a_tunnel_keeps_its_target_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=authority.root)
    async with (
        serving(says(HEAD, b"ok"), tls=authority.context()) as server,
        tunnel() as (proxy, asked),
        client(from_env=True, tls=trusting) as http,
    ):
        monkeypatch.setenv("https_proxy", proxy)
        url = f"https://127.0.0.1:{server.port}"
        assert (await http.get(url, extensions={"target": TARGET})).text == "ok"
    assert asked == [b"CONNECT 127.0.0.1:%d HTTP/1.1" % server.port]
    assert server.heads[0].split(b" ")[1] == TARGET


async def slow_body(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM)
    await asyncio.sleep(0.3)
    writer.write(b"2\r\nok\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "first_byte", "between_bytes"),
    [(says(), 0.05, 5.0), (says(STREAM), 0.05, 5.0), (says(STREAM, b"2\r\nok\r\n"), 5.0, 0.05)],
    ids=["head", "first byte", "between"],
)
async def test_silence_is_timed_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, first_byte: float, between_bytes: float
) -> None:
    patience = client(from_env=True, connect=0.05, first_byte=first_byte, between_bytes=between_bytes)
    async with serving(answer) as proxy, patience as http:
        monkeypatch.setenv("http_proxy", proxy.url)
        with pytest.raises(httpx.ReadTimeout):
            await http.get("http://up.test")


async def test_first_byte_limit_may_exceed_the_silence_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(slow_body) as proxy, client(from_env=True, between_bytes=0.2) as http:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert (await http.get("http://up.test")).text == "ok"


async def test_upload_streams_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first,"
        yield b"second"

    async with serving(says(HEAD, b"ok")) as proxy, client(from_env=True) as http:
        monkeypatch.setenv("http_proxy", proxy.url)
        await http.post("http://up.test", content=pieces())
    assert proxy.bodies == [b"first,second"]


@pytest.mark.parametrize("proxy", ["gopher://127.0.0.1:1", "socks5://127.0.0.1:1", "http://127.0.0.1:1"])
async def test_unusable_proxy_is_a_connect_error(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    async with client(from_env=True) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://up.test")
