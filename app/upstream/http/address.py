"""Where a request goes, taken apart once for all requests that go there."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import httpx

from app.errors import InvalidRequestError

_PORTS = {"http": 80, "https": 443}
_NOT_IN_A_LINE = re.compile(r"[^\x21-\x7e\x80-\xff]")


class Origin(NamedTuple):
    """The server: requests to it share connections."""

    tls: bool
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """``target`` is path and query as they came, a character for each byte; ``host`` what the header of that name says.
    Neither has the URL's user and password."""

    origin: Origin
    host: str
    target: str
    url: httpx.URL


@lru_cache(maxsize=256)
def address_of(url: str) -> Address:
    """Raises InvalidRequestError; what of the URL can be wrong is the client's part."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = None
    slash = url.find("/", url.index("://") + 3)
    target = url[slash:] if slash >= 0 else "/"
    if parsed is None or _NOT_IN_A_LINE.search(target):
        raise InvalidRequestError("The request's path and query are not a valid URL.")
    return Address(
        origin=Origin(
            tls=parsed.scheme == "https",
            host=parsed.raw_host.decode("ascii"),
            port=parsed.port or _PORTS[parsed.scheme],
        ),
        host=parsed.netloc.decode("ascii"),
        target=target,
        url=parsed,
    )
