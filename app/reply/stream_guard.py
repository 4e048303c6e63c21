"""One reply under its policies: upstream events in, what the client may see out, in order.

Streamed and unary replies take the same path: a unary reply is a stream of a few large parts. ``app.reply.reader``
reads ahead; this module decides what is released, sentence by sentence. When a sentence fails, a policy may have the
upstream continue from the text released so far (``app.reply.regeneration``); a reader of that call then takes over.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from msgspec.structs import replace

from app.events.recorder import RequestRecorder
from app.protocols.common.stream_events import (
    ChoiceEnd,
    EndOfReply,
    EstimatedUsage,
    Frame,
    FrameRemainder,
    JudgedClaims,
    Output,
    Passthrough,
    ReleasedText,
    ReplacementText,
    UpstreamEvent,
    Usage,
)
from app.reply.choice import Choice
from app.reply.edits import OutgoingText, outgoing_text
from app.reply.grounding_object import worst
from app.reply.reader import Admit, Check, Choices, Close, Item, Mode, Opener, Pause, Reading
from app.reply.regeneration import Regeneration
from judges.types import SentenceVerdict
from policies.engine import SentenceDecision
from policies.types import Action

__all__ = ["Enforcement", "Mode", "Opener"]

DEFAULT_REPLACEMENT = "I can't give an answer that the provided documents support."


class Enforcement:
    """Turns the events of one reply into what the client may see.

    ``open_choice`` makes the state of a choice when its first part arrives. ``expected``: how many there will be, and
    not one more; None: the reply is one, of any number of parts. ``wants_usage``: the client asked for a usage chunk,
    so a blocked reply must have one too. ``admit`` takes in documents that the reply brings along and returns what
    opens the choices after them; None: they are no evidence. ``regeneration`` asks the upstream to go on anew; None:
    no policy wants that.
    """

    def __init__(
        self,
        *,
        mode: Mode,
        recorder: RequestRecorder,
        open_choice: Opener,
        expected: int | None,
        wants_usage: bool,
        admit: Admit | None = None,
        regeneration: Regeneration | None = None,
    ) -> None:
        self.mode = mode
        self._recorder = recorder
        self._choices = Choices(open_choice)
        self._admit = admit
        self._most = expected
        self._expected = expected or 1
        self._wants_usage = wants_usage
        self._regeneration = regeneration
        self._reading: Reading | None = None
        self._spent: list[Usage] = []

    @property
    def choices(self) -> Sequence[Choice]:
        return list(self._choices)

    def settle(self) -> None:
        """Put what is known of every choice into the request's record."""
        if self._usage is None and self._recorder.completion_tokens is None and self.choices:
            self._recorder.estimate_usage(sum(choice.received for choice in self.choices))
        for choice in self.choices:
            choice.settle()
        judged = [choice for choice in self.choices if choice.judge_ms is not None]
        self._recorder.judge_ms = sum(choice.judge_ms or 0.0 for choice in judged) if judged else None
        self._recorder.verdict, self._recorder.trust_score = worst(self.choices, default=self._recorder.verdict)

    async def aclose(self) -> None:
        """Stop reading and judging."""
        if self._reading is not None:
            await self._reading.aclose()

    async def run(self, events: AsyncIterator[UpstreamEvent]) -> AsyncGenerator[Output, None]:
        """Yield what the client may see. Closing the iterator ends the reading and every check at once."""
        self._reading = self._read(events)
        try:
            while (item := await self._reading.next()) is not None:
                for output in await self._decide(item):
                    if isinstance(output, ReleasedText | ReplacementText):
                        self._recorder.mark("first_out")
                    yield output
                if self._blocked():
                    for output in self._curtail():
                        yield output
                    return
        finally:
            await self.aclose()

    def _read(self, events: AsyncIterator[UpstreamEvent]) -> Reading:
        return Reading(
            events,
            mode=self.mode,
            recorder=self._recorder,
            choices=self._choices,
            most=self._most,
            admit=self._admit,
        )

    @property
    def _usage(self) -> Usage | None:
        return self._reading.usage if self._reading is not None else None

    # Leaving: in order, each once it is decided.

    async def _decide(self, item: Item) -> Sequence[Output]:
        match item:
            case Check():
                return await self._judged(item)
            case Pause():
                return self._paused(item)
            case Close():
                return await self._close(item)
            case Usage():
                return (self._totalled(item),)
            case _:
                return self._passes(item)

    async def _judged(self, item: Check) -> Sequence[Output]:
        choice = item.choice
        verdict = await item.verdict
        if choice.blocked:
            return ()
        piece = outgoing_text(item.slices)
        ruling = choice.rule(verdict)
        if await self._regenerates(choice, verdict, ruling, piece):
            return ()
        if ruling.action is Action.BLOCK:
            choice.withhold(verdict, piece)
            return self._block(choice, item.frame)
        if ruling.strip:
            choice.strip(verdict, piece)
            return ()
        if ruling.corrected:
            piece, claims = choice.correct(verdict, ruling.corrected, piece)
        else:
            piece, claims = choice.deliver(verdict, piece)
        support = choice.support()
        if self.mode is Mode.LIVE:
            judged = JudgedClaims(choice=choice.index, claims=claims, frame=item.frame, support=support)
            return (judged,) if claims or support else ()
        released = ReleasedText(
            choice=choice.index, text=piece.text, slices=piece.slices, claims=claims, support=support, lead=piece.lead
        )
        return self._release(choice, released)

    async def _regenerates(
        self, choice: Choice, verdict: SentenceVerdict, ruling: SentenceDecision, piece: OutgoingText
    ) -> bool:
        """Have the upstream go on anew from what stands, if a policy wants that of a sentence that fails. False: what
        the policy says besides happens to the sentence."""
        if self._regeneration is None or not choice.fails(verdict, ruling):
            return False
        again = await self._regeneration.ask(choice.turn(verdict, piece))
        choice.not_regenerated = self._regeneration.unavailable
        if again is None or self._reading is None:
            return False
        await self._reading.aclose()
        await again.end_earlier()
        prompt, completion = self._recorder.call_again(choice.received)
        self._spent.append(self._usage or Usage(prompt_tokens=prompt, completion_tokens=completion))
        choice.restart(verdict, piece)
        self._reading = self._read(again.events)
        return True

    def _release(self, choice: Choice, output: Output) -> Sequence[Output]:
        """``output`` now, or at the end where all of the reply is decided first."""
        if self.mode is Mode.FINAL:
            choice.held.append(output)
            return ()
        return (output,)

    def _paused(self, item: Pause) -> Sequence[Output]:
        choice, text = item.choice, "".join(piece.text for piece in item.slices)
        if choice.blocked or not choice.trail(text) or self.mode is Mode.LIVE:
            return ()
        return self._release(choice, ReleasedText(choice=choice.index, text=text, slices=item.slices))

    async def _close(self, item: Close) -> Sequence[Output]:
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
            return (ReleasedText(choice=choice.index, text=text, slices=slices),)
        if choice.emptied:
            return (ReplacementText(choice=choice.index, text=choice.replace(DEFAULT_REPLACEMENT), frame=frame),)
        return ()

    def _block(self, choice: Choice, frame: Frame) -> Sequence[Output]:
        choice.block(shown=self.mode is Mode.LIVE)
        self._recorder.block()
        if choice.refuses:
            refusal = choice.refusal()
            return (refusal,)
        outputs: list[Output] = []
        if self.mode is not Mode.LIVE and not (choice.is_json and choice.delivered):
            text = choice.replace("" if choice.is_json else choice.replacement or DEFAULT_REPLACEMENT)
            outputs.append(ReplacementText(choice=choice.index, text=text, frame=frame))
        outputs.append(self._ended(choice, "content_filter", frame))
        return outputs

    def _ended(self, choice: Choice, reason: str, frame: Frame) -> ChoiceEnd:
        choice.ended = True
        self._recorder.finish(reason)
        return ChoiceEnd(
            choice=choice.index,
            reason=reason,
            frame=frame,
            blocked=choice.blocked,
            text=choice.delivered,
            summary=choice.summary(),
            annotations=choice.annotations(),
        )

    def _passes(self, item: Output) -> Sequence[Output]:
        if not isinstance(item, Passthrough | FrameRemainder) or item.choice is None:
            return (item,)
        choice = self._choices[item.choice]
        if choice.blocked:
            return ()
        # What stands behind text that is held stays behind it.
        return self._release(choice, item) if choice.held else (item,)

    def _blocked(self) -> bool:
        blocked = sum(choice.blocked for choice in self._choices)
        return blocked > 0 and sum(choice.blocked or choice.ended for choice in self._choices) >= self._expected

    def _curtail(self) -> Sequence[Output]:
        """Nothing more can reach the client: end the reply without waiting for the rest of the upstream's."""
        usage = self._usage
        if usage is None:
            self._recorder.estimate_usage(sum(choice.received for choice in self.choices))
        if not self._wants_usage:
            return (EndOfReply(),)
        if usage is not None and usage.frame is not None:
            return self._totalled(usage), EndOfReply()
        # Of counts that came with text, the client gets the last in a chunk of their own.
        prompt, completion = self._recorder.prompt_tokens or 0, self._recorder.completion_tokens or 0
        counted = EstimatedUsage(prompt_tokens=prompt, completion_tokens=completion, frame=self.choices[0].frame)
        return counted, EndOfReply()

    def _totalled(self, usage: Usage) -> Usage:
        """The counts of the last call, with those of the ones before it."""
        return replace(usage, raw=b"", before=tuple(self._spent)) if self._spent else usage
