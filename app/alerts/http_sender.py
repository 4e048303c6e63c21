"""Sends messages to the URLs that operators configure. By default, blocks URLs in the gateway's own network."""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping

import httpx

_TIMEOUT_S = 10.0
_HTTPS_PORT = 443
_TEMPORARY = 408, 425, 429


class DeliveryError(Exception):
    """A message wasn't delivered. The text gives the reason but not the URL. If ``permanent``, retrying won't help."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class MessageSender:
    """Sends messages with POST requests. It doesn't follow redirects or use a proxy.

    Unless ``private_addresses`` is set, it sends only over HTTPS and only to public addresses, so that a URL can't make
    the gateway call services in its own network. The host name is resolved once. The sender checks the resulting
    address and connects to that same address, so a later DNS change has no effect.
    """

    def __init__(self, *, private_addresses: bool, timeout_s: float = _TIMEOUT_S) -> None:
        self._private, self._timeout_s = private_addresses, timeout_s
        self._client = httpx.AsyncClient(timeout=timeout_s, follow_redirects=False, trust_env=False)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a JSON body. Raises DeliveryError unless the response status is 2xx."""
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await self._request(httpx.URL(url), body, headers)
                response = await self._client.send(request, stream=True)  # The response body isn't needed.
                await response.aclose()
        except TimeoutError:
            raise DeliveryError("timed out") from None
        except httpx.TimeoutException:
            raise DeliveryError("timed out") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise DeliveryError(f"cannot reach the host ({type(error).__name__})") from None
        if not response.is_success:
            refused = response.is_client_error and response.status_code not in _TEMPORARY
            raise DeliveryError(f"HTTP status {response.status_code}", permanent=refused)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _request(self, url: httpx.URL, body: bytes, headers: Mapping[str, str]) -> httpx.Request:
        sent = {"Content-Type": "application/json", "User-Agent": "groundlane", **headers}
        if self._private:
            return self._client.build_request("POST", url, content=body, headers=sent)
        if url.scheme != "https":
            raise DeliveryError("the URL must start with https://", permanent=True)
        address = await _public_address(url.host, url.port or _HTTPS_PORT)
        # The certificate is verified against the host name, not the address.
        return self._client.build_request(
            "POST",
            url.copy_with(host=address),
            content=body,
            headers={**sent, "Host": url.netloc.decode()},
            extensions={"sni_hostname": url.host},
        )


async def _public_address(host: str, port: int) -> str:
    """Resolve ``host``. Raises DeliveryError if any address isn't public, and OSError if the lookup fails."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not addresses or not all(map(_is_public, addresses)):
        raise DeliveryError(
            "the host's address is not public; to allow private addresses, set GROUNDLANE_ALERT_PRIVATE_ADDRESSES=true",
            permanent=True,
        )
    return addresses[0]


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    # NAT64 addresses (64:ff9b::/96) can reach any IPv4 address. They are global, but also reserved.
    special = address.is_multicast or address.is_reserved or getattr(address, "is_site_local", False)
    return address.is_global and not special and (mapped is None or mapped.is_global)
