"""Reads the reply of one upstream call, and converts its events, in order, to outputs: content to forward, and
sentences to decide on. Reading continues while sentences are judged, so that several can be judged at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress

from msgspec import Struct, structs

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
from app.reply.choice import Choice, Choices
from app.reply.inline_reasoning import Piece, PieceKind
from app.reply.reader_output import EndOfText, Item, Mode, PendingSentence, ReasoningText, TextPause
from judges.concurrency import TaskScope, Turns
from judges.types import Sentence

_AHEAD = 128
"""The maximum number of items waiting to be released. Once it is reached, reading from the upstream stops, so a slow
client slows down the upstream."""
_DRAIN_S = 1.0
_DROPPED = 8
"""After a reply exceeds ``max_bytes``, the reader waits for the upstream to end it. Meanwhile, it reads and drops at
most this many times ``max_bytes``."""
_OF_A_CHOICE = (TextDelta, Passthrough, ChoiceFinish)
_AFTER_TEXT = frozenset({"refusal", "audio", "reasoning", "reasoning_content", "reasoning_details"})
"""Kinds of content other than text that, like tool calls, must not be sent before the preceding text."""
_NO_REASON = "stop"
"""The finish reason of a choice if the upstream gives none."""
INCOMPLETE = "The upstream ended its reply before it was complete."


class _Crash(Struct, frozen=True):
    error: Exception


class UpstreamReply:
    """Base class for readers of the reply to one upstream call."""

    def __init__(
        self, events: AsyncGenerator[UpstreamEvent, None], *, recorder: RequestRecorder, choices: Choices
    ) -> None:
        self.usage: Usage | None = None
        """The token counts, once the upstream reports them."""
        self._events = events
        self._recorder = recorder
        self._choices = choices
        self._cut = False
        """Whether part of the reply's text was left out because the reply was too long."""
        self._failed = False

    def _note(self, part: ReplyPart) -> None:
        """Record the information in a part that is neither text nor documents."""
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

    def _report_break(self, error: GatewayError) -> ReplyError | None:
        """Record that the reply was cut off, and return the error for the client. If the upstream has already reported
        an error, do nothing and return None."""
        if self._failed:
            return None
        self._recorder.fail("incomplete", error.message)
        return ReplyError(message=error.message, code=error.code, broken=True)

    async def _drain(self) -> AsyncIterator[UpstreamEvent]:
        """Continue reading briefly after the end of the reply, so that the connection can be reused."""
        with suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_DRAIN_S):
                async for event in self._events:
                    yield event


