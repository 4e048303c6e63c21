"""Owns the resources of a request while the gateway handles it: upstream responses, tasks, and the pending log
record."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from types import TracebackType

import anyio
import httpx
import structlog
from msgspec import Struct, field

from app.errors import EventLostError, GatewayError
from app.events.recorder import RequestRecorder
from app.events.records import EventLog, RecordedRequest
from app.events.request_record import RequestRecord
from app.protocols.common.stream_events import ChoiceEnd, EndOfReply, Output, ReplyError
from app.reply.stream_guard import StreamGuard
from app.runs.run_service import JoinedRun
from judges.concurrency import TaskScope, run

_log = structlog.stdlib.get_logger(__name__)


class RequestLifetime(Struct, kw_only=True):
    """Owns the resources of one request. ``aclose`` releases them all and writes the event. ``run`` is the run that the
    request belongs to.
    """

    recorder: RequestRecorder
    events: EventLog
    observers: Sequence[Callable[[RecordedRequest], None]] = ()
    guard: StreamGuard | None = None
    run: JoinedRun | None = None
    tasks: TaskScope = field(default_factory=TaskScope)
    _responses: list[httpx.Response] = field(default_factory=list)
    _record: RequestRecord | None = None

    def hold(self, response: httpx.Response) -> None:
        """Take ownership of an upstream response. It is closed however the request ends."""
        self._responses.append(response)

    async def end_calls(self, *, leave: int = 0) -> None:
        """End the upstream calls, earliest first. The last ``leave`` calls stay open."""
        while len(self._responses) > leave:
            await self._responses[0].aclose()
            self._responses.pop(0)

    async def __aenter__(self) -> "RequestLifetime":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """If the block fails, write the event and release all resources. If it succeeds, the response that it returns
        does this later."""
        if error is None:
            if self._record is not None and (self._responses or self.tasks):
                await self.aclose()
        elif isinstance(error, GatewayError):
            self.recorder.fail("failed", error.message, http_status=error.status)
            await self.aclose()
            error.headers["x-groundlane-request-id"] = self.recorder.request_id
            record = await self.record()
            if record.decisions or record.status == "blocked":
                error.headers["x-groundlane-action"] = record.action
        elif isinstance(error, Exception):
            self.recorder.fail("failed", "internal error", http_status=500)
            await self.aclose()
        else:  # cancelled, because the client has disconnected
            await self.abandon()

    async def record(self) -> RequestRecord:
        """Write the event, unless it is already written."""
        if self._record is not None:
            return self._record
        recorder = self.recorder
        recorder.timings.end_upstream()
        if self.guard is not None:
            # This may wait for a shadow check. If the client disconnects in the meantime, ``aclose`` writes the event.
            recorder.reply = await self.guard.finish(truncated=recorder.status == "incomplete")
        record = recorder.record()
        if not record.reply.is_short:
            # The event is built in a thread and cached, so that neither the event log nor an observer builds it on the
            # event loop. Errors are ignored here, because they occur again, and are reported, when the event is used.
            with suppress(Exception):
                await asyncio.to_thread(record.event)
        self._record = record
        if self.run is not None:
            with anyio.CancelScope(shield=True):
                # The run is updated before the client has the whole reply, so that the client's next call finds this
                # request in the run.
                await self.run.add(self._record)
        try:
            await self.events.append(self._record)
        except EventLostError as error:
            recorder.fail("failed", error.message, http_status=None if recorder.info.stream else error.status)
            self._record = recorder.record()
            raise
        finally:
            for observer in self.observers:
                observer(self._record)
        return self._record

    async def abandon(self) -> None:
        """Do the same as ``aclose``, but ignore the loss of the event, because the client can no longer be told."""
        with suppress(EventLostError):
            await self.aclose()

    async def aclose(self) -> None:
        """End the upstream call and all tasks, and write the event. If no outcome has been recorded yet, the event says
        that the client cancelled the request."""
        with anyio.CancelScope(shield=True):
            if self.guard is not None:
                await self.guard.aclose()
            await self.tasks.aclose()
            await self.end_calls()
            if self._record is None:
                self.recorder.fail("cancelled", "the client went away")
            await self.record()


class ReplyStream:
    """The bytes of a streamed reply. ``aclose`` ends the upstream call and every check, and writes the event unless the
    end of the stream has already done so.
    """

    def __init__(
        self, encode: Callable[[Output], bytes], scope: RequestLifetime, outputs: AsyncIterator[Output]
    ) -> None:
        self._encode = encode
        self._scope = scope
        self._outputs = outputs

    async def __aiter__(self) -> AsyncIterator[bytes]:
        is_short = True
        try:
            async for output in self._outputs:
                if isinstance(output, ChoiceEnd):
                    is_short = is_short and output.is_short
                if isinstance(output, EndOfReply):
                    # The event is recorded before the last byte is sent. With ``sync`` durability, it is therefore
                    # stored before the client sees the end of the reply.
                    await self._scope.record()
                if data := await run(is_short, self._encode, output):
                    yield data
        except EventLostError as error:
            yield self._encode(ReplyError(message=error.message, code=error.code, broken=True))
            yield self._encode(EndOfReply())
        except Exception:
            _log.exception("reply_failed")
            self._scope.recorder.fail("failed", "internal error", http_status=200)
            await self._scope.record()
            message = "The gateway failed to complete the reply."
            yield self._encode(ReplyError(message=message, code="internal_error", broken=True))
            yield self._encode(EndOfReply())

    async def aclose(self) -> None:
        await self._scope.abandon()
