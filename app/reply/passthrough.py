"""A reply of which nothing is judged or decided before it leaves: it passes as it comes, and what it says is noted."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

from app.errors import GatewayError, UpstreamConnectError
from app.events.recorder import RequestRecorder
from app.protocols.common.stream_events import (
    ChoiceFinish,
    EndOfReply,
    FoundDocuments,
    Output,
    Passthrough,
    ReplyError,
    ReplyPart,
    TextDelta,
    UpstreamCitation,
    UpstreamEvent,
    Usage,
)
from app.reply.choice_result import CALLS
from app.reply.citations import cited_by_upstream
from app.reply.context import ReplyContext
from app.reply.grounding_object import worst
from app.reply.reader import DRAIN_S, INCOMPLETE, Mode
from app.reply.shadow_check import ShadowCheck
from judges.report import build_report
from judges.types import Chunk, ReplyVerdict
from policies.citations.extraction import reported_citations
from policies.replay import ChoiceLog

Late = Callable[[Sequence[Chunk]], Awaitable[tuple[ReplyContext, Any]]]
"""Takes in documents that a reply brings along; returns what holds for the choices after them, and its evidence."""


class PassedChoice:
    """One choice of such a reply. ``context`` are what held when it began."""

    trust_score = None

    def __init__(self, index: int, context: ReplyContext) -> None:
        self.index = index
        self.finish: ChoiceFinish | None = None
        self.ended = False
        self.unchecked: set[str] = set()
        self.cited: list[UpstreamCitation] = []
        self.texts: list[str] = []
        self._context = context

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def verdict(self) -> str:
        unjudged = self._unjudged()
        if unjudged is None:
            chunks = self._context.chunks
            unjudged = build_report((), characters=0, has_sources=bool(chunks), available=False).verdict
        return unjudged.value

    def settle(self, recorder: RequestRecorder) -> None:
        """Put what is known of it into the request's record."""
        recorder.choices.append(self._log)
        recorder.reply += self.text
        recorder.withheld.extend(self._context.options.reported.unsupported_claims)

    def _log(self) -> ChoiceLog:
        context = self._context
        inputs = context.policy_inputs(
            judged=self._unjudged() is None,
            tool_calls_only=bool(CALLS & self.unchecked),
            citations=[
                *cited_by_upstream(self.cited, (), context.names, context.positions),
                *reported_citations(context.options.reported.citations, context.chunks),
            ],
        )
        return ChoiceLog(
            inputs=inputs, positions=tuple(context.positions), ready=context.unjudged is None, complete=self.ended
        )

    def _unjudged(self) -> ReplyVerdict | None:
        """Why no judge has a verdict; None where one could have had it, and there was nothing to say it of."""
        if self._context.unjudged is not None:
            return self._context.unjudged
        spoke = any(not text.isspace() for text in self.texts)
        return ReplyVerdict.NOT_CHECKED if self.unchecked or spoke else None


class Passage:
    """Reads the reply as fast as ``run`` is read.

    ``context`` hold for every choice. ``watch`` judges the text on its way, None: nobody does. ``late``: None where
    documents that the reply brings along are no evidence.
    """

    mode = Mode.UNTOUCHED

    def __init__(
        self,
        *,
        recorder: RequestRecorder,
        context: ReplyContext,
        watch: ShadowCheck | None = None,
        late: Late | None = None,
    ) -> None:
        self._recorder, self._context, self._watch, self._late = recorder, context, watch, late
        self._choices: dict[int, PassedChoice] = {}
        self._failed = self._counted = False
        self._running: AsyncGenerator[Output, None] | None = None

    @property
    def choices(self) -> Sequence[PassedChoice]:
        return [self._choices[index] for index in sorted(self._choices)]

    def run(self, events: AsyncGenerator[UpstreamEvent, None]) -> AsyncGenerator[Output, None]:
        """The events' own bytes, and at the end a Done, after a Failure where the reply broke off."""
        self._running = self._pass(events)
        return self._running

    async def aclose(self) -> None:
        """Stop reading."""
        if self._running is not None:
            await self._running.aclose()

    def settle(self) -> None:
        """Put what is known of every choice into the request's record."""
        recorder, choices = self._recorder, self.choices
        if not self._counted and recorder.completion_tokens is None and choices:
            recorder.estimate_usage(sum(len(text) for choice in choices for text in choice.texts))
        for choice in choices:
            choice.settle(recorder)
        recorder.verdict, recorder.trust_score = worst(choices, default=recorder.verdict)

    async def _pass(self, events: AsyncGenerator[UpstreamEvent, None]) -> AsyncGenerator[Output, None]:
        broken: GatewayError | None = None
        done: EndOfReply | None = None
        async with aclosing(events):
            try:
                async for event in events:
                    done = await self._take(event)
                    if done is not None:
                        break
                    yield Passthrough(raw=event.raw)
                if done is None and not self._finished():
                    broken = UpstreamConnectError(INCOMPLETE)
            except GatewayError as error:
                broken = error
            for output in self._end(broken):
                yield output
            yield done or EndOfReply()
            if done is None or not done.last:
                async for output in _rest(events, trailer=done is not None and done.trailer):
                    yield output

    async def _take(self, event: UpstreamEvent) -> EndOfReply | None:
        """Note what an event says; its end, if it is the reply's."""
        for part in event.parts:
            if isinstance(part, TextDelta):
                self._hear(part)
                if self._watch is not None:
                    await self._watch.hear(part)
            elif isinstance(part, EndOfReply):
                return part
            elif not isinstance(part, FoundDocuments):
                self._note(part)
            elif self._late is not None:
                self._context, _ = await self._late(part.documents)
        return None

    def _end(self, broken: GatewayError | None) -> Sequence[Output]:
        self._recorder.marks["upstream_ended"] = self._recorder.elapsed_ms()
        for choice in self.choices:
            choice.ended = True
            self._recorder.finish(choice.finish.reason if choice.finish is not None else None)
        if broken is None or self._failed:
            return ()
        self._recorder.fail("incomplete", broken.message)
        return (ReplyError(message=broken.message, code=broken.code, broken=True),)

    def _finished(self) -> bool:
        return bool(self._choices) and all(choice.finish is not None for choice in self._choices.values())

    def _choice(self, index: int) -> PassedChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = PassedChoice(index, self._context)
        return choice

    def _hear(self, part: TextDelta) -> None:
        self._choice(part.choice).texts.append(part.text)
        self._recorder.mark("first_text")

    def _note(self, part: ReplyPart) -> None:
        match part:
            case ChoiceFinish():
                self._choice(part.choice).finish = part
            case Passthrough(choice=int(index), unchecked=str(kind)):
                self._choice(index).unchecked.add(kind)
            case UpstreamCitation():
                self._choice(part.choice).cited.append(part)
            case Usage():
                self._counted = True
                self._recorder.count(part.prompt_tokens, part.completion_tokens)
            case ReplyError():
                self._failed = True
                self._recorder.fail_upstream(part.message)


async def _rest(events: AsyncGenerator[UpstreamEvent, None], *, trailer: bool) -> AsyncGenerator[Output, None]:
    """Read what may still come, so that the connection can be used again; not for long."""
    with suppress(TimeoutError, GatewayError):
        async with asyncio.timeout(DRAIN_S):
            async for event in events:
                if trailer:
                    yield Passthrough(raw=event.raw)
