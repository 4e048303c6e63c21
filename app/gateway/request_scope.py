"""What is open while a request is answered: the upstream's response, tasks, and the record still to be written."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

import anyio
from msgspec import Struct, field

from app.concurrency import TaskScope
from app.errors import EventLostError, GatewayError
from app.events.recorder import RequestRecorder
from app.events.records import EventLog, RequestEvent
from app.reply.passthrough import Passage
from app.reply.shadow_check import ShadowCheck
from app.reply.stream_guard import Enforcement
from app.runs.run_service import JoinedRun
from app.upstream import Response


class RequestScope(Struct, kw_only=True):
    """Owns what one request holds. After ``aclose`` nothing of it is left, and its event is written."""

    recorder: RequestRecorder
    events: EventLog
    observers: Sequence[Callable[[RequestEvent], None]] = ()
    enforcement: Enforcement | Passage | None = None
    watch: ShadowCheck | None = None
    """Judges a reply that passes untouched."""
    run: JoinedRun | None = None
    """The run that the request belongs to."""
    tasks: TaskScope = field(default_factory=TaskScope)
    _responses: list[Response] = field(default_factory=list)
    _recorded: bool = False

    def hold(self, response: Response) -> None:
        """Take over a response of the upstream's: it is closed at the end, whatever the end is."""
        self._responses.append(response)

    async def end_earlier(self) -> None:
        """End every upstream call but the last."""
        await self._end_calls(leave=1)

    async def end_calls(self) -> None:
        """End every upstream call: their replies have been read."""
        await self._end_calls(leave=0)

    async def _end_calls(self, *, leave: int) -> None:
        while len(self._responses) > leave:
            await self._responses[0].aclose()
            self._responses.pop(0)

    async def __aenter__(self) -> "RequestScope":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _recorder: TracebackType | None
    ) -> None:
        """Write the event and let go of everything if the block fails; if it succeeds, that is left to its result."""
        if error is None:
            if self._recorded and (self._responses or self.tasks or self.watch is not None):
                await self.aclose()
        elif isinstance(error, GatewayError):
            self.recorder.fail("failed", error.message, http_status=error.status)
            await self.aclose()
            error.headers["x-groundlane-request-id"] = self.recorder.request_id
            if self.recorder.decisions or self.recorder.status == "blocked":
                error.headers["x-groundlane-action"] = self.recorder.action
        elif isinstance(error, Exception):
            self.recorder.fail("failed", "internal error", http_status=500)
            await self.aclose()
        else:  # cancelled: the client is gone
            await self.abandon()

    async def record(self) -> None:
        """Write the event, once."""
        if self._recorded:
            return
        recorder = self.recorder
        recorder.end_upstream()
        if self.watch is not None:
            # A client that goes away meanwhile ends this here, and what then closes the exchange records it.
            await self.watch.finish(truncated=recorder.status == "incomplete")
        self._recorded = True
        if self.enforcement is not None:
            self.enforcement.settle()
            if self.watch is not None:
                self.watch.settle(recorder, [choice.index for choice in self.enforcement.choices])
        event = recorder.ended()
        if self.run is not None:
            with anyio.CancelScope(shield=True):
                # Before the client has all of its reply, so that what it does next in the run finds this in it.
                await self.run.add(recorder)
        try:
            await self.events.append(event)
        except EventLostError as error:
            recorder.fail("failed", error.message, http_status=None if recorder.stream else error.status)
            event = recorder.ended()
            raise
        finally:
            for observer in self.observers:
                observer(event)

    async def abandon(self) -> None:
        """``aclose``, where there is nobody left to be told that the event is lost."""
        with suppress(EventLostError):
            await self.aclose()

    async def aclose(self) -> None:
        """End the upstream call and all tasks; a request that is not recorded by now was given up by its client."""
        with anyio.CancelScope(shield=True):
            if self.enforcement is not None:
                await self.enforcement.aclose()
            if self.watch is not None:
                await self.watch.aclose()
            await self.tasks.aclose()
            await self.end_calls()
            if not self._recorded:
                self.recorder.fail("cancelled", "the client went away")
            await self.record()
