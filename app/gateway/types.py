"""The types exchanged by API routes and the gateway: the request, the adapter for its protocol, and the response."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from app.auth import GatewayKey
from app.gateway.request_lifetime import ReplyStream
from app.protocols.common.known_fields import KnownFields
from app.protocols.common.stream_events import Continuation, Frame, Output, UpstreamEvent
from app.protocols.documents import ParsedRequest
from app.upstream import Headers
from judges.types import Chunk


class ProtocolAdapter(Protocol):
    """Implements one client API: decodes the upstream's bytes into events, and encodes outputs for the client."""

    @property
    def api(self) -> str: ...

    @property
    def path(self) -> str:
        """The upstream path, after ``/v1``."""
        ...

    @property
    def judges_reasoning(self) -> bool:
        """Whether reasoning in separate fields, items or blocks can be judged, and then delivered in the same place."""
        ...

    def restricted(self, fields: KnownFields) -> "ProtocolAdapter":
        """Return an adapter for one request that rebuilds the reply only from ``fields``."""
        ...

    def prompt_text(self, body: Mapping[str, Any]) -> str:
        """Return all text that is sent upstream, for hashing and for counting tokens."""
        ...

    def inject(self, body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
        """Return a copy of the request body with ``chunks`` written into the prompt at the position ``where``."""
        ...

    def decode(
        self, body: AsyncIterator[bytes], content_type: str, *, dropped: Collection[int] = ()
    ) -> AsyncGenerator[UpstreamEvent, None]:
        """Yield the events of a reply. A whole reply is converted to the events of a stream, so that both take the same
        path.

        ``dropped`` contains the positions of the documents that policies dropped, for an API that numbers its
        documents.
        """
        ...

    def encode(self, output: Output) -> bytes:
        """Encode an output of a streamed reply. The result is empty if the client doesn't receive the output."""
        ...

    def collect(self, body: bytes, outputs: Sequence[Output]) -> bytes:
        """Build the body of a unary reply from the upstream's body and the outputs."""
        ...


@runtime_checkable
class ResumableAdapter(Protocol):
    """An adapter for an API that lets an upstream continue a reply, given its beginning."""

    def cannot_continue(self, body: Mapping[str, Any]) -> str | None:
        """Return a one-word reason why the reply to ``body`` cannot be continued, or None if it can."""
        ...

    def continuing(self, body: Mapping[str, Any], continuation: Continuation) -> dict[str, Any]:
        """Build the request for the continuation. ``body`` is the request body of the first call."""
        ...

    def decode_continued(
        self, body: AsyncIterator[bytes], content_type: str, like: Frame
    ) -> AsyncGenerator[UpstreamEvent, None]:
        """Yield the events of the continuation, as if they belonged to the reply that the frame ``like`` comes from."""
        ...


class GatewayRequest(Struct, frozen=True, kw_only=True):
    """A governed request, as passed on by an API route."""

    adapter: ProtocolAdapter
    parsed: ParsedRequest
    headers: Headers
    query: str = ""
    key: GatewayKey | None = None


class GatewayResponse(Struct, frozen=True, kw_only=True):
    """The response to a request. A streamed response is in ``stream``, which the caller must close. Any other response
    is in ``body``. ``held`` means that text may be held back, so the client needs heartbeats."""

    status: int
    headers: Headers
    body: bytes = b""
    stream: ReplyStream | None = None
    held: bool = False
