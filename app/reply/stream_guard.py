"""Applies the policies to one reply: converts upstream events to the outputs that the client may see, in order.

Streamed and unary replies take the same path, because a unary reply is treated as a stream of a few large parts.
``app.reply.reader`` reads ahead. This module decides, sentence by sentence, which text is released. When a sentence
fails, a policy may ask the upstream to continue from the text released so far (``app.reply.regeneration``). A reader
for that call then takes over.
"""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from app.events.recorder import RequestRecorder
from app.events.request_record import ReplyOutcome
from app.protocols.common.known_fields import REASONING
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
from app.reply.choice import Choice, ChoiceOpener, Choices
from app.reply.choice_findings import REASONING_FIELDS, worst
from app.reply.delivered_text import OutgoingText, replacement_text, without_spans
from app.reply.grounding_object import claims_shown, refusal_of, summary_of
from app.reply.reader import ReplyReader
from app.reply.reader_output import EndOfText, Item, Mode, PendingSentence, ReasoningText, TextPause
from app.reply.regeneration import Regeneration
from app.reply.untouched_reply import UntouchedReply
from judges.concurrency import MAX_INLINE_CHARS, Turns, run
from judges.types import SentenceVerdict
from policies.policy_selection import SentenceDecision
from policies.types import Action


class GuardOptions(Struct, frozen=True, kw_only=True):
    """Options for guarding a reply.

    - ``expected``: the number of choices that the client asked for, or None for one reply with any number of parts.
    - ``max_bytes``: the amount of text after which the reply ends.
    - ``holds_calls``: whether a tool call waits for the verdict on the text before it, in every mode.
    - ``reasoning``: how reasoning in the text is handled.
    - ``streams``: whether the client receives a stream.
    - ``wants_usage``: whether the client asked for a usage chunk. If so, even a blocked reply gets one.
    - ``regeneration``: asks the upstream to continue a reply. None if no policy requires regeneration.
    - ``shadow_check``: judges a reply that is forwarded unchanged. None if no shadow policy requires a verdict.
    - ``judge_fault``: why a required judge is missing.
    """

    mode: Mode
    expected: int | None = None
    max_bytes: int | None = None
    holds_calls: bool = False
    reasoning: str = "pass"
    streams: bool = True
    wants_usage: bool = False
    regeneration: Regeneration | None = None
    shadow_check: ShadowCheck | None = None
    judge_fault: str | None = None


