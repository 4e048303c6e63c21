"""A reply of which nothing is judged or decided before it leaves: it passes as it comes, and what it says is noted."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

from app.errors import GatewayError, UpstreamConnectError
from app.events.recorder import Trace
from app.protocols.common.stream_events import (
    Cited,
    Done,
    Event,
    Evidence,
    Failure,
    Finish,
    Output,
    Part,
    Passing,
    Text,
    Usage,
)
from app.reply.choice_result import CALLS
from app.reply.citations import cited_by_upstream
from app.reply.context import Terms
from app.reply.grounding_object import worst
from app.reply.reader import DRAIN_S, INCOMPLETE, Mode
from app.reply.shadow_check import Watch
from judges.report import build_report
from judges.types import Chunk, ReplyVerdict
from policies.citations.extraction import reported_citations
from policies.replay import ChoiceLog

Late = Callable[[Sequence[Chunk]], Awaitable[tuple[Terms, Any]]]
"""Takes in documents that a reply brings along; returns what holds for the choices after them, and its evidence."""


class PassedChoice:
    """One choice of such a reply. ``terms`` are what held when it began."""

    trust_score = None

    def __init__(self, index: int, terms: Terms) -> None:
        self.index = index
        self.finish: Finish | None = None
        self.ended = False
        self.unchecked: set[str] = set()
        self.cited: list[Cited] = []
        self.texts: list[str] = []
        self._terms = terms

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def verdict(self) -> str:
        unjudged = self._unjudged()
        if unjudged is None:
            chunks = self._terms.chunks
            unjudged = build_report((), characters=0, has_sources=bool(chunks), available=False).verdict
        return unjudged.value

    def settle(self, trace: Trace) -> None:
        """Put what is known of it into the request's record."""
        trace.choices.append(self._log)
        trace.reply += self.text
        trace.withheld.extend(self._terms.options.reported.unsupported_claims)

    def _log(self) -> ChoiceLog:
        terms = self._terms
        inputs = terms.policy_inputs(
            judged=self._unjudged() is None,
            tool_calls_only=bool(CALLS & self.unchecked),
            citations=[
                *cited_by_upstream(self.cited, (), terms.names, terms.positions),
                *reported_citations(terms.options.reported.citations, terms.chunks),
            ],
        )
        return ChoiceLog(
            inputs=inputs, positions=tuple(terms.positions), ready=terms.unjudged is None, complete=self.ended
        )

    def _unjudged(self) -> ReplyVerdict | None:
        """Why no judge has a verdict; None where one could have had it, and there was nothing to say it of."""
        if self._terms.unjudged is not None:
            return self._terms.unjudged
        spoke = any(not text.isspace() for text in self.texts)
        return ReplyVerdict.NOT_CHECKED if self.unchecked or spoke else None


class Passage:
    """Reads the reply as fast as ``run`` is read.

    ``terms`` hold for every choice. ``watch`` judges the text on its way, None: nobody does. ``late``: None where
    documents that the reply brings along are no evidence.
    """

    mode = Mode.UNTOUCHED

    def __init__(
        self,
        *,
        trace: Trace,
        terms: Terms,
        watch: Watch | None = None,
        late: Late | None = None,
    ) -> None:
        self._trace, self._terms, self._watch, self._late = trace, terms, watch, late
        self._choices: dict[int, PassedChoice] = {}
        self._failed = self._counted = False
        self._running: AsyncGenerator[Output, None] | None = None

    @property
    def choices(self) -> Sequence[PassedChoice]:
        return [self._choices[index] for index in sorted(self._choices)]

    def run(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Output, None]:
        """The events' own bytes, and at the end a Done, after a Failure where the reply broke off."""
        self._running = self._pass(events)
        return self._running

    async def aclose(self) -> None:
        """Stop reading."""
        if self._running is not None:
            await self._running.aclose()

    def settle(self) -> None:
        """Put what is known of every choice into the request's record."""
        trace, choices = self._trace, self.choices
        if not self._counted and trace.completion_tokens is None and choices:
            trace.estimate_usage(sum(len(text) for choice in choices for text in choice.texts))
        for choice in choices:
            choice.settle(trace)
        trace.verdict, trace.trust_score = worst(choices, default=trace.verdict)

    async def _pass(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Output, None]:
        broken: GatewayError | None = None
        done: Done | None = None
        async with aclosing(events):
            try:
                async for event in events:
                    done = await self._take(event)
                    if done is not None:
                        break
                    yield Passing(raw=event.raw)
                if done is None and not self._finished():
                    broken = UpstreamConnectError(INCOMPLETE)
            except GatewayError as error:
                broken = error
            for output in self._end(broken):
                yield output
            yield done or Done()
            if done is None or not done.last:
                async for output in _rest(events, trailer=done is not None and done.trailer):
                    yield output

    async def _take(self, event: Event) -> Done | None:
        """Note what an event says; its end, if it is the reply's."""
        for part in event.parts:
            if isinstance(part, Text):
                self._hear(part)
                if self._watch is not None:
                    await self._watch.hear(part)
            elif isinstance(part, Done):
                return part
            elif not isinstance(part, Evidence):
                self._note(part)
            elif self._late is not None:
                self._terms, _ = await self._late(part.documents)
        return None

    def _end(self, broken: GatewayError | None) -> Sequence[Output]:
        self._trace.marks["upstream_ended"] = self._trace.elapsed_ms()
        for choice in self.choices:
            choice.ended = True
            self._trace.finish(choice.finish.reason if choice.finish is not None else None)
        if broken is None or self._failed:
            return ()
        self._trace.fail("incomplete", broken.message)
        return (Failure(message=broken.message, code=broken.code, broken=True),)

    def _finished(self) -> bool:
        return bool(self._choices) and all(choice.finish is not None for choice in self._choices.values())

    def _choice(self, index: int) -> PassedChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = PassedChoice(index, self._terms)
        return choice

    def _hear(self, part: Text) -> None:
        self._choice(part.choice).texts.append(part.text)
        self._trace.mark("first_text")

    def _note(self, part: Part) -> None:
        match part:
            case Finish():
                self._choice(part.choice).finish = part
            case Passing(choice=int(index), unchecked=str(kind)):
                self._choice(index).unchecked.add(kind)
            case Cited():
                self._choice(part.choice).cited.append(part)
            case Usage():
                self._counted = True
                self._trace.count(part.prompt_tokens, part.completion_tokens)
            case Failure():
                self._failed = True
                self._trace.fail_upstream(part.message)


async def _rest(events: AsyncGenerator[Event, None], *, trailer: bool) -> AsyncGenerator[Output, None]:
    """Read what may still come, so that the connection can be used again; not for long."""
    with suppress(TimeoutError, GatewayError):
        async with asyncio.timeout(DRAIN_S):
            async for event in events:
                if trailer:
                    yield Passing(raw=event.raw)
