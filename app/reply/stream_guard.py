"""One reply under its policies: upstream events in, what the client may see out, in order.

Streamed and unary replies take the same path: a unary reply is a stream of a few large parts. ``app.reply.reader``
reads ahead; this module decides what is released, sentence by sentence. When a sentence fails, a policy may have the
upstream continue from the text released so far (``app.reply.regeneration``); a reader of that call then takes over.
"""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from app.events.recorder import RequestRecorder
from app.events.request_record import ReplyOutcome
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
    ReplyError,
    UpstreamEvent,
    Usage,
)
from app.reply.checks.shadow_check import ShadowCheck
from app.reply.choice import Choice
from app.reply.edits import OutgoingText, outgoing_text, without_spans
from app.reply.grounding_object import worst
from app.reply.reader import (
    ChoiceOpener,
    Choices,
    EndOfText,
    Item,
    Mode,
    PendingSentence,
    ReasoningText,
    ReplyReader,
    TextPause,
)
from app.reply.regeneration import Regeneration
from judges.concurrency import run
from judges.types import SentenceVerdict
from policies.engine import SentenceDecision
from policies.types import Action

DEFAULT_REPLACEMENT = "I can't give an answer that the provided documents support."


class GuardOptions(Struct, frozen=True, kw_only=True):
    """How a reply is guarded.

    ``expected``: how many choices the client asked for; None: the reply is one, of any number of parts. ``max_chars``:
    after so much text, the reply ends.
    ``holds_calls``: a tool call waits for the verdict on the text before it, in every mode.
    ``reasoning``: what becomes of reasoning in the text.
    ``wants_usage``: the client asked for a usage chunk, so a blocked reply has one too. ``regeneration`` has the
    upstream continue a reply; None: no policy wants that. ``shadow_check`` judges a reply that passes untouched; None:
    no shadow policy wants that. ``judge_fault``: why a judge that should look at the reply is missing.
    """

    mode: Mode
    expected: int | None = None
    max_chars: int | None = None
    holds_calls: bool = False
    reasoning: str = "pass"
    wants_usage: bool = False
    regeneration: Regeneration | None = None
    shadow_check: ShadowCheck | None = None
    judge_fault: str | None = None


