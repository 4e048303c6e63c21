"""Access to ``/mcp``, by the host and origin of a request."""

import pytest

from app.api.mcp.host_guard import HostGuard
from app.errors import InvalidRequestError
from app.settings import Settings

LOOPBACK, NETWORK, SOCKET = ("127.0.0.1", 8080), ("10.1.2.3", 8080), ("/run/gateway.sock", None)


def status(server: object, *, hosts: str | None = None, origins: str | None = None, **headers: str) -> int:
    """200, or the status of the rejection."""
    settings = Settings.model_construct(mcp_hosts=hosts, cors_origins=origins)
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    try:
        HostGuard.of(settings).check({"type": "http", "server": server, "headers": raw})
    except InvalidRequestError as error:
        return error.status
    return 200


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "LOCALHOST", "127.0.0.1:8080", "[::1]:8080", "[::1]"])
@pytest.mark.parametrize("server", [LOOPBACK, ("::1", 8080), ("127.8.8.8", 80)])
def test_loopback_address_accepts_local_host_names(server: object, host: str) -> None:
    assert status(server, host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "::1", "0"]
)
def test_loopback_address_rejects_other_host_names(host: str) -> None:
    assert status(LOOPBACK, host=host) == 421


def test_request_without_a_host_is_rejected() -> None:
    assert status(LOOPBACK) == 421


@pytest.mark.parametrize("server", [NETWORK, SOCKET, None])
def test_network_address_accepts_any_host_unless_hosts_are_listed(server: object) -> None:
    assert status(server, host="gateway.example") == 200
    assert status(server, host="evil.example", hosts="gateway.example") == 421


@pytest.mark.parametrize("server", [LOOPBACK, NETWORK])
def test_only_listed_hosts_are_accepted(server: object) -> None:
    listed = " gateway.example, Gateway.internal "
    assert status(server, hosts=listed, host="gateway.example:443") == 200
    assert status(server, hosts=listed, host="GATEWAY.INTERNAL") == 200
    assert status(server, hosts=listed, host="localhost") == 421
    assert status(server, hosts="*", host="anything.example") == 200


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080"])
def test_local_pages_may_call_only_over_loopback(origin: str) -> None:
    assert status(LOOPBACK, host="localhost", origin=origin) == 200
    assert status(NETWORK, host="gateway.example", origin=origin) == 403


@pytest.mark.parametrize("server", [LOOPBACK, NETWORK])
@pytest.mark.parametrize(
    "origin", ["null", "", "http://evil.example", "http://localhost.evil.example", "file://localhost", "localhost"]
)
def test_other_origins_are_rejected(server: object, origin: str) -> None:
    assert status(server, host="localhost", origin=origin) == 403


def test_listed_origins_are_accepted() -> None:
    listed = "https://app.example, https://other.example"
    assert status(NETWORK, origins=listed, host="gateway.example", origin="https://app.example") == 200
    assert status(NETWORK, origins=listed, host="gateway.example", origin="http://app.example") == 403
    assert status(NETWORK, origins="*", host="gateway.example", origin="https://any.example") == 200
