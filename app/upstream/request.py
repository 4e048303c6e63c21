"""A request to an upstream, before the upstream is chosen."""

from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass

from msgspec import Struct

Headers = list[tuple[str, str]]
"""Lower-case names and values; one character stands for one byte (latin-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyFormat:
    """The body that an upstream needs: its name for the model, and whether it accepts ``documents``.

    ``renamed``: its name for the model differs from the request's.
    """

    model: str | None
    renamed: bool = False
    documents: bool = False


Content = bytes | AsyncIterable[bytes] | Callable[[BodyFormat], bytes]


class UpstreamRequest(Struct, frozen=True, kw_only=True):
    """``path`` and ``query`` are what follows ``/v1``, as the client sent them.

    ``model`` selects the upstream. ``repeatable``: sending it twice does no harm. ``content`` may be a function that
    makes the body for the chosen upstream.
    """

    method: str
    path: str
    headers: Headers
    content: Content
    accept_encoding: str
    query: str = ""
    model: str | None = None
    repeatable: bool = False

    @property
    def replayable(self) -> bool:
        return isinstance(self.content, bytes) or callable(self.content)
