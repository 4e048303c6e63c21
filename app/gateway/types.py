"""What the API routes and the gateway exchange: the request, the adapter for its protocol, the response."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from app.auth import GatewayKey
from app.gateway.request_scope import ReplyStream
from app.protocols.common.known_fields import KnownFields
from app.protocols.common.stream_events import Continuation, Frame, Output, UpstreamEvent
from app.protocols.documents import ParsedRequest
from app.upstream import Headers
from judges.types import Chunk


class ProtocolAdapter(Protocol):
    """Speaks one client API: decodes the upstream's bytes into events, and encodes outputs for the client."""

    @property
    def api(self) -> str: ...

    @property
    def path(self) -> str:
        """The upstream's path, after ``/v1``."""
        ...

    def restricted(self, fields: KnownFields) -> "ProtocolAdapter":
        """The adapter that writes replies from ``fields`` alone, for one request."""
        ...

    def prompt_text(self, body: Mapping[str, Any]) -> str:
        """All text that goes upstream, for hashing and for counting tokens."""
        ...

    def inject(self, body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
        """A copy of the request's body with ``chunks`` written into its prompt, at the place that ``where`` names."""
        ...

    def decode(
        self, body: AsyncIterator[bytes], content_type: str, *, dropped: Collection[int] = ()
    ) -> AsyncGenerator[UpstreamEvent, None]:
        """The events of a reply. A whole reply is laid out as the events of a stream, so both take the same path.

        ``dropped`` are the positions of the documents that policies dropped, for an API that numbers its documents.
        """
        ...

    def encode(self, output: Output) -> bytes:
        """An output of a streamed reply as bytes; empty if the client gets nothing for it."""
        ...

    def collect(self, body: bytes, outputs: Sequence[Output]) -> bytes:
        """The body of a unary reply, from the upstream's body and the outputs."""
        ...


@runtime_checkable
class ResumableAdapter(Protocol):
    """Implemented too by an adapter whose API lets an upstream continue a reply from a given beginning."""

    def cannot_continue(self, body: Mapping[str, Any]) -> str | None:
        """Why the reply to ``body`` cannot be continued, in one word; None if it can."""
        ...

    def continuing(self, body: Mapping[str, Any], continuation: Continuation) -> dict[str, Any]:
        """The request that asks for the continuation. ``body`` is the first call's."""
        ...

    def decode_continued(
        self, body: AsyncIterator[bytes], content_type: str, like: Frame
    ) -> AsyncGenerator[UpstreamEvent, None]:
        """The events of the continuation, as if they belonged to the reply that ``like`` is a frame of."""
        ...


class GatewayRequest(Struct, frozen=True, kw_only=True):
    """A governed request as an API route hands it over."""

    adapter: ProtocolAdapter
    parsed: ParsedRequest
    headers: Headers
    query: str = ""
    key: GatewayKey | None = None

    @property
    def key_names(self) -> tuple[str, ...] | None:
        """The names by which a policy's scope may refer to the caller's key."""
        return None if self.key is None else self.key.names


class GatewayResponse(Struct, frozen=True, kw_only=True):
    """The answer: ``stream`` if there is one, which must be closed; otherwise ``body``.

    ``held``: text may be held back, so the client needs a sign of life now and then.
    """

    status: int
    headers: Headers
    body: bytes = b""
    stream: ReplyStream | None = None
    held: bool = False
