"""Checks the ``Host`` and ``Origin`` headers of calls to ``/mcp``, to prevent DNS rebinding.

A malicious web page can point its own host name at this machine, and then call a local server as if the page came from
that server. Browsers send the page's host name in ``Host`` and ``Origin``, so such calls can be detected.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from starlette.datastructures import Headers
from starlette.types import Scope

from app.errors import InvalidRequestError
from app.settings import Settings

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGuard:
    """``hosts`` is the set of allowed host names, in lower case. If ``hosts`` is None, servers on a loopback address
    allow only local names, and other servers allow any name. ``origins`` is the set of allowed origins. Servers on a
    loopback address also allow local pages."""

    hosts: frozenset[str] | None = None
    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        hosts = _listed(settings.mcp_hosts)
        return cls(
            hosts=frozenset(host.lower() for host in hosts) if hosts else None,
            origins=frozenset(_listed(settings.cors_origins)),
        )

    def check(self, scope: Scope) -> None:
        """Check the request's host name and origin. Raises InvalidRequestError if one of them isn't allowed."""
        headers = Headers(scope=scope)
        local = _is_loopback(scope)
        if not self._knows_host(headers.get("host", ""), local=local):
            raise InvalidRequestError(
                f"The host {headers.get('host', '')!r} is not allowed. Allowed hosts are set in GROUNDLANE_MCP_HOSTS.",
                status=HTTPStatus.MISDIRECTED_REQUEST,
            )
        origin = headers.get("origin")
        if origin is not None and not self._knows_origin(origin, local=local):
            raise InvalidRequestError(
                f"The origin {origin!r} is not allowed. Allowed origins are set in GROUNDLANE_CORS_ORIGINS.",
                status=HTTPStatus.FORBIDDEN,
            )

    def _knows_host(self, host: str, *, local: bool) -> bool:
        name = _without_port(host).lower()
        if self.hosts is not None:
            return _ANY in self.hosts or name in self.hosts
        return not local or name in _LOCAL_NAMES

    def _knows_origin(self, origin: str, *, local: bool) -> bool:
        if _ANY in self.origins or origin in self.origins:
            return True
        scheme, _, host = origin.partition("://")
        return local and scheme in ("http", "https") and _without_port(host).lower() in _LOCAL_NAMES


def _listed(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _without_port(host: str) -> str:
    """Remove the port: ``[::1]:80`` becomes ``[::1]``. If ``host`` isn't a name with a port, return it unchanged."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _is_loopback(scope: Scope) -> bool:
    server = scope.get("server")
    address = str(server[0]) if server else ""
    return address.startswith("127.") or address in ("::1", "localhost")
