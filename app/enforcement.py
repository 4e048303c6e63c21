"""One reply under its policies: upstream events in, what the client may see out, in order.

Streamed and unary replies take the same way; a unary reply is a stream of few, large parts. Reading goes on while
sentences are judged, so that several are judged at once; what leaves, leaves in the upstream's order.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from app.choice import Choice
from app.errors import GatewayError
from app.parts import (
    Break,
    Cited,
    CountedUsage,
    Done,
    Ended,
    Event,
    Evidence,
    Failure,
    Finish,
    Frame,
    Judged,
    Output,
    Part,
    Passing,
    Released,
    Replacement,
    Shell,
    Slice,
    Text,
    Usage,
)
from app.tasks import TaskScope
from app.trace import Trace
from judges.types import Chunk, ReplyVerdict, Sentence, SentenceVerdict
from policies.types import Action

DEFAULT_REPLACEMENT = "I can't give an answer that the provided documents support."

_AHEAD = 128
"""How many parts may wait to leave. Over it the upstream is not read: a slow client slows its upstream, not us."""

_DRAIN_S = 1.0

_VERDICTS = [
    verdict.value
    for verdict in (
        ReplyVerdict.HAS_CONTRADICTIONS,
        ReplyVerdict.HAS_UNVERIFIABLE,
        ReplyVerdict.NOT_CHECKED,
        ReplyVerdict.NO_SOURCES,
        ReplyVerdict.SUPPORTED,
        ReplyVerdict.NO_CLAIMS,
    )
]
"""From worst to best: what a reply of several choices is as a whole."""


class Mode(StrEnum):
    """When text leaves. ``UNTOUCHED``: nothing is judged or decided, bytes go through untouched."""

    UNTOUCHED = "untouched"
    HOLD = "hold"
    LIVE = "live"
    FINAL = "final"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A sentence on its way through the judge."""

    choice: Choice
    sentence: Sentence
    slices: Sequence[Slice]
    frame: Frame
    verdict: asyncio.Task[SentenceVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pause:
    """The text of a choice pauses; ``slices`` is the white space that ended it."""

    choice: Choice
    slices: Sequence[Slice]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Close:
    """A choice has no more text to come."""

    choice: Choice
    frame: Frame


@dataclass(frozen=True, slots=True)
class _Crash:
    error: Exception


_Item = Output | _Check | _Pause | _Close | _Crash | None


Opener = Callable[[int], Choice]
"""Makes the state of the choice of that number."""


class Enforcement:
    """Turns the events of one reply into what the client may see.

    ``open_choice`` makes the state of a choice when its first part arrives. ``expected``: how many there will be, and
    not one more; None: the reply is one, of any number of parts. ``wants_usage``: the client asked for a usage chunk,
    so a blocked reply must have one too. ``admit`` takes in documents that the reply brings along and returns what
    opens the choices after them; None: they are no evidence.
    """

    def __init__(
        self,
        *,
        mode: Mode,
        trace: Trace,
        open_choice: Opener,
        expected: int | None,
        wants_usage: bool,
        admit: Callable[[Sequence[Chunk]], Awaitable[Opener]] | None = None,
    ) -> None:
        self.mode = mode
        self._trace = trace
        self._open_choice = open_choice
        self._admit = admit
        self._most = expected
        self._expected = expected or 1
        self._wants_usage = wants_usage
        self._choices: dict[int, Choice] = {}
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(_AHEAD)
        self._tasks = TaskScope()
        self._usage: Usage | None = None
        self._late: list[Usage] = []
        self._failed = False

    @property
    def choices(self) -> Sequence[Choice]:
        return [self._choices[index] for index in sorted(self._choices)]

    def settle(self) -> None:
        """Put what is known of every choice into the request's record."""
        if self._usage is None and self._trace.completion_tokens is None and self._choices:
            self._trace.estimate_usage(sum(choice.received for choice in self.choices))
        for choice in self.choices:
            choice.settle()
        judged = [choice for choice in self.choices if choice.judge_ms is not None]
        self._trace.judge_ms = sum(choice.judge_ms or 0.0 for choice in judged) if judged else None
        self._trace.verdict, self._trace.trust_score = _worst(self.choices, default=self._trace.verdict)

    async def aclose(self) -> None:
        """Stop reading and judging."""
        await self._tasks.aclose()

    async def run(self, events: AsyncIterator[Event]) -> AsyncGenerator[Output, None]:
        """Yield what the client may see. Closing the iterator ends the reading and every check at once."""
        self._tasks.start(self._read(events))
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, _Check):
                    outputs = await self._judged(item)
                elif isinstance(item, _Pause):
                    outputs = self._paused(item)
                elif isinstance(item, _Close):
                    outputs = await self._close(item)
                elif isinstance(item, _Crash):
                    raise item.error
                else:
                    outputs = self._passes(item)
                for output in outputs:
                    yield output
                if self._blocked():
                    for output in self._curtail():
                        yield output
                    return
        finally:
            await self._tasks.aclose()

    # Reading: runs ahead of what leaves.

    async def _read(self, events: AsyncIterator[Event]) -> None:
        try:
            done = await self._take_all(events)
            if done is None and not self._finished():
                await self._break("The upstream ended its reply before it was complete.")
            else:
                await self._end(done or Done())
            await self._drain(events, passing=done is not None and done.trailer and self.mode is Mode.UNTOUCHED)
        except GatewayError as error:
            await self._break(error.message)
        except Exception as error:  # whoever waits for the next item must learn of it
            await self._queue.put(_Crash(error))
        await self._queue.put(None)

    async def _take_all(self, events: AsyncIterator[Event]) -> Done | None:
        async for event in events:
            for part in event.parts:
                if isinstance(part, Done):
                    return part
            if self._surplus(event):
                continue
            if self.mode is Mode.UNTOUCHED or (self.mode is Mode.LIVE and not _ends(event)):
                await self._queue.put(_whole(event))
                for part in event.parts:
                    await self._note(part)
            else:
                for part in event.parts:
                    await self._forward(part)
        return None

    def _surplus(self, event: Event) -> bool:
        """Whether an event is of a choice that the client did not ask for: it is not judged, so it does not leave."""
        if self._most is None or self.mode is Mode.UNTOUCHED:
            return False
        numbers = [part.choice for part in event.parts if isinstance(part, Text | Passing | Finish)]
        return any(number is not None and number >= self._most for number in numbers)

    async def _drain(self, events: AsyncIterator[Event], *, passing: bool) -> None:
        """Read what may still come after the end, so that the connection can be used again; not for long."""
        with suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_DRAIN_S):
                async for event in events:
                    if passing:
                        await self._queue.put(_whole(event))

    async def _note(self, part: Part) -> None:
        """Take in what a part says; its bytes go to the client by another way."""
        match part:
            case Text():
                await self._hear(part)
            case Break() if self.mode is not Mode.UNTOUCHED:
                await self._pause(self._choice(part.choice))
            case Cited():
                self._choice(part.choice).cite(part)
            case Evidence() if self._admit is not None:
                self._open_choice = await self._admit(part.documents)
            case Passing(choice=int(index), unchecked=str(kind)):
                self._choice(index).unchecked.add(kind)
            case Finish():
                self._choice(part.choice).finish = part
            case Usage():
                self._usage = part
                self._trace.count(part.prompt_tokens, part.completion_tokens)
            case Failure():
                self._failed = True
                self._trace.fail_upstream(part.message)
            case Passing() | Break() | Evidence() | Done():
                pass

    async def _hear(self, part: Text) -> None:
        choice = self._choice(part.choice)
        if self.mode is Mode.UNTOUCHED:
            choice.see(part)
        elif choice.closing:
            choice.unchecked.add("text_after_end")
        else:
            choice.hold(part)
            for sentence in await choice.push(part.text):
                await self._start_check(choice, sentence, part.frame)

    async def _forward(self, part: Part) -> None:
        """Take in a part and send on what of it may leave now.

        Text leaves by sentence. A finish that is not final may still be followed by text, since some providers finish
        their reasoning first, so it waits for the end, and token counts wait behind it.
        """
        if isinstance(part, Text):
            if part.shell is not None:
                await self._queue.put(Shell(choice=part.choice, json=part.shell))
            if self.mode is Mode.LIVE:
                await self._queue.put(_unjudged(part))
        await self._note(part)
        if isinstance(part, Failure) or (isinstance(part, Passing) and not part.opaque):
            await self._queue.put(part)
        elif isinstance(part, Finish) and part.final:
            await self._close_choice(self._choice(part.choice))
        elif isinstance(part, Usage) and part.frame is not None:
            self._late.append(part)

    async def _start_check(self, choice: Choice, sentence: Sentence, frame: Frame) -> None:
        # White space between sentences leaves with the later one: tokenizers glue it to the word behind it, and a
        # sentence that is left out takes it along.
        slices = choice.cut(sentence.span.start + len(sentence.text.rstrip()))
        if choice.blocked:
            return
        task = self._tasks.start(choice.check(sentence))
        await self._queue.put(_Check(choice=choice, sentence=sentence, slices=slices, frame=frame, verdict=task))

    async def _pause(self, choice: Choice) -> None:
        for sentence in choice.pause():
            await self._start_check(choice, sentence, choice.frame)
        await self._queue.put(_Pause(choice=choice, slices=choice.cut()))

    async def _close_choices(self, *, truncated: bool) -> None:
        for choice in self.choices:
            await self._close_choice(choice, truncated=truncated)

    async def _close_choice(self, choice: Choice, *, truncated: bool = False) -> None:
        if choice.closing:
            return
        choice.closing = True
        finish = choice.finish
        if self.mode is Mode.UNTOUCHED:
            choice.ended = True
            self._trace.finish(finish.reason if finish else None)
            return
        frame = finish.frame if finish else choice.frame
        cut_off = truncated or (finish is not None and (finish.cut or finish.reason == "length"))
        for sentence in choice.flush(truncated=cut_off):
            await self._start_check(choice, sentence, frame)
        await self._queue.put(_Close(choice=choice, frame=frame))

    async def _end(self, done: Done) -> None:
        await self._close_choices(truncated=False)
        for usage in self._late:
            await self._queue.put(usage)
        await self._queue.put(done)

    async def _break(self, message: str) -> None:
        """The reply broke off: deliver what came, then say so."""
        if not self._failed:
            self._trace.fail("incomplete", message)
        await self._close_choices(truncated=True)
        for usage in self._late:
            await self._queue.put(usage)
        if not self._failed:
            await self._queue.put(Failure(message=message, broken=True))
        await self._queue.put(Done())

    def _finished(self) -> bool:
        return bool(self._choices) and all(choice.finish is not None for choice in self._choices.values())

    # Leaving: in order, each once it is decided.

    async def _judged(self, item: _Check) -> Sequence[Output]:
        choice = item.choice
        verdict = await item.verdict
        if choice.blocked:
            return ()
        ruling = choice.rule(verdict)
        if ruling is Action.BLOCK:
            choice.withhold(verdict)
            return self._block(choice, item.frame)
        if ruling is Action.DROP and self.mode is not Mode.LIVE:
            choice.withhold(verdict)
            return ()
        text = "".join(piece.text for piece in item.slices)
        if choice.emptied:
            text = text.lstrip()
        claims = choice.deliver(verdict, text)
        support = choice.support()
        if self.mode is Mode.LIVE:
            judged = Judged(choice=choice.index, claims=claims, frame=item.frame, support=support)
            return (judged,) if claims or support else ()
        return self._release(
            choice, Released(choice=choice.index, text=text, slices=item.slices, claims=claims, support=support)
        )

    def _release(self, choice: Choice, output: Output) -> Sequence[Output]:
        """``output`` now, or at the end where all of the reply is decided first."""
        if self.mode is Mode.FINAL:
            choice.held.append(output)
            return ()
        return (output,)

    def _paused(self, item: _Pause) -> Sequence[Output]:
        choice, text = item.choice, "".join(piece.text for piece in item.slices)
        if choice.blocked or not choice.trail(text) or self.mode is Mode.LIVE:
            return ()
        return self._release(choice, Released(choice=choice.index, text=text, slices=item.slices))

    async def _close(self, item: _Close) -> Sequence[Output]:
        choice = item.choice
        if choice.blocked:
            return ()
        await choice.conclude()
        if choice.audit_end() is Action.BLOCK:
            return self._block(choice, item.frame)
        outputs: list[Output] = list(choice.held)
        if self.mode is not Mode.LIVE:
            outputs.extend(self._tail(choice, item.frame))
        if choice.finish is not None:
            outputs.append(self._ended(choice, choice.finish.reason, item.frame))
        return outputs

    def _tail(self, choice: Choice, frame: Frame) -> Sequence[Output]:
        """What ends the text: its last white space, or a word on why there is none."""
        slices = choice.cut()
        text = "".join(piece.text for piece in slices)
        if text.isspace() and choice.trail(text):
            return (Released(choice=choice.index, text=text, slices=slices),)
        if choice.emptied:
            return (Replacement(choice=choice.index, text=choice.replace(DEFAULT_REPLACEMENT), frame=frame),)
        return ()

    def _block(self, choice: Choice, frame: Frame) -> Sequence[Output]:
        choice.block(shown=self.mode is Mode.LIVE)
        self._trace.block()
        if choice.refuses:
            refusal = choice.refusal()
            return (refusal,)
        outputs: list[Output] = []
        if self.mode is not Mode.LIVE:
            text = choice.replace(choice.replacement or DEFAULT_REPLACEMENT)
            outputs.append(Replacement(choice=choice.index, text=text, frame=frame))
        outputs.append(self._ended(choice, "content_filter", frame))
        return outputs

    def _ended(self, choice: Choice, reason: str, frame: Frame) -> Ended:
        choice.ended = True
        self._trace.finish(reason)
        return Ended(
            choice=choice.index,
            reason=reason,
            frame=frame,
            blocked=choice.blocked,
            text=choice.delivered,
            summary=choice.summary(),
            annotations=choice.annotations(),
        )

    def _passes(self, item: Output) -> Sequence[Output]:
        if not isinstance(item, Passing | Shell) or item.choice is None:
            return (item,)
        choice = self._choice(item.choice)
        if choice.blocked:
            return ()
        # What stands behind text that is held stays behind it.
        return self._release(choice, item) if choice.held else (item,)

    def _blocked(self) -> bool:
        blocked = sum(choice.blocked for choice in self._choices.values())
        return (
            blocked > 0 and sum(choice.blocked or choice.ended for choice in self._choices.values()) >= self._expected
        )

    def _curtail(self) -> Sequence[Output]:
        """Nothing more can reach the client: end the reply without waiting for the rest of the upstream's."""
        usage = self._usage
        if usage is None:
            prompt, completion = self._trace.estimate_usage(sum(choice.received for choice in self.choices))
        else:
            prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
        if not self._wants_usage:
            return (Done(),)
        if usage is not None and usage.frame is not None:
            return usage, Done()
        # Of counts that came with text, the client gets the last in a chunk of their own.
        counted = CountedUsage(prompt_tokens=prompt, completion_tokens=completion, frame=self.choices[0].frame)
        return counted, Done()

    def _choice(self, index: int) -> Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = self._open_choice(index)
        return choice


def _worst(choices: Sequence[Choice], *, default: str) -> tuple[str, float | None]:
    """Verdict and trust score of a reply: those of its worst choice."""
    if not choices:
        return default, None
    worst = min(choices, key=lambda choice: _VERDICTS.index(choice.verdict))
    scores = [choice.trust_score for choice in choices if choice.trust_score is not None]
    return worst.verdict, min(scores, default=None)


def _ends(event: Event) -> bool:
    return any(isinstance(part, Finish | Usage | Failure | Done) for part in event.parts)


def _unjudged(part: Text) -> Released:
    """Text that is shown before its verdict, in a frame of its own."""
    piece = Slice(frame=part.frame, text=part.text, tokens=part.frame.tokens or ())
    return Released(choice=part.choice, text=part.text, slices=(piece,))


def _whole(event: Event) -> Passing:
    """An event whose bytes pass as they are."""
    choices = {part.choice for part in event.parts if isinstance(part, Text | Passing | Finish)}
    return Passing(raw=event.raw, choice=choices.pop() if len(choices) == 1 else None)
