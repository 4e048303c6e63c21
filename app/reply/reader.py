"""Reads the reply of one upstream call: its events in; out, in order, what passes and what is to be decided on.

Where policies decide, reading goes on while sentences are judged, so that several are judged at once. Where none does,
every byte passes as it came, and the reader only notes what the reply says.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, suppress
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, structs

from app.concurrency import TaskScope
from app.errors import GatewayError, UpstreamConnectError
from app.events.recorder import RequestRecorder
from app.protocols.common.known_fields import REASONING
from app.protocols.common.stream_events import (
    TOO_LONG,
    ChoiceFinish,
    EndOfReply,
    FoundDocuments,
    Frame,
    FrameRemainder,
    Output,
    Passthrough,
    ReleasedText,
    ReplyError,
    ReplyPart,
    ReplyStart,
    TextBreak,
    TextDelta,
    TextSlice,
    UpstreamCitation,
    UpstreamEvent,
    Usage,
)
from app.reply.checks.shadow_check import ShadowCheck
from app.reply.choice import Choice
from app.reply.inline_reasoning import Piece, PieceKind
from judges.concurrency import Turns
from judges.types import Chunk, Sentence, SentenceVerdict

_AHEAD = 128
"""How many items may wait to be released. Beyond it the upstream is not read: a slow client slows down its upstream."""
_DRAIN_S = 1.0
_DROPPED = 8
"""How many times ``max_chars`` is read and dropped until the upstream ends its reply by itself."""
_OF_A_CHOICE = (TextDelta, Passthrough, ChoiceFinish)
_AFTER_TEXT = frozenset({"refusal", "audio", "reasoning", "reasoning_content", "reasoning_details"})
"""Content of other kinds that stays behind the text before it, as tool calls do."""
_INCOMPLETE = "The upstream ended its reply before it was complete."


class Mode(StrEnum):
    """When text is released. ``UNTOUCHED``: nothing is judged or decided, and every byte passes as it came."""

    UNTOUCHED = "untouched"
    HOLD = "hold"
    LIVE = "live"
    FINAL = "final"


class PendingSentence(Struct, frozen=True, kw_only=True):
    """A sentence that is being judged."""

    choice: Choice
    sentence: Sentence
    slices: Sequence[TextSlice]
    frame: Frame
    verdict: "asyncio.Task[SentenceVerdict]"


class TextPause(Struct, frozen=True, kw_only=True):
    """The text of a choice pauses; ``slices`` is the white space before the pause."""

    choice: Choice
    slices: Sequence[TextSlice]


class ReasoningText(Struct, frozen=True, kw_only=True):
    """Reasoning in the text of a choice, or the tags around it, which pass unjudged."""

    choice: Choice
    slices: Sequence[TextSlice]


class EndOfText(Struct, frozen=True, kw_only=True):
    """The text of a choice has ended."""

    choice: Choice
    frame: Frame


class _Crash(Struct, frozen=True):
    error: Exception


Item = Output | PendingSentence | TextPause | ReasoningText | EndOfText
"""What passes, and what is to be decided on."""


class ChoiceOpener(Protocol):
    """Opens the choices of a reply."""

    def open(self, index: int) -> Choice:
        """The state of the choice at ``index``, when its first part arrives."""
        ...

    async def add_documents(self, documents: Sequence[Chunk]) -> None:
        """The reply brings documents along: they count for the choices opened from now on."""
        ...


class Choices:
    """The choices of one reply, by index."""

    def __init__(self, opener: ChoiceOpener) -> None:
        self._opener = opener
        self._open: dict[int, Choice] = {}

    def __getitem__(self, index: int) -> Choice:
        choice = self._open.get(index)
        if choice is None:
            choice = self._open[index] = self._opener.open(index)
        return choice

    def __iter__(self) -> Iterator[Choice]:
        return iter([self._open[index] for index in sorted(self._open)])

    @property
    def finished(self) -> bool:
        """There are choices, and the upstream finished every one."""
        return bool(self._open) and all(choice.finish is not None for choice in self._open.values())

    @property
    def received(self) -> int:
        """How many characters of text came."""
        return sum(choice.received for choice in self._open.values())

    async def add_documents(self, documents: Sequence[Chunk]) -> None:
        await self._opener.add_documents(documents)


class ReplyReader:
    """Reads one upstream call's reply, either by ``pass_through`` or by ``start`` and ``next``.

    ``max_choices``: how many choices the client asked for; None: any number. ``max_chars``: after so much text, the
    reply ends as if the upstream had ended it with ``length``. ``holds_calls``: a tool call waits for the verdict on
    the text before it even if the text itself does not (``live``). ``reasoning``: what becomes of reasoning in the
    text.
    """

    def __init__(
        self,
        events: AsyncGenerator[UpstreamEvent, None],
        *,
        mode: Mode,
        recorder: RequestRecorder,
        choices: Choices,
        max_choices: int | None = None,
        max_chars: int | None = None,
        holds_calls: bool = False,
        reasoning: str = "pass",
    ) -> None:
        self.usage: Usage | None = None
        """The token counts, once the upstream reports them."""
        self._events = events
        self._mode = mode
        self._recorder = recorder
        self._choices = choices
        self._max_choices = max_choices
        self._max_chars = self._chars_left = max_chars
        self._cut = False
        """Text of the reply was left out because there was too much."""
        self._holds_calls = holds_calls
        self._reasoning = reasoning
        self._failed = False
        self._late_usage: list[Usage] = []
        self._queue: asyncio.Queue[Item | _Crash | None]
        self._tasks = TaskScope()

    def _note(self, part: ReplyPart) -> None:
        """Note what a part says besides text and documents."""
        match part:
            case Passthrough(choice=int(index), unchecked=str(kind)):
                self._choices[index].findings.unchecked.add(kind)
            case ChoiceFinish():
                finish = structs.replace(part, reason=TOO_LONG, cut=True) if self._cut else part
                self._choices[part.choice].finish = finish
            case UpstreamCitation():
                self._choices[part.choice].findings.cite(part)
            case Usage():
                self.usage = part
                self._recorder.usage.report(part.prompt_tokens, part.completion_tokens)
            case ReplyStart():
                self._recorder.start_reply(part.model, part.prompt_tokens)
            case ReplyError():
                self._failed = True
                self._recorder.fail_upstream(part.message)

    # Passing through

    async def pass_through(self, shadow_check: ShadowCheck | None) -> AsyncGenerator[Output, None]:
        """The bytes of the events, and at the end an EndOfReply, after a ReplyError if the reply broke off.

        Reads as fast as it is read. ``shadow_check`` judges the text on its way.
        """
        end: EndOfReply | None = None
        broken: GatewayError | None = None
        async with aclosing(self._events):
            try:
                async for event in self._events:
                    if (end := await self._note_untouched(event, shadow_check)) is not None:
                        break
                    yield Passthrough(raw=event.raw)
                if end is None and not self._choices.finished:
                    broken = UpstreamConnectError(_INCOMPLETE)
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
        """Note what an event says; return the end of the reply if the event has it."""
        for part in event.parts:
            if isinstance(part, TextDelta):
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
        self._recorder.timings.end_reply()
        for choice in self._choices:
            choice.ended = True
            self._recorder.finish(choice.finish.reason if choice.finish is not None else None)
        return None if broken is None else self._report_break(broken)

    def _report_break(self, error: GatewayError) -> ReplyError | None:
        """What to tell the client of a reply that broke off; None if the upstream has reported an error already."""
        if self._failed:
            return None
        self._recorder.fail("incomplete", error.message)
        return ReplyError(message=error.message, code=error.code, broken=True)

    async def _drain(self) -> AsyncIterator[UpstreamEvent]:
        """Read on for a moment after the end, so that the connection can be used again."""
        with suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_DRAIN_S):
                async for event in self._events:
                    yield event

    # Reading ahead of the decisions

    def start(self) -> None:
        """Begin to read, until the events end or ``aclose``."""
        self._queue = asyncio.Queue(_AHEAD)
        self._turns = Turns()
        self._tasks.start(self._read())

    async def next(self) -> Item | None:
        """The next item, in the upstream's order; None at the end. Raises the error that reading failed with."""
        item = await self._queue.get()
        await self._turns.take()
        if isinstance(item, _Crash):
            raise item.error
        return item

    async def aclose(self) -> None:
        """Stop reading and judging."""
        await self._tasks.aclose()

    async def _read(self) -> None:
        try:
            end = await self._read_events()
            self._recorder.timings.end_reply()
            if end is None and not self._choices.finished:
                await self._break_off(UpstreamConnectError(_INCOMPLETE))
            else:
                await self._end(end or EndOfReply())
            if end is None or not end.last:
                async for _ in self._drain():
                    pass
        except GatewayError as error:
            await self._break_off(error)
        except Exception as error:  # whoever waits for the next item must learn of it
            await self._queue.put(_Crash(error))
        await self._queue.put(None)

    async def _read_events(self) -> EndOfReply | None:
        turns = Turns()
        async for event in self._events:
            await turns.take()
            for part in event.parts:
                if isinstance(part, EndOfReply):
                    return part
            if self._is_surplus(event):
                continue
            event = self._limited(event)
            if self._max_chars is not None and (self._chars_left or 0) < -_DROPPED * self._max_chars:
                return self._end_early()
            if self._mode is Mode.LIVE and not self._cut and self._passes_whole(event):
                await self._queue.put(_whole(event))
                for part in event.parts:
                    await self._take(part)
            else:
                for part in event.parts:
                    await self._forward(part)
        return None

    def _passes_whole(self, event: UpstreamEvent) -> bool:
        """Whether nothing is decided about any part of an event of a reply that is shown at once."""
        if len(event.parts) > 1 and len({part.choice for part in event.parts if isinstance(part, _OF_A_CHOICE)}) > 1:
            return False  # one of its choices may be blocked
        for part in event.parts:
            if isinstance(part, ChoiceFinish | Usage | ReplyError | EndOfReply):
                return False
            if isinstance(part, Passthrough) and part.call and self._holds_calls:
                return False
            if self._reasoning == "drop" and isinstance(part, TextDelta) and self._choices[part.choice].inline:
                return False  # it may be, or contain, what is left out
        return True

    def _limited(self, event: UpstreamEvent) -> UpstreamEvent:
        """``event`` without the text that the reply may no longer have."""
        left = self._chars_left
        if left is None:
            return event
        self._chars_left = left - sum(len(part.text) for part in event.parts if isinstance(part, TextDelta))
        if self._chars_left >= 0:
            return event
        self._cut = True
        parts: list[ReplyPart] = []
        for part in event.parts:
            if not isinstance(part, TextDelta):
                parts.append(part)
            elif left > 0:
                parts.append(structs.replace(part, text=part.text[:left], remainder=None))
                left -= len(part.text)
        return structs.replace(event, parts=tuple(parts))

    def _end_early(self) -> EndOfReply:
        """The upstream doesn't stop: the reply ends without it."""
        for choice in self._choices:
            if choice.finish is None:
                choice.finish = ChoiceFinish(choice=choice.index, reason=TOO_LONG, frame=choice.frame, cut=True)
        return EndOfReply(last=True)

    def _is_surplus(self, event: UpstreamEvent) -> bool:
        """Whether an event belongs to a choice that the client did not ask for: it is not judged, so not released."""
        if self._max_choices is None:
            return False
        for part in event.parts:
            if isinstance(part, _OF_A_CHOICE) and part.choice is not None and part.choice >= self._max_choices:
                return True
        return False

    async def _take(self, part: ReplyPart) -> None:
        """Take in what a part says, without passing it on."""
        match part:
            case TextDelta():
                await self._hear(part)
            case TextBreak():
                await self._pause(self._choices[part.choice])
            case FoundDocuments():
                await self._choices.add_documents(part.documents)
            case _:
                self._note(part)

    async def _hear(self, part: TextDelta, *, show: bool = False) -> None:
        """Take in text. ``show``: the client is to get it before its verdict."""
        choice = self._choices[part.choice]
        if choice.closing:
            choice.findings.unchecked.add("text_after_end")
        elif choice.inline is None:
            await self._hear_answer(choice, part, show=show)
        else:
            await self._hear_pieces(choice, choice.inline.take(part), show=show)

    async def _hear_answer(self, choice: Choice, part: TextDelta, *, show: bool = False) -> None:
        if show:
            await self._queue.put(_unjudged(part))
        choice.hold(part)
        for sentence in await choice.push(part.text):
            await self._start_check(choice, sentence, part.frame)

    async def _hear_pieces(self, choice: Choice, pieces: Sequence[Piece], *, show: bool) -> None:
        """Text at the beginning of a choice: reasoning, the answer, or both."""
        judged = self._reasoning == "judge"
        if choice.inline is not None and choice.inline.over:
            choice.inline = None
        for piece in pieces:
            if piece.kind is PieceKind.ANSWER or (piece.kind is PieceKind.REASONING and judged):
                for part in piece.deltas:
                    await self._hear_answer(choice, part, show=show)
                continue
            for part in piece.deltas:
                choice.hear(part)
            if self._reasoning == "drop":
                self._recorder.dropped[REASONING] += piece.length
                continue
            if judged and choice.holds_text:
                await self._pause(choice)  # no sentence goes from the reasoning into the answer
            elif not judged:
                choice.findings.unchecked.add(REASONING)
            await self._queue.put(ReasoningText(choice=choice, slices=[_slice_of(part) for part in piece.deltas]))

    @property
    def _shows_pieces(self) -> bool:
        """Text is shown before its verdict, but not before it is known whether it is reasoning."""
        return self._mode is Mode.LIVE and self._reasoning == "drop"

    async def _settle_inline(self, choice: Choice) -> None:
        if choice.inline is not None:
            await self._hear_pieces(choice, choice.inline.flush(), show=self._shows_pieces)

    async def _forward(self, part: ReplyPart) -> None:
        """Take in a part and pass on what may be released of it now.

        Text is released by the sentence. A finish that is not final may be followed by text (some providers finish
        their reasoning first), so it waits for the end of the reply, and the token counts wait behind it.
        """
        if isinstance(part, TextDelta):
            if part.remainder is not None:
                await self._queue.put(FrameRemainder(choice=part.choice, json=part.remainder))
            if self._mode is Mode.LIVE and not self._shows_pieces:
                await self._queue.put(_unjudged(part))
            await self._hear(part, show=self._shows_pieces)
            return
        if isinstance(part, Passthrough) and part.choice is not None and (part.call or part.unchecked in _AFTER_TEXT):
            # A call must not overtake the text before it: that is settled first.
            choice = self._choices[part.choice]
            if choice.holds_text or (choice.inline is not None and choice.inline.pending):
                await self._pause(choice)
        await self._take(part)
        if isinstance(part, ReplyError) or (isinstance(part, Passthrough) and not part.opaque):
            await self._queue.put(part)
        elif isinstance(part, ChoiceFinish) and part.final:
            await self._end_text(self._choices[part.choice])
        elif isinstance(part, Usage) and part.frame is not None:
            self._late_usage.append(part)

    async def _start_check(self, choice: Choice, sentence: Sentence, frame: Frame) -> None:
        # White space between sentences goes with the later one: tokenizers attach it to the next word, and a sentence
        # that is left out takes it along.
        slices = choice.cut(sentence.span.start + len(sentence.text.rstrip()))
        if choice.blocked or choice.repeats(sentence):
            return
        verdict = self._tasks.start(choice.check(sentence))
        await self._queue.put(
            PendingSentence(choice=choice, sentence=sentence, slices=slices, frame=frame, verdict=verdict)
        )

    async def _pause(self, choice: Choice) -> None:
        await self._settle_inline(choice)
        for sentence in choice.pause():
            await self._start_check(choice, sentence, choice.frame)
        await self._queue.put(TextPause(choice=choice, slices=choice.cut()))

    async def _end_text(self, choice: Choice, *, truncated: bool = False) -> None:
        if choice.closing:
            return
        await self._settle_inline(choice)
        choice.closing = True
        finish = choice.finish
        frame = finish.frame if finish else choice.frame
        cut_off = truncated or (finish is not None and (finish.cut or finish.reason == "length"))
        for sentence in choice.flush(truncated=cut_off):
            await self._start_check(choice, sentence, frame)
        await self._queue.put(EndOfText(choice=choice, frame=frame))

    async def _end(self, end: EndOfReply, *, truncated: bool = False, error: ReplyError | None = None) -> None:
        for choice in self._choices:
            await self._end_text(choice, truncated=truncated)
        for usage in self._late_usage:
            await self._queue.put(usage)
        if error is not None:
            await self._queue.put(error)
        await self._queue.put(end)

    async def _break_off(self, error: GatewayError) -> None:
        """The reply broke off: release what came, then report it."""
        await self._end(EndOfReply(), truncated=True, error=self._report_break(error))


def _unjudged(part: TextDelta) -> ReleasedText:
    """Text that is shown before its verdict, in a frame of its own."""
    return ReleasedText(choice=part.choice, text=part.text, slices=(_slice_of(part),))


def _slice_of(part: TextDelta) -> TextSlice:
    return TextSlice(frame=part.frame, text=part.text, tokens=part.frame.tokens or ())


def _whole(event: UpstreamEvent) -> Passthrough:
    """An event whose bytes pass as they are."""
    choices = {part.choice for part in event.parts if isinstance(part, _OF_A_CHOICE)}
    return Passthrough(raw=event.raw, choice=choices.pop() if len(choices) == 1 else None)