class StreamGuard:
    """Converts the events of one reply to the outputs that the client may see. ``opener`` opens its choices."""

    def __init__(self, *, options: GuardOptions, recorder: RequestRecorder, opener: ChoiceOpener) -> None:
        self.mode = options.mode
        self._options = options
        self._recorder = recorder
        self._choices = Choices(opener)
        self._expected = options.expected or 1
        self._reader: ReplyReader | None = None
        self._untouched: UntouchedReply | None = None
        self._passing: AsyncGenerator[Output, None] | None = None
        self._earlier_usage: list[Usage] = []
        self._turns = Turns()
        self._waiting: list[Output] | None = None
        """Outputs that are held until the end of the reply: content that belongs to no choice, and everything after
        it."""

    def run(self, events: AsyncGenerator[UpstreamEvent, None]) -> AsyncGenerator[Output, None]:
        """Yield the outputs that the client may see. Closing the iterator stops reading and all checks immediately."""
        if self.mode is not Mode.UNTOUCHED:
            return self._release(events)
        self._untouched = UntouchedReply(events, recorder=self._recorder, choices=self._choices)
        self._passing = self._untouched.run(self._options.shadow_check)
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
        """Return the result of the reply, after waiting for a shadow check. ``truncated`` means that the reply was cut
        off."""
        shadow_check, recorder = self._options.shadow_check, self._recorder
        if shadow_check is not None:
            await shadow_check.finish(truncated=truncated)
        choices = list(self._choices)
        is_short = all(choice.is_short for choice in choices)
        records = [await run(is_short, choice.record) for choice in choices]
        if shadow_check is not None:
            records = [shadow_check.judged(record) for record in records]
        findings = [choice.findings for choice in choices]
        judge_ms = [each.judge_ms for each in findings if each.judge_ms is not None]
        verdict, trust_score = await run(is_short, worst, findings, default=recorder.reply.verdict)
        return ReplyOutcome(
            choices=records,
            verdict=verdict,
            trust_score=trust_score,
            judge_ms=sum(judge_ms) if judge_ms else None,
            judge_fault=self._options.judge_fault,
            is_short=is_short,
        )

    @property
    def _usage(self) -> Usage | None:
        reply = self._reader or self._untouched
        return reply.usage if reply is not None else None

    # The methods that release items, in order. Each item is released once the policies have decided on it.

    async def _release(self, events: AsyncGenerator[UpstreamEvent, None]) -> AsyncGenerator[Output, None]:
        self._reader = self._read(events)
        try:
            while (item := await self._reader.next()) is not None:
                for place, output in enumerate(self._in_order(item, await self._decide(item))):
                    if place:  # the last item may have thousands of outputs
                        await self._turns.take()
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
            max_bytes=self._options.max_bytes,
            holds_calls=self._options.holds_calls,
            reasoning=self._options.reasoning,
        )
        reader.start()
        return reader

    def _in_order(self, item: Item, outputs: Sequence[Output]) -> Sequence[Output]:
        """Return the outputs that may be sent now. If the policies decide on the whole reply, content that belongs to
        no choice is held until the end of the reply, and so is everything after it. If the reply is then blocked, the
        content is left out, and the other held outputs are sent."""
        if self._waiting is None:
            if self.mode is not Mode.FINAL or not _is_content(item):
                return outputs
            self._waiting = []
        waiting = self._waiting
        if any(choice.findings.blocked for choice in self._choices):
            self._waiting = None
            return [*(output for output in waiting if not _is_content(output)), *outputs]
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
        if choice.findings.blocked:
            return ()
        verdict = await choice.reread(verdict)
        text = OutgoingText(text="".join(piece.text for piece in item.slices), slices=item.slices)
        is_short = len(verdict.sentence.text) <= MAX_INLINE_CHARS
        decision = await run(is_short, choice.decide, verdict)
        if await self._regenerates(choice, verdict, decision, text):
            return ()
        if decision.action is Action.BLOCK:
            choice.withhold(verdict, text)
            return await run(choice.is_short, self._block, choice, item.frame)
        if decision.strip:
            choice.strip(verdict, text)
            return ()
        return await run(is_short, self._deliver, item, verdict, decision, text)

    def _deliver(
        self, item: PendingSentence, verdict: SentenceVerdict, decision: SentenceDecision, text: OutgoingText
    ) -> Sequence[Output]:
        """Release a sentence, with the changes that the policies require."""
        choice = item.choice
        left_out = choice.left_out(verdict, decision)
        if left_out:
            text = without_spans(text, verdict.sentence, left_out)
            if not any(map(str.isalnum, text.text)):
                choice.strip(verdict, text)
                return ()
        text = choice.correct(verdict, text) if decision.corrected else choice.deliver(verdict, text, left_out)
        # A unary reply gets all claims at its end, so none are attached here.
        findings = choice.findings
        claims = claims_shown(findings, findings.sentences[-1:]) if self._options.streams or not text.text else []
        support = findings.support()
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
        """If the sentence failed and a policy requires regeneration, ask the upstream to continue from the text
        released so far. Return False if the upstream doesn't continue the reply, in which case the policy's other
        action applies."""
        regeneration = self._options.regeneration
        if regeneration is None or not choice.can_improve(verdict, decision):
            return False
        if choice.released_content - REASONING_FIELDS:
            # The reply that would be replaced includes content that was already sent and can't be taken back, or that
            # is held.
            choice.findings.not_regenerated = "content"
            return False
        further = await regeneration.ask(choice.continuation(verdict, text))
        choice.findings.not_regenerated = regeneration.unavailable
        if further is None or self._reader is None:
            return False
        await self._reader.aclose()
        await further.end_earlier()
        prompt, completion = self._recorder.usage.begin_next_call()
        self._earlier_usage.append(self._usage or Usage(prompt_tokens=prompt, completion_tokens=completion))
        choice.restart(verdict, text)
        self._reader = self._read(further.events)
        return True

    def _release_output(self, choice: Choice, output: Output) -> Sequence[Output]:
        """Release ``output`` now. If the policies decide on the whole reply first, hold it until the end."""
        if self.mode is Mode.FINAL:
            choice.held.append(output)
            return ()
        return (output,)

    def _pause(self, item: TextPause) -> Sequence[Output]:
        choice = item.choice
        if choice.findings.blocked or not (text := choice.trail(item.slices)) or self.mode is Mode.LIVE:
            return ()
        return self._release_output(choice, ReleasedText(choice=choice.index, text=text, slices=item.slices))

    def _reason(self, item: ReasoningText) -> Sequence[Output]:
        choice, text = item.choice, "".join(piece.text for piece in item.slices)
        if choice.findings.blocked:
            return ()
        choice.reason(text)
        if self.mode is Mode.LIVE:
            return ()
        outputs = self._release_output(choice, ReleasedText(choice=choice.index, text=text, slices=item.slices))
        if outputs:
            choice.findings.unchecked_sent.add(REASONING)
        return outputs

    async def _decide_end(self, item: EndOfText) -> Sequence[Output]:
        choice = item.choice
        if choice.findings.blocked:
            return ()
        await choice.run_final_checks()
        if await run(choice.is_short, choice.decide_end) is Action.BLOCK:
            return await run(choice.is_short, self._block, choice, item.frame)
        ending = await run(choice.is_short, self._last_text, choice, item.frame) if self.mode is not Mode.LIVE else ()
        outputs: list[Output] = [*choice.held, *ending]
        if choice.finish is not None:
            outputs.append(await run(choice.is_short, self._end_choice, choice, choice.finish.reason, item.frame))
        return outputs

    def _last_text(self, choice: Choice, frame: Frame) -> Sequence[Output]:
        """Return the whitespace at the end, or a replacement if only markup and citations are left of the text."""
        slices = choice.incoming.cut()
        if not choice.says_nothing and (text := choice.trail(slices)).isspace():
            return (ReleasedText(choice=choice.index, text=text, slices=slices),)
        if choice.emptied or choice.says_nothing:
            return (self._replacement(choice, frame),)
        return ()

    def _block(self, choice: Choice, frame: Frame) -> Sequence[Output]:
        choice.block(shown=self.mode is Mode.LIVE)
        self._recorder.block()
        if choice.findings.evaluation.on_block == "error":
            return (refusal_of(choice.findings),)
        outputs: list[Output] = []
        if self.mode is not Mode.LIVE and not (choice.is_json and choice.delivered):
            outputs.append(self._replacement(choice, frame))
        outputs.append(self._end_choice(choice, "content_filter", frame))
        return outputs

    def _replacement(self, choice: Choice, frame: Frame) -> ReplacementText:
        text = replacement_text(choice.findings.evaluation.abstention_response, is_json=choice.is_json)
        return ReplacementText(choice=choice.index, text=choice.texts[None].replace(text), frame=frame)

    def _end_choice(self, choice: Choice, reason: str, frame: Frame) -> ChoiceEnd:
        choice.ended = True
        self._recorder.finish(reason)
        return ChoiceEnd(
            choice=choice.index,
            reason=reason,
            frame=frame,
            blocked=choice.findings.blocked,
            again=choice.findings.repairs.regenerations > 0,
            text=choice.delivered,
            others=choice.texts.others,
            summary=summary_of(choice.findings),
            annotations=choice.findings.annotations(),
            is_short=choice.is_short,
        )

    def _pass(self, item: Output) -> Sequence[Output]:
        if not isinstance(item, Passthrough | FrameRemainder | ReleasedText) or item.choice is None:
            return (item,)
        choice = self._choices[item.choice]
        if choice.findings.blocked:
            return ()
        if isinstance(item, ReleasedText):  # in ``live`` mode, text is sent before it is judged
            return (item,)
        # Content that follows held text must stay after it. Content is held even if there is no text yet, because it
        # must not be sent if the reply is blocked at the end.
        outputs = self._release_output(choice, item) if choice.held or _is_content(item) else (item,)
        if outputs and isinstance(item, Passthrough) and item.unchecked and item.raw:
            choice.findings.unchecked_sent.add(item.unchecked)
        return outputs

    def _is_blocked(self) -> bool:
        """Return whether every choice has ended and at least one was blocked."""
        if not any(choice.findings.blocked for choice in self._choices):
            return False
        return sum(choice.findings.blocked or choice.ended for choice in self._choices) >= self._expected

    def _end_early(self) -> Sequence[Output]:
        """End the reply without reading the rest of the upstream's reply, because none of it can be sent to the
        client."""
        usage = self._usage
        self._recorder.usage.estimate()
        if not self._options.wants_usage:
            return (EndOfReply(),)
        if usage is not None and usage.frame is not None:
            return self._with_earlier(usage), EndOfReply()
        # The upstream sent no separate chunk with token counts, so the client gets a chunk with the latest counts.
        tokens = self._recorder.usage
        frame = next(iter(self._choices)).frame
        return EstimatedUsage(
            prompt_tokens=tokens.prompt or 0, completion_tokens=tokens.completion or 0, frame=frame
        ), EndOfReply()

    def _with_earlier(self, usage: Usage) -> Usage:
        """Return ``usage`` with the token counts of earlier calls for the reply."""
        return replace(usage, raw=b"", before=tuple(self._earlier_usage)) if self._earlier_usage else usage


def _is_content(item: Item) -> bool:
    """Return whether the output is reply content that isn't judged."""
    return isinstance(item, Passthrough) and (item.call or item.unchecked is not None)