class StreamGuard:
    """Turns the events of one reply into what the client may see. ``opener`` opens its choices."""

    def __init__(self, *, options: GuardOptions, recorder: RequestRecorder, opener: ChoiceOpener) -> None:
        self.mode = options.mode
        self._options = options
        self._recorder = recorder
        self._choices = Choices(opener)
        self._expected = options.expected or 1
        self._reader: ReplyReader | None = None
        self._passing: AsyncGenerator[Output, None] | None = None
        self._earlier_usage: list[Usage] = []
        self._waiting: list[Output] | None = None
        """Content of no choice that waits for the end of the reply, and what follows it."""

    def run(self, events: AsyncGenerator[UpstreamEvent, None]) -> AsyncGenerator[Output, None]:
        """Yield what the client may see. Closing the iterator ends the reading and every check at once."""
        if self.mode is not Mode.UNTOUCHED:
            return self._release(events)
        self._reader = ReplyReader(events, mode=self.mode, recorder=self._recorder, choices=self._choices)
        self._passing = self._reader.pass_through(self._options.shadow_check)
        return self._passing

    async def aclose(self) -> None:
        """Stop reading and judging."""
        if self._reader is not None:
            await self._reader.aclose()
        if self._passing is not None:
            await self._passing.aclose()
        if self._options.shadow_check is not None:
            await self._options.shadow_check.aclose()

    async def finish(self, *, truncated: bool) -> ReplyOutcome:
        """What came of the reply, however it ended. Waits for a shadow check; ``truncated``: the reply broke off."""
        shadow_check, recorder = self._options.shadow_check, self._recorder
        if shadow_check is not None:
            await shadow_check.finish(truncated=truncated)
        choices = list(self._choices)
        if self._usage is None and recorder.usage.completion is None and choices:
            recorder.usage.estimate(self._choices.received)
        is_short = all(choice.is_short for choice in choices)
        records = [await run(is_short, choice.record) for choice in choices]
        if shadow_check is not None:
            records = [shadow_check.judged(record) for record in records]
        judge_ms = [choice.judge_ms for choice in choices if choice.judge_ms is not None]
        verdict, trust_score = await run(is_short, worst, choices, default=recorder.reply.verdict)
        return ReplyOutcome(
            choices=records,
            verdict=verdict,
            trust_score=trust_score,
            judge_ms=sum(judge_ms) if judge_ms else None,
            judge_fault=self._options.judge_fault,
        )

    @property
    def _usage(self) -> Usage | None:
        return self._reader.usage if self._reader is not None else None

    # Release: in order, each item once it is decided

    async def _release(self, events: AsyncGenerator[UpstreamEvent, None]) -> AsyncGenerator[Output, None]:
        self._reader = self._read(events)
        try:
            while (item := await self._reader.next()) is not None:
                for output in self._in_order(item, await self._decide(item)):
                    if isinstance(output, ReleasedText | ReplacementText):
                        self._recorder.timings.mark("first_out")
                    yield output
                if self._is_blocked():
                    for output in self._end_early():
                        yield output
                    return
        finally:
            await self._reader.aclose()

    def _read(self, events: AsyncGenerator[UpstreamEvent, None]) -> ReplyReader:
        reader = ReplyReader(
            events,
            mode=self.mode,
            recorder=self._recorder,
            choices=self._choices,
            max_choices=self._options.expected,
            max_chars=self._options.max_chars,
            holds_calls=self._options.holds_calls,
            reasoning=self._options.reasoning,
        )
        reader.start()
        return reader

    def _in_order(self, item: Item, outputs: Sequence[Output]) -> Sequence[Output]:
        """``outputs`` as far as they may leave now: where the whole reply is decided on first, content that belongs to
        no choice waits for its end, unless it is blocked, and what follows that content stays behind it."""
        if self._waiting is None:
            if self.mode is not Mode.FINAL or not _is_content(item):
                return outputs
            self._waiting = []
        waiting = self._waiting
        if any(choice.blocked for choice in self._choices):
            self._waiting = None
            return outputs
        waiting.extend(outputs)
        if not isinstance(item, EndOfReply | ReplyError):
            return ()
        self._waiting = None
        return waiting

    async def _decide(self, item: Item) -> Sequence[Output]:
        match item:
            case PendingSentence():
                return await self._decide_sentence(item)
            case TextPause():
                return self._pause(item)
            case ReasoningText():
                return self._reason(item)
            case EndOfText():
                return await self._decide_end(item)
            case Usage():
                return (self._with_earlier(item),)
            case _:
                return self._pass(item)

    async def _decide_sentence(self, item: PendingSentence) -> Sequence[Output]:
        choice = item.choice
        verdict = await item.verdict
        if choice.blocked:
            return ()
        text = outgoing_text(item.slices)
        decision = choice.decide(verdict)
        if await self._regenerates(choice, verdict, decision, text):
            return ()
        if decision.action is Action.BLOCK:
            choice.withhold(verdict, text)
            return await run(choice.is_short, self._block, choice, item.frame)
        if decision.strip:
            choice.strip(verdict, text)
            return ()
        left_out = choice.left_out(verdict, decision)
        if left_out:
            text = without_spans(text, verdict.sentence, left_out)
            if not any(map(str.isalnum, text.text)):
                choice.strip(verdict, text)
                return ()
        if decision.corrected:
            text, claims = choice.correct(verdict, decision.corrected, text)
        else:
            text, claims = choice.deliver(verdict, text, left_out)
        support = choice.findings.support()
        if self.mode is Mode.LIVE:
            judged = JudgedClaims(choice=choice.index, claims=claims, frame=item.frame, support=support)
            return (judged,) if claims or support else ()
        if not text.text and not claims:
            return ()
        released = ReleasedText(
            choice=choice.index, text=text.text, slices=text.slices, claims=claims, support=support, lead=text.lead
        )
        return self._release_output(choice, released)

    async def _regenerates(
        self, choice: Choice, verdict: SentenceVerdict, decision: SentenceDecision, text: OutgoingText
    ) -> bool:
        """Have the upstream continue from the text released so far, if a policy wants that for a sentence that fails.
        False: the sentence gets what the policy decides otherwise."""
        regeneration = self._options.regeneration
        if regeneration is None or not choice.can_improve(verdict, decision):
            return False
        further = await regeneration.ask(choice.continuation(verdict, text))
        choice.not_regenerated = regeneration.unavailable
        if further is None or self._reader is None:
            return False
        await self._reader.aclose()
        await further.end_earlier()
        prompt, completion = self._recorder.usage.begin_next_call(choice.received)
        self._earlier_usage.append(self._usage or Usage(prompt_tokens=prompt, completion_tokens=completion))
        choice.restart(verdict, text)
        self._reader = self._read(further.events)
        return True

    def _release_output(self, choice: Choice, output: Output) -> Sequence[Output]:
        """``output`` now, or at the end if the whole reply is decided on first."""
        if self.mode is Mode.FINAL:
            choice.held.append(output)
            return ()
        return (output,)

    def _pause(self, item: TextPause) -> Sequence[Output]:
        choice, text = item.choice, "".join(piece.text for piece in item.slices)
        if choice.blocked or not choice.trail(text) or self.mode is Mode.LIVE:
            return ()
        return self._release_output(choice, ReleasedText(choice=choice.index, text=text, slices=item.slices))

    def _reason(self, item: ReasoningText) -> Sequence[Output]:
        choice, text = item.choice, "".join(piece.text for piece in item.slices)
        if choice.blocked:
            return ()
        choice.reason(text)
        if self.mode is Mode.LIVE:
            return ()
        return self._release_output(choice, ReleasedText(choice=choice.index, text=text, slices=item.slices))

    async def _decide_end(self, item: EndOfText) -> Sequence[Output]:
        choice = item.choice
        if choice.blocked:
            return ()
        await choice.run_final_checks()
        if await run(choice.is_short, choice.decide_end) is Action.BLOCK:
            return await run(choice.is_short, self._block, choice, item.frame)
        outputs: list[Output] = list(choice.held)
        if self.mode is not Mode.LIVE:
            outputs.extend(self._last_text(choice, item.frame))
        if choice.finish is not None:
            outputs.append(await run(choice.is_short, self._end_choice, choice, choice.finish.reason, item.frame))
        return outputs

    def _last_text(self, choice: Choice, frame: Frame) -> Sequence[Output]:
        """The last white space, or a replacement if every sentence was left out."""
        slices = choice.cut()
        text = "".join(piece.text for piece in slices)
        if text.isspace() and choice.trail(text):
            return (ReleasedText(choice=choice.index, text=text, slices=slices),)
        if choice.emptied:
            return (
                ReplacementText(
                    choice=choice.index, text=choice.replace(choice.replacement or DEFAULT_REPLACEMENT), frame=frame
                ),
            )
        return ()

    def _block(self, choice: Choice, frame: Frame) -> Sequence[Output]:
        choice.block(shown=self.mode is Mode.LIVE)
        self._recorder.block()
        if choice.refuses:
            return (choice.refusal(),)
        outputs: list[Output] = []
        if self.mode is not Mode.LIVE and not (choice.is_json and choice.delivered):
            text = choice.replace("" if choice.is_json else choice.replacement or DEFAULT_REPLACEMENT)
            outputs.append(ReplacementText(choice=choice.index, text=text, frame=frame))
        outputs.append(self._end_choice(choice, "content_filter", frame))
        return outputs

    def _end_choice(self, choice: Choice, reason: str, frame: Frame) -> ChoiceEnd:
        choice.ended = True
        self._recorder.finish(reason)
        return ChoiceEnd(
            choice=choice.index,
            reason=reason,
            frame=frame,
            blocked=choice.blocked,
            text=choice.delivered,
            summary=choice.summary(),
            annotations=choice.findings.annotations(),
        )

    def _pass(self, item: Output) -> Sequence[Output]:
        if not isinstance(item, Passthrough | FrameRemainder) or item.choice is None:
            return (item,)
        choice = self._choices[item.choice]
        if choice.blocked:
            return ()
        # What comes after text that is held stays after it. Content waits even before any text, since it must not have
        # left if the reply is blocked at its end.
        return self._release_output(choice, item) if choice.held or _is_content(item) else (item,)

    def _is_blocked(self) -> bool:
        """Every choice has ended, and at least one of them was blocked."""
        choices = list(self._choices)
        blocked = sum(choice.blocked for choice in choices)
        return blocked > 0 and sum(choice.blocked or choice.ended for choice in choices) >= self._expected

    def _end_early(self) -> Sequence[Output]:
        """Nothing more can reach the client: end the reply without waiting for the rest of the upstream's."""
        usage = self._usage
        if usage is None:
            self._recorder.usage.estimate(self._choices.received)
        if not self._options.wants_usage:
            return (EndOfReply(),)
        if usage is not None and usage.frame is not None:
            return self._with_earlier(usage), EndOfReply()
        # Of counts that came with text, the client gets the last in a chunk of their own.
        tokens = self._recorder.usage
        frame = next(iter(self._choices)).frame
        return EstimatedUsage(
            prompt_tokens=tokens.prompt or 0, completion_tokens=tokens.completion or 0, frame=frame
        ), EndOfReply()

    def _with_earlier(self, usage: Usage) -> Usage:
        """The token counts of the last call, with those of the calls before it."""
        return replace(usage, raw=b"", before=tuple(self._earlier_usage)) if self._earlier_usage else usage


def _is_content(item: Item) -> bool:
    """Whether it is content of the reply that no judge looks at."""
    return isinstance(item, Passthrough) and (item.call or item.unchecked is not None)