class ReplyReader(UpstreamReply):
    """Reads a reply without waiting for the decisions on it. ``max_choices`` is the number of choices that the client
    asked for, or None for any number. After ``max_bytes`` of text, the reply ends as if the upstream had ended it with
    ``length``. ``holds_calls`` means that a tool call waits for the verdict on the text before it, even in ``live``
    mode, in which the text itself doesn't wait. ``reasoning`` says how reasoning in the text is handled."""

    def __init__(
        self,
        events: AsyncGenerator[UpstreamEvent, None],
        *,
        mode: Mode,
        recorder: RequestRecorder,
        choices: Choices,
        max_choices: int | None = None,
        max_bytes: int | None = None,
        holds_calls: bool = False,
        reasoning: str = "pass",
    ) -> None:
        super().__init__(events, recorder=recorder, choices=choices)
        self._mode = mode
        self._max_choices = max_choices
        self._max_bytes = self._bytes_left = max_bytes
        self._holds_calls = holds_calls
        self._reasoning = reasoning
        self._shows_answer = mode is Mode.LIVE and reasoning == "drop"
        """Whether text is shown before its verdict, but only once it is known not to be reasoning."""
        self._late_usage: list[Usage] = []
        self._queue: asyncio.Queue[Item | _Crash | None]
        self._tasks = TaskScope()

    def start(self) -> None:
        """Read until the events end or ``aclose`` is called."""
        self._queue = asyncio.Queue(_AHEAD)
        self._turns, self._reading_turns = Turns(), Turns()
        self._tasks.start(self._read())

    async def next(self) -> Item | None:
        """Return the next item in the upstream's order, or None at the end. If reading failed, raise its error."""
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
            self._recorder.timings.mark("upstream_ended", again=True)
            if end is None and not self._choices.finished:
                await self._break_off(UpstreamConnectError(INCOMPLETE))
            else:
                await self._end(end or EndOfReply())
            if end is None or not end.last:
                async for _ in self._drain():
                    pass
        except GatewayError as error:
            await self._break_off(error)
        except Exception as error:  # ``next`` raises it
            await self._queue.put(_Crash(error))
        await self._queue.put(None)

    async def _read_events(self) -> EndOfReply | None:
        async for event in self._events:
            await self._reading_turns.take()
            self._recorder.usage.received += event.others
            for part in event.parts:
                if isinstance(part, EndOfReply):
                    return part
                if isinstance(part, TextDelta):
                    self._recorder.usage.received += len(part.text)
            asked_for = self._asked_for(event)
            is_whole, event = asked_for is event, self._limited(asked_for)
            if self._max_bytes is not None and (self._bytes_left or 0) < -_DROPPED * self._max_bytes:
                return self._end_early()
            if self._mode is Mode.LIVE and is_whole and not self._cut and self._passes_whole(event):
                await self._queue.put(_whole(event))
                for part in event.parts:
                    await self._take(part)
            else:
                for part in event.parts:
                    await self._forward(part)
        return None

    def _passes_whole(self, event: UpstreamEvent) -> bool:
        """Return whether an event can be forwarded whole and without a decision. The reply must be in ``live`` mode."""
        if len(event.parts) > 1 and len({part.choice for part in event.parts if isinstance(part, _OF_A_CHOICE)}) > 1:
            return False  # one of its choices may be blocked
        for part in event.parts:
            if isinstance(part, ChoiceFinish | Usage | ReplyError | EndOfReply):
                return False
            if isinstance(part, Passthrough) and part.call and self._holds_calls:
                return False
            if self._reasoning == "drop" and isinstance(part, TextDelta) and self._choices[part.choice].inline:
                return False  # it may be reasoning that is left out, or contain some
        return True

    def _limited(self, event: UpstreamEvent) -> UpstreamEvent:
        """Return ``event`` without text beyond the limit."""
        left = self._bytes_left
        if left is None:
            return event
        self._bytes_left = left - sum(_size(part.text) for part in event.parts if isinstance(part, TextDelta))
        if self._bytes_left >= 0:
            return event
        self._cut = True
        parts: list[ReplyPart] = []
        for part in event.parts:
            if not isinstance(part, TextDelta):
                parts.append(part)
            elif left > 0:
                parts.append(structs.replace(part, text=_first(left, part.text), remainder=None))
                left -= _size(part.text)
        return structs.replace(event, parts=tuple(parts))

    def _end_early(self) -> EndOfReply:
        """End the reply, because the upstream doesn't stop sending."""
        for choice in self._choices:
            if choice.finish is None:
                choice.finish = ChoiceFinish(choice=choice.index, reason=TOO_LONG, frame=choice.frame, cut=True)
        return EndOfReply(last=True)

    def _asked_for(self, event: UpstreamEvent) -> UpstreamEvent:
        """Return ``event`` without the choices that the client did not ask for. Such choices aren't judged, so neither
        they nor the bytes of an event that contains them are released."""
        limit = self._max_choices
        if limit is None:
            return event
        kept = [part for part in event.parts if (getattr(part, "choice", None) or 0) < limit]
        return event if len(kept) == len(event.parts) else UpstreamEvent(raw=b"", parts=kept)

    async def _take(self, part: ReplyPart) -> None:
        """Process the content of a part without releasing it."""
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
        """Process text. ``show`` means that the client receives it before its verdict."""
        choice = self._choices[part.choice]
        if choice.closing:
            choice.findings.unchecked.add("text_after_end")
        elif choice.inline is None or part.frame.field is not None:
            await self._hear_answer(choice, part, show=show)
        else:
            await self._hear_pieces(choice, choice.inline.take(part), show=show)

    async def _hear_answer(self, choice: Choice, part: TextDelta, *, show: bool = False) -> None:
        if part.frame.field != choice.texts.last:
            await self._pause(choice)  # no sentence spans two fields
        if show:
            await self._queue.put(_unjudged(part))
        choice.hold(part)
        for sentence in await choice.incoming.push(part.text):
            await self._start_check(choice, sentence, part.frame)

    async def _hear_pieces(self, choice: Choice, pieces: Sequence[Piece], *, show: bool) -> None:
        """Process text at the beginning of a choice, which may be reasoning, the answer, or both."""
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
            if judged and choice.incoming:
                await self._pause(choice)  # no sentence spans the reasoning and the answer
            elif not judged:
                choice.findings.unchecked.add(REASONING)
            await self._queue.put(ReasoningText(choice=choice, slices=[_slice_of(part) for part in piece.deltas]))

    async def _settle_inline(self, choice: Choice) -> None:
        if choice.inline is not None:
            await self._hear_pieces(choice, choice.inline.flush(), show=self._shows_answer)

    async def _forward(self, part: ReplyPart) -> None:
        """Process a part, and pass on content that may be released now. Text is released sentence by sentence. Some
        providers send a finish after the reasoning and before the text. Therefore, a finish that is not final is held
        until the end of the reply, and so are the token counts."""
        if isinstance(part, TextDelta):
            if part.remainder is not None:
                await self._queue.put(FrameRemainder(choice=part.choice, json=part.remainder))
            if self._mode is Mode.LIVE and not self._shows_answer:
                await self._queue.put(_unjudged(part))
            await self._hear(part, show=self._shows_answer)
            return
        if isinstance(part, Passthrough) and (part.call or part.unchecked in _AFTER_TEXT):
            # A tool call must not overtake the text before it, so the policies decide on that text first.
            for choice in self._choices if part.choice is None else (self._choices[part.choice],):
                if not choice.closing and (choice.incoming or (choice.inline is not None and choice.inline.pending)):
                    await self._pause(choice)
        await self._take(part)
        if isinstance(part, ReplyError) or (isinstance(part, Passthrough) and not part.opaque):
            await self._queue.put(part)
        elif isinstance(part, ChoiceFinish) and part.final:
            await self._end_text(self._choices[part.choice])
        elif isinstance(part, Usage) and part.frame is not None:
            self._late_usage.append(part)

    async def _start_check(self, choice: Choice, sentence: Sentence, frame: Frame) -> None:
        await self._reading_turns.take()
        if not sentence.text.strip():
            return
        # Whitespace between two sentences belongs to the second sentence and is left out with it, because tokenizers
        # attach whitespace to the next word.
        slices = choice.incoming.cut(sentence.span.start + len(sentence.text.rstrip()))
        if choice.findings.blocked or choice.repeats(sentence):
            return
        verdict = self._tasks.start(choice.check(sentence))
        await self._queue.put(
            PendingSentence(choice=choice, sentence=sentence, slices=slices, frame=frame, verdict=verdict)
        )

    async def _pause(self, choice: Choice) -> None:
        await self._settle_inline(choice)
        for sentence in choice.incoming.pause():
            await self._start_check(choice, sentence, choice.frame)
        await self._queue.put(TextPause(choice=choice, slices=choice.incoming.cut()))

    async def _end_text(self, choice: Choice, *, truncated: bool = False) -> None:
        if choice.closing:
            return
        await self._settle_inline(choice)
        choice.closing = True
        if choice.finish is None and choice.frame.json and not truncated and not self._failed:
            # The upstream ended the reply without a finish reason for the choice.
            choice.finish = ChoiceFinish(choice=choice.index, reason=_NO_REASON, frame=choice.frame)
        finish = choice.finish
        frame = finish.frame if finish else choice.frame
        cut_off = truncated or (finish is not None and (finish.cut or finish.reason == "length"))
        for sentence in choice.incoming.flush(truncated=cut_off):
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
        """Handle a reply that was cut off: release the text that arrived, then report the error."""
        await self._end(EndOfReply(), truncated=True, error=self._report_break(error))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _first(size: int, text: str) -> str:
    """Return the beginning of ``text`` that fits in ``size`` bytes."""
    return text[:size] if text.isascii() else text.encode("utf-8", "surrogatepass")[:size].decode("utf-8", "ignore")


def _unjudged(part: TextDelta) -> ReleasedText:
    """Build the output for text that is shown before its verdict. It is sent in a separate frame."""
    return ReleasedText(choice=part.choice, text=part.text, slices=(_slice_of(part),))


def _slice_of(part: TextDelta) -> TextSlice:
    return TextSlice(frame=part.frame, text=part.text, tokens=part.frame.tokens or ())


def _whole(event: UpstreamEvent) -> Passthrough:
    """Build the output for an event whose bytes are forwarded unchanged."""
    choices = {part.choice for part in event.parts if isinstance(part, _OF_A_CHOICE)}
    return Passthrough(raw=event.raw, choice=choices.pop() if len(choices) == 1 else None)
