"""How connections come about: addresses that are tried beside each other, and TLS that believes no one by default."""

import asyncio
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from app.upstream.http import connect as dialing
from app.upstream.http.address import Origin
from app.upstream.http.connect import dial, first_of, trust
from tests.support.upstream_client import HEAD, STREAM, client, closed_port, loops, says, serving
from tests.system.faults.certificates import Authority

pytestmark = [pytest.mark.anyio, loops]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.root)


async def test_requests_go_over_tls_and_its_connection_is_used_again(
    authority: Authority, trusting: ssl.SSLContext
) -> None:
    async with serving(says(HEAD, b"ok"), tls=authority.context()) as server, client(tls=trusting) as http:
        for _ in range(3):
            assert (await http.post(f"https://127.0.0.1:{server.port}", content=b"x" * 300_000)).text == "ok"
    assert (server.connections, len(server.bodies[0])) == (1, 300_000)


async def test_a_long_reply_over_tls_waits_to_be_read(authority: Authority, trusting: ssl.SSLContext) -> None:
    size = 8 * 1024 * 1024
    answer = says(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size, b"x" * size)
    got = 0
    async with serving(answer, tls=authority.context()) as server, client(tls=trusting) as http:
        async with http.stream("GET", f"https://127.0.0.1:{server.port}") as response:
            async for data in response.aiter_raw():
                got += len(data)
                assert len(data) < 2 * 1024 * 1024
                await asyncio.sleep(0.002)
        assert (await http.get(f"https://127.0.0.1:{server.port}")).status_code == 200
    assert (got, server.connections) == (size, 1)


async def test_a_reply_over_tls_that_is_not_read_is_closed_at_once(
    authority: Authority, trusting: ssl.SSLContext
) -> None:
    answer = says(STREAM, b"2\r\nok\r\n")
    async with serving(answer, tls=authority.context()) as server, client(tls=trusting) as http:
        async with http.stream("GET", f"https://127.0.0.1:{server.port}") as response:
            assert await anext(response.aiter_raw()) == b"ok"
        await asyncio.wait_for(server.gone.wait(), 5)


@pytest.mark.parametrize(
    ("host", "days", "trusted", "told"),
    [
        ("127.0.0.1", 30, False, "self-signed certificate"),
        ("127.0.0.1", -1, True, "certificate has expired"),
        ("elsewhere.example", 30, True, "IP address mismatch"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the server, whose side of the handshake fails
async def test_a_certificate_that_is_not_good_is_a_connect_error(
    authority: Authority, trusting: ssl.SSLContext, host: str, days: int, trusted: bool, told: str
) -> None:
    context = authority.context(host, days=days, trusted=trusted)
    async with serving(says(HEAD, b"ok"), tls=context) as server, client(tls=trusting) as http:
        with pytest.raises(httpx.ConnectError, match=told):
            await http.get(f"https://127.0.0.1:{server.port}")
    assert server.heads == []


async def test_by_default_certificates_and_names_are_checked() -> None:
    assert (trust().verify_mode, trust().check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_who_says_nothing_where_tls_is_spoken_is_a_connect_timeout() -> None:
    async with serving(says()) as server, client(connect=0.1) as http:
        with pytest.raises(httpx.ConnectTimeout):
            await http.get(f"https://127.0.0.1:{server.port}")
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_cancelling_a_handshake_leaves_no_connection() -> None:
    async with serving(says()) as server, client() as http:
        task = asyncio.ensure_future(http.get(f"https://127.0.0.1:{server.port}"))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_what_is_opened_after_a_handshake_that_nobody_wanted_any_more_is_not_taken_for_it(
    authority: Authority, trusting: ssl.SSLContext
) -> None:
    """The number of a socket is free once it is closed, and the next has it."""

    class Unwanted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            unwanted.cancel()

    async with serving(says(), tls=authority.context()) as server:
        origin = Origin(tls=True, host="127.0.0.1", port=server.port)
        unwanted = asyncio.ensure_future(dial(origin, Unwanted, timeout=5, tls=trusting))
        await asyncio.gather(unwanted, return_exceptions=True)
        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=near)
        far.sendall(b"ok")
        assert await asyncio.wait_for(reader.readexactly(2), 5) == b"ok"
        await asyncio.wait_for(server.gone.wait(), 5)
        far.sendall(b"ok")
        assert await asyncio.wait_for(reader.readexactly(2), 5) == b"ok"
        writer.close()
        far.close()
        await writer.wait_closed()


async def test_plain_http_where_tls_is_spoken_is_a_connect_error() -> None:
    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    listening.close()


# Several addresses


@pytest.fixture
def silent() -> Iterator[int]:
    """A port whose backlog is full: the kernel leaves further connections waiting."""
    with socket.socket() as full, socket.socket() as one, socket.socket() as two:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for sock in (one, two):
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        yield full.getsockname()[1]


def addresses(*ports: int) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]


async def port_of(ports: Sequence[int]) -> int:
    with await first_of(addresses(*ports)) as opened:
        return int(opened.getpeername()[1])


async def test_the_next_address_is_tried_at_once_when_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "_HEAD_START_S", 60.0)
    async with serving(says()) as server:
        assert await asyncio.wait_for(port_of([closed_port(), closed_port(), server.port]), 5) == server.port


async def test_the_next_address_is_tried_beside_one_that_says_nothing(silent: int) -> None:
    async with serving(says()) as server:
        assert await asyncio.wait_for(port_of([silent, server.port, silent]), 5) == server.port


async def test_where_none_answers_the_first_error_is_told(silent: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        await first_of(addresses(closed_port(), closed_port()))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.6):
            await first_of(addresses(silent, silent))


async def test_only_one_connection_stays_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "_HEAD_START_S", 0.0)
    async with serving(says()) as server:
        for _ in range(20):
            assert await port_of([server.port] * 4) == server.port


async def test_the_families_are_tried_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def noted(found: Sequence[Any]) -> socket.socket:
        tried.extend(address[4][0] for address in found)
        raise ConnectionRefusedError

    async def resolved(*_: Any, **__: Any) -> list[Any]:
        six = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (f"::{n}", 80, 0, 0)) for n in (1, 2, 3)]
        return [*six, *((socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", 80)) for n in (1, 2))]

    monkeypatch.setattr(dialing, "first_of", noted)
    monkeypatch.setattr(dialing, "_resolved", resolved)
    with pytest.raises(httpx.ConnectError):
        await dial(Origin(tls=False, host="up.test", port=80), asyncio.Protocol, timeout=5, tls=trust())
    assert tried == ["::1", "127.0.0.1", "::2", "127.0.0.2", "::3"]


@pytest.mark.parametrize("host", ["name.invalid", "x" * 70, "a..b"])
async def test_a_name_that_leads_nowhere_is_a_connect_error_that_names_it(host: str) -> None:
    with pytest.raises(httpx.ConnectError, match=host):
        await dial(Origin(tls=False, host=host, port=80), asyncio.Protocol, timeout=20, tls=trust())


async def test_small_writes_are_not_put_off() -> None:
    async with serving(says()) as server:
        with await first_of(addresses(server.port)) as opened:
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
