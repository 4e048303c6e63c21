"""One choice of a reply while it is judged. It receives text, evaluates the policies, and releases text."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from app.events.recorder import Timings
from app.events.request_record import ChoiceRecord
from app.protocols.common.stream_events import (
    ChoiceFinish,
    Continuation,
    Frame,
    Output,
    Passthrough,
    TextDelta,
    TextSlice,
)
from app.reply.checks.final_checks import WholeReply, run_final_checks
from app.reply.choice_findings import ChoiceFindings, ReplyContext
from app.reply.citation_annotations import cite_sentence
from app.reply.delivered_text import FieldTexts, OutgoingText, corrected
from app.reply.grounding_object import reasons_of
from app.reply.inline_reasoning import InlineReasoning
from app.reply.judged_sentence import JudgedSentence, policy_claims
from app.reply.text_buffer import SentenceBuffer
from judges.checker import ReplyCheck
from judges.concurrency import MAX_INLINE_REPLY_CHARS, MAX_INLINE_SENTENCES, FreedInSteps, run
from judges.text.corrections import corrected_sentence
from judges.types import Chunk, Label, Sentence, SentenceVerdict, Span
from policies.citations.extraction import SpanIndex
from policies.grounding.sentence_checks import unjudged_texts
from policies.policy_selection import ReplyEvaluation, SentenceDecision
from policies.types import INVISIBLE, Action, UnjudgedText

_EMPTY_FRAME = Frame(json={})


class Choice:
    """The state of one choice.

    ``hold`` adds text that is held. ``deliver``, ``correct``, ``strip`` and ``withhold`` release or remove held text.
    ``pass_on`` sends text that needs no decision. ``decide`` and ``decide_end`` evaluate the policies.

    ``texts`` contains the delivered text by field. ``incoming`` is text that hasn't been split and judged yet.
    ``inline`` separates reasoning from the answer, and is None once the answer has begun. ``held`` contains outputs
    that wait for the end of the reply."""

    def __init__(
        self,
        index: int,
        *,
        context: ReplyContext,
        timings: Timings,
        evaluation: ReplyEvaluation,
        check: ReplyCheck | None,
    ) -> None:
        self.index = index
        self.is_json = context.is_json
        self.closing = False
        self.ended = False
        self.finish: ChoiceFinish | None = None
        self.frame = _EMPTY_FRAME
        self.received = 0
        self.held: list[Output] = FreedInSteps()
        self.inline: InlineReasoning | None = InlineReasoning()
        self.texts = FieldTexts()
        self.incoming = SentenceBuffer(check)
        self.findings = ChoiceFindings(index, context=context, evaluation=evaluation, check=check)
        self._context = context
        self._timings = timings
        self._evaluation = evaluation
        self._check = check
        self._delivered = self.texts[None]
        self._removes_invisible = context.strippable and evaluation.settings.withholds_unjudged
        """Whether invisible characters are removed without a decision, as when unjudged text isn't delivered."""
        self._latest: dict[str | None, JudgedSentence] = {}
        self._reasoned = 0
        self._times: dict[int, tuple[float, float]] = {}
        self._repeatable: Iterator[str] = iter(())
        self._decided = False
        opening = evaluation.start_before_call()
        self._opening, self._cause = opening.action, opening.cause

    # Text in

    def hold(self, part: TextDelta) -> None:
        self.hear(part)
        self.texts.receive(part)
        self.incoming.add(part)

    def pass_on(self, part: TextDelta) -> None:
        """Send the text to the client immediately."""
        self.hear(part)
        self._delivered.add(part.text)

    def hear(self, part: TextDelta) -> None:
        """Record that text arrived, whether or not it is delivered."""
        self.frame = part.frame
        if not self.received:
            self._timings.mark("first_text")
        self.received += len(part.text)
        if not self.findings.spoke and not part.text.isspace():
            self.findings.spoke = True

    # Judging

    async def check(self, sentence: Sentence) -> SentenceVerdict:
        if self._check is None:
            return SentenceVerdict(sentence=sentence, label=Label.NOT_A_CLAIM)
        complete_ms, _ = self._times.get(sentence.index) or (self._timings.elapsed_ms(), 0.0)
        verdict = await self._check.check(sentence)
        if self._context.unjudged is not None:
            # The reply isn't judged, so the claims have no verdicts. Only the parts of the sentence that make no
            # statement are used.
            return replace(verdict, claims=(), label=Label.NOT_A_CLAIM)
        if any(claim.correction is not None for claim in verdict.claims):
            verdict = replace(verdict, claims=self._evaluation.settings.with_accepted_corrections(verdict.claims))
        self._times[sentence.index] = (complete_ms, self._timings.elapsed_ms())
        return verdict

    async def reread(self, verdict: SentenceVerdict) -> SentenceVerdict:
        """Judge a sentence again if it reads differently because sentences before it were left out or corrected."""
        check = self._check
        if check is None or not check.edits or await check.reads_as_before(verdict.sentence):
            return verdict
        return await self.check(verdict.sentence)

    async def run_final_checks(self) -> None:
        """Run the slow checks of the whole reply. Await this once, before ``decide_end``."""
        context = self._context
        if self._opening is Action.BLOCK or not (context.final_checks and self._evaluation.settings.checks_whole_reply):
            return
        text = self.delivered
        shown = (each.verdict for each in self.findings.sentences if each.offset is not None)
        reply = WholeReply(
            text=text,
            claims=await run(self.is_short, policy_claims, shown),
            chunks=context.chunks,
            settings=self._evaluation.settings,
            earlier=context.earlier,
            citations=await run(self.is_short, self.findings.citations, text),
            citation_checker=context.citation_checker,
            question=context.question,
            record=None if self._check is None else self._check.record_call,
        )
        self.findings.final = await run_final_checks(context.final_checks, reply)

    # Policies

    def decide(self, verdict: SentenceVerdict) -> SentenceDecision:
        """Return the policies' decision on a sentence."""
        if self._opening is Action.BLOCK:
            return SentenceDecision(action=Action.BLOCK, cause=self._cause)
        claims, unjudged = policy_claims((verdict,)), self._unjudged_texts(verdict)
        if not claims and not unjudged:
            return SentenceDecision()
        return self._evaluation.sentence(claims, unjudged)

    def _unjudged_texts(self, verdict: SentenceVerdict) -> list[UnjudgedText]:
        """Return the unjudged parts of a sentence that policies decide on."""
        texts = unjudged_texts(verdict)
        return [text for text in texts if text.kind != INVISIBLE] if self._removes_invisible else texts

    def left_out(self, verdict: SentenceVerdict, decision: SentenceDecision) -> tuple[Span, ...]:
        """Return the parts of a sentence that are left out when it is delivered, in order."""
        spans = [text.span for text in decision.left_out]
        if self._removes_invisible:
            spans += [part.span for part in verdict.parts if part.kind == INVISIBLE]
        return tuple(sorted(spans, key=lambda span: span.start))

    @property
    def is_short(self) -> bool:
        """Whether the reply is short enough to be processed as a whole on the event loop."""
        return self.received <= MAX_INLINE_REPLY_CHARS and len(self.findings.sentences) <= MAX_INLINE_SENTENCES

    def decide_end(self) -> Action:
        """Return the policies' decision on the whole reply. Call this once, when all of it is judged."""
        self._decided = True
        inputs = self.findings.policy_inputs(citations=self.findings.citations(self.delivered))
        combined = self._evaluation.finish(inputs, left_out=self.findings.left_out_citations())
        if self._opening is Action.BLOCK:
            return Action.BLOCK
        return combined.action

    def can_improve(self, verdict: SentenceVerdict, decision: SentenceDecision) -> bool:
        """Return whether a further call could improve the sentence: it was judged, and can't be delivered unchanged."""
        field, _ = self.texts.place_of(verdict.sentence)
        judged = self._opening is not Action.BLOCK and any(claim.reason is None for claim in verdict.claims)
        return judged and field is None and (decision.action is Action.BLOCK or decision.strip or decision.uncorrected)

    @property
    def released_content(self) -> set[str]:
        """The names of content other than text that was sent, or will be sent unless the reply is blocked."""
        held = {each.unchecked for each in self.held if isinstance(each, Passthrough) and each.unchecked}
        return self.findings.unchecked_sent | held

    # Text out

    @property
    def delivered(self) -> str:
        """The delivered text, without reasoning in separate fields."""
        return str(self._delivered)

    @property
    def emptied(self) -> bool:
        """Whether the choice had sentences and all were left out."""
        return self._emptied(None)

    def _emptied(self, field: str | None) -> bool:
        unjudged = self._reasoned if field is None else 0
        return field in self._latest and self.texts[field].length == unjudged

    @property
    def says_nothing(self) -> bool:
        """Whether sentences were left out and only markup and citations remain. Use this only after ``decide_end``."""
        sentences = self.findings.sentences_in(None)
        return any(not each.shown for each in sentences) and not any(map(self._says_something, sentences))

    def _says_something(self, judged: JudgedSentence) -> bool:
        if not judged.shown or judged.span is None:
            return False
        cited = SpanIndex.of([each.span for each in judged.citations if each.span is not None])
        shown = range(judged.span.start, judged.span.end)
        text = self.delivered
        return any(text[place].isalnum() and not cited.cover(place) for place in shown)

    def deliver(self, verdict: SentenceVerdict, text: OutgoingText, left_out: tuple[Span, ...] = ()) -> OutgoingText:
        """Release the sentence without the parts ``left_out``. Return its text, adjusted to the preceding text."""
        sentence = verdict.sentence
        structure = self.is_json and sentence.in_code and not sentence.plain
        found = [] if structure else cite_sentence(sentence, self._context.names)
        citations = [citation.attributed(verdict.claims) for citation in found]
        judged = self._judged(verdict)
        text, end = self._follow(text, judged.field)
        length = len(sentence.text.rstrip()) - sum(span.end - span.start for span in left_out)
        judged.offset = end - length
        judged.citations, judged.structure, judged.left_out = citations, structure, left_out
        self._add(judged)
        return text

    def correct(self, verdict: SentenceVerdict, text: OutgoingText) -> OutgoingText:
        """Release the sentence with its claims corrected."""
        made = corrected_sentence(verdict)
        if self._check is not None:
            self._check.correct(verdict)
        judged = self._judged(verdict)
        text, end = self._follow(corrected(text, made), judged.field)
        end -= len(made.after)
        judged.corrected = Span(end - len(made.text), end)
        self.findings.repairs.corrected += 1
        self._add(judged)
        return text

    def _judged(self, verdict: SentenceVerdict) -> JudgedSentence:
        field, begin = self.texts.place_of(verdict.sentence)
        return JudgedSentence(verdict=verdict, offset=None, field=field, begin=begin)

    def _follow(self, text: OutgoingText, field: str | None) -> tuple[OutgoingText, int]:
        """Append ``text`` to the delivered text of its field. Return the adjusted text and its end position in the
        field."""
        delivered = self.texts[field]
        return delivered.follow(text, opening=self._emptied(field)), delivered.length

    def reason(self, text: str) -> None:
        """Release reasoning that isn't judged, or the tags around it."""
        self._delivered.add(text)
        self._reasoned += len(text)

    def trail(self, slices: Sequence[TextSlice]) -> str:
        """Handle the whitespace before a pause or at the end of the text. If the preceding sentence was released,
        release the whitespace too. Return the released text."""
        text = "".join(piece.text for piece in slices)
        field = slices[0].frame.field if slices else None
        self.texts[field].pause()
        if not text or field not in self._latest or not self._latest[field].shown:
            return ""
        self.texts[field].add(text)
        return text

    def withhold(self, verdict: SentenceVerdict, text: OutgoingText) -> None:
        """Withhold the sentence."""
        judged = self._judged(verdict)
        self.texts[judged.field].leave_out(text)
        self._add(judged)

    def strip(self, verdict: SentenceVerdict, text: OutgoingText) -> None:
        """Leave out the sentence and continue the reply."""
        self._leave_out(verdict.sentence)
        self.withhold(verdict, text)
        self.findings.repairs.stripped += 1

    def block(self, *, shown: bool) -> None:
        """Block the choice. No more of it is released, not even text that is still held. ``shown`` means that the
        client has seen all text so far.
        """
        self.findings.blocked = True
        for judged in self.findings.sentences if shown else ():
            if judged.offset is None:
                judged.offset = judged.begin + (self._reasoned if judged.field is None else 0)
        if self.held:
            self.held.clear()
            self.texts.clear()
            self._reasoned = 0
            for judged in self.findings.sentences:
                judged.offset = judged.corrected = None
        if not self._decided:
            self._evaluation.abort()

    def _leave_out(self, sentence: Sentence) -> None:
        """Read the later sentences as if ``sentence`` weren't there."""
        if self._check is not None:
            self._check.leave_out(sentence)

    def _add(self, judged: JudgedSentence) -> None:
        judged.times = self._times.pop(judged.verdict.sentence.index, None)
        self.findings.sentences.append(judged)
        self._latest[judged.field] = judged

    # Regeneration

    def continuation(self, verdict: SentenceVerdict, text: OutgoingText) -> Continuation:
        """Return the information that the upstream needs to continue the reply without the sentence."""
        return Continuation(
            said=self.delivered,
            withheld=text.text.strip(),
            reasons=reasons_of(verdict, self._evaluation.settings.judging.thresholds),
            frame=text.slices[0].frame,
        )

    def restart(self, verdict: SentenceVerdict, text: OutgoingText) -> None:
        """Prepare for a further upstream call, which replaces the call that produced the sentence. The sentence and all
        text after it are removed from the reply."""
        self.withhold(verdict, text)
        self.findings.sentences[-1].retracted = True
        self._evaluation.retract(verdict.claims, self._unjudged_texts(verdict))
        self.findings.repairs.regenerations += 1
        shown = [judged.verdict.sentence.text.strip() for judged in self.findings.sentences if judged.shown]
        self._repeatable = iter(shown)
        self.inline = InlineReasoning()
        self.finish, self.closing, self.received = None, False, 0
        self.incoming.restart(verdict.sentence.index)
        self.texts.restart(self.incoming.taken)
        self.findings.retract(self.incoming.taken, released=self.released_content)

    def repeats(self, sentence: Sentence) -> bool:
        """Return whether the further call has only repeated delivered sentences so far, including ``sentence``. A
        repeated sentence isn't delivered, so later sentences are read without it."""
        repeats = sentence.text.strip() == next(self._repeatable, None)
        if not repeats:
            self._repeatable = iter(())
        else:
            self._leave_out(sentence)
        return repeats

    # Event log

    def record(self) -> ChoiceRecord:
        """Return the record of the choice for the event log. Call this once, however the request ends."""
        blocked = self.findings.blocked
        if not self._decided and not blocked and (self.index == 0 or self.findings.sentences):
            self._evaluation.abort()
        return self.findings.record(text=self.delivered, complete=self._decided or (self.ended and not blocked))


class ChoiceOpener(Protocol):
    """Opens the choices of a reply."""

    def open(self, index: int) -> Choice:
        """Create the state of the choice at ``index`` when its first part arrives."""
        ...

    async def add_documents(self, documents: Sequence[Chunk]) -> None:
        """Add documents that the reply contains. They count as evidence for choices that are opened from now on."""
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
        """Whether there are any choices and the upstream has finished all of them."""
        return bool(self._open) and all(choice.finish is not None for choice in self._open.values())

    async def add_documents(self, documents: Sequence[Chunk]) -> None:
        await self._opener.add_documents(documents)
