"""TLS to upstreams: certificates and names are checked, and a failed handshake is a failed connection."""

import asyncio
import ssl

import httpx
import pytest

from tests.support.gateways.upstream_client import HEAD, STREAM, client, loops, says, serving
from tests.system.faults.support.certificates import Authority

pytestmark = [pytest.mark.anyio, loops]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.root)


async def test_requests_over_tls_reuse_the_connection(authority: Authority, trusting: ssl.SSLContext) -> None:
    async with serving(says(HEAD, b"ok"), tls=authority.context()) as server, client(tls=trusting) as http:
        for _ in range(3):
            assert (await http.post(f"https://127.0.0.1:{server.port}", content=b"x" * 300_000)).text == "ok"
    assert (server.connections, len(server.bodies[0])) == (1, 300_000)


async def test_long_reply_over_tls_waits_to_be_read(authority: Authority, trusting: ssl.SSLContext) -> None:
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


async def test_unread_reply_over_tls_is_closed_at_once(authority: Authority, trusting: ssl.SSLContext) -> None:
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
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # in the server, whose handshake fails
async def test_invalid_certificate_is_a_connect_error(
    authority: Authority, trusting: ssl.SSLContext, host: str, days: int, trusted: bool, told: str
) -> None:
    context = authority.context(host, days=days, trusted=trusted)
    async with serving(says(HEAD, b"ok"), tls=context) as server, client(tls=trusting) as http:
        with pytest.raises(httpx.ConnectError, match=told):
            await http.get(f"https://127.0.0.1:{server.port}")
    assert server.heads == []


async def test_silent_tls_server_is_a_connect_timeout() -> None:
    async with serving(says()) as server, client(connect=0.1) as http:
        with pytest.raises(httpx.ConnectTimeout):
            await http.get(f"https://127.0.0.1:{server.port}")
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_cancelled_handshake_leaves_no_connection() -> None:
    async with serving(says()) as server, client() as http:
        task = asyncio.ensure_future(http.get(f"https://127.0.0.1:{server.port}"))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_plain_http_server_is_a_connect_error_over_tls() -> None:
    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    listening.close()
