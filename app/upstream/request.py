"""What is sent upstream, before it is known which one gets it."""

from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass

from msgspec import Struct

Headers = list[tuple[str, str]]
"""Lower-case names and values; one character stands for one byte (latin-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How an upstream wants the body: under which name it knows the model, and whether it reads ``documents``.

    ``renamed``: that name is another than the one asked for.
    """

    model: str | None
    renamed: bool = False
    documents: bool = False


Content = bytes | AsyncIterable[bytes] | Callable[[Form], bytes]


class UpstreamRequest(Struct, frozen=True, kw_only=True):
    """A request on its way up. ``path`` and ``query`` are what follows ``/v1``, as the client wrote them.

    ``model`` chooses the upstream. ``repeatable``: to send it twice does no harm. ``content`` may be a function, which
    makes the body in the form that the chosen upstream wants.
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
