"""Forwards a reply byte for byte if no policy applies to it, and records its text."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.errors import GatewayError, UpstreamConnectError
from app.protocols.common.stream_events import (
    EndOfReply,
    FoundDocuments,
    Output,
    Passthrough,
    ReplyError,
    TextDelta,
    UpstreamEvent,
)
from app.reply.checks.shadow_check import ShadowCheck
from app.reply.reader import INCOMPLETE, UpstreamReply


class UntouchedReply(UpstreamReply):
    """A reply that is forwarded unchanged."""

    async def run(self, shadow_check: ShadowCheck | None) -> AsyncGenerator[Output, None]:
        """Yield the bytes of the events, and an EndOfReply at the end. If the reply was cut off, yield a ReplyError
        before the EndOfReply. The events of a whole reply have no bytes. The upstream is read only as fast as the
        output is consumed. ``shadow_check`` judges the text while it is forwarded."""
        end: EndOfReply | None = None
        broken: GatewayError | None = None
        async with aclosing(self._events):
            try:
                async for event in self._events:
                    if (end := await self._note_untouched(event, shadow_check)) is not None:
                        break
                    if event.raw:
                        yield Passthrough(raw=event.raw)
                if end is None and not self._choices.finished:
                    broken = UpstreamConnectError(INCOMPLETE)
            except GatewayError as error:
                broken = error
            if reported := self._finish_untouched(broken):
                yield reported
            yield end or EndOfReply()
            if end is None or not end.last:
                async for rest in self._drain():
                    if end is not None and end.trailer:
                        yield Passthrough(raw=rest.raw)

    async def _note_untouched(self, event: UpstreamEvent, shadow_check: ShadowCheck | None) -> EndOfReply | None:
        """Record the content of an event. Return the end of the reply if the event contains it."""
        self._recorder.usage.received += event.others
        for part in event.parts:
            if isinstance(part, TextDelta):
                self._recorder.usage.received += len(part.text)
                self._choices[part.choice].pass_on(part)
                if shadow_check is not None:
                    await shadow_check.hear(part)
            elif isinstance(part, EndOfReply):
                return part
            elif isinstance(part, FoundDocuments):
                await self._choices.add_documents(part.documents)
            else:
                self._note(part)
        return None

    def _finish_untouched(self, broken: GatewayError | None) -> ReplyError | None:
        self._recorder.timings.mark("upstream_ended", again=True)
        for choice in self._choices:
            choice.ended = True
            self._recorder.finish(choice.finish.reason if choice.finish is not None else None)
        return None if broken is None else self._report_break(broken)
