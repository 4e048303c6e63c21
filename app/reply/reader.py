"""Reading the reply of one upstream call: its events in, and in order what is to be decided on before it leaves.

Reading goes on while sentences are judged, so that several are judged at once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from app.concurrency import TaskScope
from app.errors import GatewayError, UpstreamConnectError
from app.events.recorder import RequestRecorder
from app.protocols.common.stream_events import (
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
    TextBreak,
    TextDelta,
    TextSlice,
    UpstreamCitation,
    UpstreamEvent,
    Usage,
)
from app.reply.choice import Choice
from judges.types import Chunk, Sentence, SentenceVerdict

_AHEAD = 128
"""How many parts may wait to leave. Over it the upstream is not read: a slow client slows its upstream, not us."""

DRAIN_S = 1.0
_OF_A_CHOICE = (TextDelta, Passthrough, ChoiceFinish)
INCOMPLETE = "The upstream ended its reply before it was complete."

Opener = Callable[[int], Choice]
"""Makes the state of the choice of that number."""

Admit = Callable[[Sequence[Chunk]], Awaitable[Opener]]
"""Takes in documents that a reply brings along and returns what opens the choices after them."""


class Mode(StrEnum):
    """When text leaves.

    ``UNTOUCHED``: nothing is judged or decided, bytes go through untouched (``app.reply.passthrough``).
    """

    UNTOUCHED = "untouched"
    HOLD = "hold"
    LIVE = "live"
    FINAL = "final"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A sentence on its way through the judge."""

    choice: Choice
    sentence: Sentence
    slices: Sequence[TextSlice]
    frame: Frame
    verdict: asyncio.Task[SentenceVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The text of a choice pauses; ``slices`` is the white space that ended it."""

    choice: Choice
    slices: Sequence[TextSlice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """A choice has no more text to come."""

    choice: Choice
    frame: Frame


@dataclass(frozen=True, slots=True)
class _Crash:
    error: Exception


Item = Output | Check | Pause | Close
"""What is to be decided on, or passes."""


class Choices:
    """The choices of one reply, by number; each is made by ``open`` when its first part arrives."""

    def __init__(self, open_choice: Opener) -> None:
        self.open = open_choice
        self._made: dict[int, Choice] = {}

    def __getitem__(self, index: int) -> Choice:
        choice = self._made.get(index)
        if choice is None:
            choice = self._made[index] = self.open(index)
        return choice

    def __iter__(self) -> Iterator[Choice]:
        return iter([self._made[index] for index in sorted(self._made)])

    def __len__(self) -> int:
        return len(self._made)


class Reading:
    """Reads ``events`` from the moment it is made until they end, or ``aclose``.

    ``most``: how many choices the reply has, and not one more; None: any number. ``admit`` is told of documents that
    the reply brings along; None: they are no evidence.
    """

    def __init__(
        self,
        events: AsyncIterator[UpstreamEvent],
        *,
        mode: Mode,
        recorder: RequestRecorder,
        choices: Choices,
        most: int | None,
        admit: Admit | None,
    ) -> None:
        self.usage: Usage | None = None
        """The token counts, once they are known."""
        self._mode = mode
        self._recorder = recorder
        self._choices = choices
        self._most = most
        self._admit = admit
        self._queue: asyncio.Queue[Item | _Crash | None] = asyncio.Queue(_AHEAD)
        self._tasks = TaskScope()
        self._late: list[Usage] = []
        self._failed = False
        self._tasks.start(self._read(events))

    async def next(self) -> Item | None:
        """What comes next, in the upstream's order; None at the end. Raises what reading came to grief over."""
        item = await self._queue.get()
        if isinstance(item, _Crash):
            raise item.error
        return item

    async def aclose(self) -> None:
        """Stop reading and judging."""
        await self._tasks.aclose()

    async def _read(self, events: AsyncIterator[UpstreamEvent]) -> None:
        try:
            done = await self._take_all(events)
            self._recorder.marks["upstream_ended"] = self._recorder.elapsed_ms()
            if done is None and not self._finished():
                await self._break(UpstreamConnectError(INCOMPLETE))
            else:
                await self._end(done or EndOfReply())
            if done is None or not done.last:
                await self._drain(events)
        except GatewayError as error:
            await self._break(error)
        except Exception as error:  # whoever waits for the next item must learn of it
            await self._queue.put(_Crash(error))
        await self._queue.put(None)

    async def _take_all(self, events: AsyncIterator[UpstreamEvent]) -> EndOfReply | None:
        async for event in events:
            for part in event.parts:
                if isinstance(part, EndOfReply):
                    return part
            if self._surplus(event):
                continue
            if self._mode is Mode.LIVE and not _ends(event):
                await self._queue.put(_whole(event))
                for part in event.parts:
                    await self._note(part)
            else:
                for part in event.parts:
                    await self._forward(part)
        return None

    def _surplus(self, event: UpstreamEvent) -> bool:
        """Whether an event is of a choice that the client did not ask for: it is not judged, so it does not leave."""
        if self._most is None:
            return False
        for part in event.parts:
            if isinstance(part, _OF_A_CHOICE) and part.choice is not None and part.choice >= self._most:
                return True
        return False

    async def _drain(self, events: AsyncIterator[UpstreamEvent]) -> None:
        """Read what may still come after the end, so that the connection can be used again; not for long."""
        with suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(DRAIN_S):
                async for _ in events:
                    pass

    async def _note(self, part: ReplyPart) -> None:
        """Take in what a part says; its bytes go to the client by another way."""
        match part:
            case TextDelta():
                await self._hear(part)
            case TextBreak():
                await self._pause(self._choices[part.choice])
            case UpstreamCitation():
                self._choices[part.choice].cite(part)
            case FoundDocuments() if self._admit is not None:
                self._choices.open = await self._admit(part.documents)
            case Passthrough(choice=int(index), unchecked=str(kind)):
                self._choices[index].unchecked.add(kind)
            case ChoiceFinish():
                self._choices[part.choice].finish = part
            case Usage():
                self.usage = part
                self._recorder.count(part.prompt_tokens, part.completion_tokens)
            case ReplyError():
                self._failed = True
                self._recorder.fail_upstream(part.message)
            case Passthrough() | FoundDocuments() | EndOfReply():
                pass

    async def _hear(self, part: TextDelta) -> None:
        choice = self._choices[part.choice]
        if choice.closing:
            choice.unchecked.add("text_after_end")
        else:
            choice.hold(part)
            for sentence in await choice.push(part.text):
                await self._start_check(choice, sentence, part.frame)

    async def _forward(self, part: ReplyPart) -> None:
        """Take in a part and send on what of it may leave now.

        Text leaves by sentence. A finish that is not final may still be followed by text, since some providers finish
        their reasoning first, so it waits for the end, and token counts wait behind it.
        """
        if isinstance(part, TextDelta):
            if part.shell is not None:
                await self._queue.put(FrameRemainder(choice=part.choice, json=part.shell))
            if self._mode is Mode.LIVE:
                await self._queue.put(_unjudged(part))
            await self._hear(part)
            return
        await self._note(part)
        if isinstance(part, ReplyError) or (isinstance(part, Passthrough) and not part.opaque):
            await self._queue.put(part)
        elif isinstance(part, ChoiceFinish) and part.final:
            await self._close_choice(self._choices[part.choice])
        elif isinstance(part, Usage) and part.frame is not None:
            self._late.append(part)

    async def _start_check(self, choice: Choice, sentence: Sentence, frame: Frame) -> None:
        # White space between sentences leaves with the later one: tokenizers glue it to the word behind it, and a
        # sentence that is left out takes it along.
        slices = choice.cut(sentence.span.start + len(sentence.text.rstrip()))
        if choice.blocked or choice.repeats(sentence):
            return
        task = self._tasks.start(choice.check(sentence))
        await self._queue.put(Check(choice=choice, sentence=sentence, slices=slices, frame=frame, verdict=task))

    async def _pause(self, choice: Choice) -> None:
        for sentence in choice.pause():
            await self._start_check(choice, sentence, choice.frame)
        await self._queue.put(Pause(choice=choice, slices=choice.cut()))

    async def _close_choices(self, *, truncated: bool) -> None:
        for choice in self._choices:
            await self._close_choice(choice, truncated=truncated)

    async def _close_choice(self, choice: Choice, *, truncated: bool = False) -> None:
        if choice.closing:
            return
        choice.closing = True
        finish = choice.finish
        frame = finish.frame if finish else choice.frame
        cut_off = truncated or (finish is not None and (finish.cut or finish.reason == "length"))
        for sentence in choice.flush(truncated=cut_off):
            await self._start_check(choice, sentence, frame)
        await self._queue.put(Close(choice=choice, frame=frame))

    async def _end(self, done: EndOfReply) -> None:
        await self._close_choices(truncated=False)
        for usage in self._late:
            await self._queue.put(usage)
        await self._queue.put(done)

    async def _break(self, error: GatewayError) -> None:
        """The reply broke off: deliver what came, then say so."""
        if not self._failed:
            self._recorder.fail("incomplete", error.message)
        await self._close_choices(truncated=True)
        for usage in self._late:
            await self._queue.put(usage)
        if not self._failed:
            await self._queue.put(ReplyError(message=error.message, code=error.code, broken=True))
        await self._queue.put(EndOfReply())

    def _finished(self) -> bool:
        return len(self._choices) > 0 and all(choice.finish is not None for choice in self._choices)


def _ends(event: UpstreamEvent) -> bool:
    return any(isinstance(part, ChoiceFinish | Usage | ReplyError | EndOfReply) for part in event.parts)


def _unjudged(part: TextDelta) -> ReleasedText:
    """Text that is shown before its verdict, in a frame of its own."""
    piece = TextSlice(frame=part.frame, text=part.text, tokens=part.frame.tokens or ())
    return ReleasedText(choice=part.choice, text=part.text, slices=(piece,))


def _whole(event: UpstreamEvent) -> Passthrough:
    """An event whose bytes pass as they are."""
    choices = {part.choice for part in event.parts if isinstance(part, _OF_A_CHOICE)}
    return Passthrough(raw=event.raw, choice=choices.pop() if len(choices) == 1 else None)
