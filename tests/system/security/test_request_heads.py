"""What a client can do before it has sent a request: little, and not for long."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.mock_upstream import json_reply

START = b"POST /v1/embeddings HTTP/1.1\r\nhost: g\r\n"
REST = b"content-length: 2\r\n\r\n{}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    started: list[Gateway] = []

    def start(**settings: object) -> Gateway:
        gateway = Gateway(tmp_path, **settings)  # type: ignore[arg-type]  # settings of any type
        started.append(gateway)
        gateway.upstream.script(json_reply({"ok": True}))
        return gateway.start()

    yield start
    for gateway in started:
        gateway.close()


def connect(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=10)


def answer(client: socket.socket) -> bytes:
    """All data until the gateway closes the connection."""
    received = bytearray()
    try:
        while data := client.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return bytes(received)


def sent(gateway: Gateway, *parts: bytes) -> bytes:
    with connect(gateway) as client:
        for part in parts:
            try:
                client.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                break
        return answer(client)


@pytest.mark.parametrize(
    "parts",
    [
        [START + b"x-a: " + b"a" * 70_000 + b"\r\n" + REST],
        [START, *[b"x-a: " + b"a" * 1_000 + b"\r\n"] * 70, REST],
        [START + b"x-a: ", *[b"a" * 8_192] * 9],
        [b"GET /v1/models?" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"],
        [b"GET /", *[b"a" * 8_192] * 1_000],
    ],
    ids=["one", "many", "endless", "url", "endless-url"],
)
def test_large_head_is_refused(start: Callable[..., Gateway], parts: list[bytes]) -> None:
    assert b"HTTP/1.1 431 " in sent(start(), *parts)


def test_head_within_the_limit_passes_for_any_chunking(start: Callable[..., Gateway]) -> None:
    gateway = start()
    head = START + b"x-a: " + b"a" * 60_000 + b"\r\nconnection: close\r\n" + REST
    for parts in ([head], [head[:7], head[7:30_000], head[30_000:]]):
        assert b"HTTP/1.1 200 " in sent(gateway, *parts)


def test_large_head_after_another_request_ends_the_connection(start: Callable[..., Gateway]) -> None:
    assert b"HTTP/1.1 200 " not in sent(start(), START + REST + START, *[b"x-a: " + b"a" * 30_000 + b"\r\n"] * 9)


def test_large_body_is_no_large_head(start: Callable[..., Gateway]) -> None:
    body = b'{"input":"' + b"a" * 500_000 + b'"}'
    head = START + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert b"HTTP/1.1 200 " in sent(start(), head + body)


def test_slow_head_is_rejected(start: Callable[..., Gateway]) -> None:
    gateway = start(head_timeout_s=0.3)
    assert sent(gateway, START).startswith(b"HTTP/1.1 408 ")
    assert sent(gateway, b"P").startswith(b"HTTP/1.1 408 ")
    assert sent(gateway) == b""
    with connect(gateway) as client:
        client.sendall(START + REST)
        assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        client.sendall(START)
        assert b"HTTP/1.1 408 " in answer(client)


def test_connections_per_address_and_in_total_are_limited(start: Callable[..., Gateway]) -> None:
    gateway = start(max_connections_per_address=2)
    first, second = connect(gateway), connect(gateway)
    try:
        assert sent(gateway).startswith(b"HTTP/1.1 503 ")
    finally:
        first.close()
        second.close()

    def free() -> bool | None:
        return sent(gateway, START + b"connection: close\r\n" + REST).startswith(b"HTTP/1.1 200 ") or None

    eventually(free, "a free place")


def test_trailers_are_not_headers(start: Callable[..., Gateway]) -> None:
    gateway = start(require_keys=True)
    made = gateway.admin.post("/keys", json={"name": "k"}).json()["key"].encode()
    chunked = START + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    assert b"HTTP/1.1 401 " in sent(gateway, chunked + b"authorization: Bearer " + made + b"\r\nx-late: 1\r\n\r\n")
    head = START + b"authorization: Bearer " + made + b"\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    assert b"HTTP/1.1 200 " in sent(gateway, head + b"2\r\n{}\r\n0\r\nx-late: 1\r\nx-api-key: k\r\n\r\n")
    exchange = gateway.upstream.wait_exchange()
    assert (exchange.header("x-late"), exchange.header("x-api-key")) == (None, None)
