"""After a sentence fails, asks the upstream to continue the reply from the text released so far."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

import structlog

from app.errors import GatewayError
from app.protocols.common.stream_events import Continuation, UpstreamEvent

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherReply:
    """A further upstream call for a reply. Await ``end_earlier`` once you have stopped reading from the earlier
    call."""

    events: AsyncGenerator[UpstreamEvent, None]
    end_earlier: Callable[[], Awaitable[None]]


async def _never(_turn: Continuation) -> FurtherReply | None:
    return None


class Regeneration:
    """Makes at most ``limit`` further calls for one reply. ``send`` makes the call, and returns None if the upstream
    refuses it. ``unavailable`` is a one-word reason why no call is possible.
    """

    def __init__(
        self, *, limit: int, unavailable: str | None, send: Callable[[Continuation], Awaitable[FurtherReply | None]]
    ) -> None:
        self.unavailable = unavailable
        self._left = limit
        self._send = send

    @classmethod
    def unavailable_for(cls, reason: str) -> "Regeneration":
        """Create an instance that makes no calls. ``reason`` is a one-word reason."""
        return cls(limit=0, unavailable=reason, send=_never)

    async def ask(self, turn: Continuation) -> FurtherReply | None:
        """Make the further call. Return None if no call is possible, the limit is reached, or the call failed. A failed
        call is not retried.
        """
        if self.unavailable is not None or self._left <= 0:
            return None
        self._left -= 1
        try:
            again = await self._send(turn)
        except GatewayError as error:
            _log.warning("regeneration_failed", error=error.message)
            again = None
        if again is None:
            self._left = 0
        return again
