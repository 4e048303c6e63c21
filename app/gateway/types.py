"""What the API routes and the gateway exchange: the request, the adapter for its protocol, the response."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import structlog
from msgspec import Struct

from app.auth import GatewayKey
from app.errors import EventLostError
from app.events.recorder import RequestRecorder
from app.gateway.request_scope import RequestScope
from app.protocols.common.stream_events import Continuation, EndOfReply, Frame, Output, ReplyError, UpstreamEvent
from app.protocols.documents import ParsedRequest
from app.upstream import Headers
from judges.types import Chunk

_log = structlog.stdlib.get_logger(__name__)


class ProtocolAdapter(Protocol):
    """What an API's own adapter does: upstream bytes to events, outputs to client bytes."""

    @property
    def api(self) -> str: ...

    @property
    def path(self) -> str:
        """The upstream's path, after ``/v1``."""
        ...

    def prompt_text(self, body: Mapping[str, Any]) -> str:
        """All text that goes upstream, for hashing and for counting tokens."""
        ...

    def inject(self, body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
        """A copy of the request's body with ``chunks`` written into its prompt, as ``where`` says."""
        ...

    def events(
        self, body: AsyncIterator[bytes], content_type: str, recorder: RequestRecorder
    ) -> AsyncGenerator[UpstreamEvent, None]:
        """The events of a reply, whether it comes as a stream or whole."""
        ...

    def encode(self, output: Output) -> bytes:
        """An output of a streamed reply, in bytes. Empty where the client gets nothing for it."""
        ...

    def collect(self, body: bytes, outputs: Sequence[Output]) -> bytes:
        """The body of a unary reply, from the upstream's and what came out of the enforcement."""
        ...


@runtime_checkable
class ResumableAdapter(Protocol):
    """Implemented too by an adapter whose API lets an upstream continue a reply from a given beginning."""

    def not_resumable(self, body: Mapping[str, Any]) -> str | None:
        """Why the reply to ``body`` cannot be gone on with, in a word; None where it can."""
        ...

    def resume(self, body: Mapping[str, Any], turn: Continuation) -> dict[str, Any]:
        """The request that asks for it. ``body`` is that of the first call."""
        ...

    def resumed(
        self, body: AsyncIterator[bytes], content_type: str, recorder: RequestRecorder, like: Frame
    ) -> AsyncGenerator[UpstreamEvent, None]:
        """The events of its reply, as if they were of the one that ``like`` is a frame of."""
        ...


class GatewayRequest(Struct, frozen=True, kw_only=True):
    """A governed request as an adapter hands it over."""

    adapter: ProtocolAdapter
    parsed: ParsedRequest
    headers: Headers
    query: str = ""
    key: GatewayKey | None = None

    @property
    def key_names(self) -> tuple[str, ...] | None:
        """What the scope of a policy may know the caller's key by."""
        return None if self.key is None else self.key.names


class GatewayResponse(Struct, frozen=True, kw_only=True):
    """What to answer: ``stream`` where there is one, which must be closed, else ``body``.

    ``held``: text may be held back, so the client needs a sign of life now and then.
    """

    status: int
    headers: Headers
    body: bytes = b""
    stream: "ReplyStream | None" = None
    held: bool = False


class ReplyStream:
    """The bytes of a streamed reply. ``aclose`` ends the upstream call and every check, and writes the event if the end
    of the stream has not."""

    def __init__(self, adapter: ProtocolAdapter, scope: RequestScope, outputs: AsyncIterator[Output]) -> None:
        self._adapter = adapter
        self._scope = scope
        self._outputs = outputs

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for output in self._outputs:
                if isinstance(output, EndOfReply):
                    # Before the last byte leaves, so that with ``sync`` what the client saw end is in the log.
                    await self._scope.record()
                if data := self._adapter.encode(output):
                    yield data
        except EventLostError as error:
            yield self._adapter.encode(ReplyError(message=error.message, code=error.code, broken=True))
            yield self._adapter.encode(EndOfReply())
        except Exception:
            _log.exception("reply_failed")
            self._scope.recorder.fail("failed", "internal error", http_status=200)
            await self._scope.record()
            yield self._adapter.encode(
                ReplyError(message="The gateway failed to complete the reply.", code="internal_error", broken=True)
            )
            yield self._adapter.encode(EndOfReply())

    async def aclose(self) -> None:
        await self._scope.abandon()
