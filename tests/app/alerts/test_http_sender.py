"""Where messages may go, and what a failed delivery tells."""

import socket
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from app.alerts.http_sender import DeliveryError, MessageSender
from tests.support.gateways.json_server import QuietHandler, served

pytestmark = pytest.mark.anyio


class Receiver(QuietHandler):
    status = 204
    received: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.received.append(self.body())
        self.respond(self.status, b"", location="http://127.0.0.1:1/")


@pytest.fixture
def url() -> Iterator[str]:
    Receiver.status, Receiver.received = 204, []
    with served(Receiver) as url:
        yield f"{url}/secret-path"


async def send(url: str, *, private: bool) -> None:
    sender = MessageSender(private_addresses=private, timeout_s=5.0)
    try:
        await sender.send(url, b"{}", {})
    finally:
        await sender.aclose()


async def test_private_address_is_used_only_if_allowed(url: str) -> None:
    await send(url, private=True)
    assert Receiver.received == [b"{}"]
    with pytest.raises(DeliveryError, match="must start with https") as refused:
        await send(url, private=False)
    assert refused.value.permanent
    assert len(Receiver.received) == 1


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
        *("::1", "fe80::1", "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "fec0::1"),
    ],
)
async def test_name_that_resolves_to_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(0, 0, 0, "", ("93.184.216.34", port)), (0, 0, 0, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, *_, **__: resolve(host, port))
    with pytest.raises(DeliveryError, match="address is not public") as refused:
        await send("https://hooks.example.com/x", private=False)
    assert refused.value.permanent


@pytest.mark.parametrize(("status", "permanent"), [(302, False), (404, True), (410, True), (429, False), (500, False)])
async def test_failures_are_reported_without_the_url(url: str, status: int, permanent: bool) -> None:
    Receiver.status = status
    with pytest.raises(DeliveryError) as refused:
        await send(url, private=True)
    assert (str(refused.value), refused.value.permanent) == (f"HTTP status {status}", permanent)


async def test_unreachable_destination_is_reported_without_the_url() -> None:
    with pytest.raises(DeliveryError, match="cannot reach the host") as refused:
        await send("http://127.0.0.1:1/secret-path", private=True)
    assert "secret" not in str(refused.value)
