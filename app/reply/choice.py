"""One choice of a reply while it is judged: text comes in, policies decide, text goes out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.events.recorder import Timings
from app.events.request_record import ChoiceRecord
from app.protocols.common.stream_events import (
    ChoiceFinish,
    Continuation,
    Frame,
    Output,
    ReplyRefusal,
    TextDelta,
    TextSlice,
)
from app.reply.checks.final_checks import WholeReply, run_final_checks
from app.reply.choice_findings import ChoiceFindings
from app.reply.citations import cite_sentence
from app.reply.context import ReplyContext
from app.reply.edits import DeliveredText, OutgoingText, corrected, correction
from app.reply.grounding_object import Repairs, reasons_of, summary_of, without_withheld
from app.reply.inline_reasoning import InlineReasoning
from app.reply.judged_sentence import JudgedSentence, policy_claims
from app.reply.text_buffer import TextBuffer
from judges.checker import ReplyCheck
from judges.concurrency import MAX_INLINE_REPLY_CHARS, MAX_INLINE_SPLIT_CHARS, run
from judges.types import ClaimVerdict, Label, LlmCall, Sentence, SentenceVerdict, Span
from policies.engine import ReplyEvaluation, SentenceDecision, decision_to_dict
from policies.grounding.unjudged_check import quotes_unjudged, unjudged_texts
from policies.redaction import without_text
from policies.types import Action, Decision, Phase, UnjudgedText

INVISIBLE = "invisible"
"""The kind of unjudged characters that show nothing."""
_EMPTY_FRAME = Frame(json={})


class Choice:
    """The state of one choice.

    Text comes in by ``hold`` and ``push``, and goes out by ``deliver``, ``correct``, ``strip``, ``withhold`` or
    ``replace``; ``pass_on`` is for text that nobody decides about. ``decide`` and ``decide_end`` ask the policies.

    ``inline`` separates reasoning from the answer; None once the answer has begun. ``held`` are outputs that wait for
    the end of the reply. ``not_regenerated``: why the upstream was not asked to continue, although a policy wants that.
    """

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
        self.blocked = False
        self.closing = False
        self.ended = False
        self.finish: ChoiceFinish | None = None
        self.frame = _EMPTY_FRAME
        self.received = 0
        self.held: list[Output] = []
        self.inline: InlineReasoning | None = InlineReasoning()
        self.not_regenerated: str | None = None
        self.findings = ChoiceFindings(index, context)
        self._context = context
        self._timings = timings
        self._evaluation = evaluation
        self._check = check
        self._buffer = TextBuffer()
        self._delivered = DeliveredText()
        self._reasoned = 0
        self._repairs = Repairs()
        self._times: dict[int, tuple[float, float]] = {}
        self._starts_over = False
        self._unjudged_runs = 0
        self._decided = False
        opening = evaluation.start()
        self._opening, self._cause = opening.action, opening.cause

    # Text in

    def hold(self, part: TextDelta) -> None:
        self.hear(part)
        self._buffer.add(part)

    def pass_on(self, part: TextDelta) -> None:
        """The text goes to the client as it comes."""
        self.hear(part)
        self._delivered.add(part.text)

    def hear(self, part: TextDelta) -> None:
        """Note that text came, whatever becomes of it."""
        self.frame = part.frame
        if not self.received:
            self._timings.mark("first_text")
        self.received += len(part.text)
        if not self.findings.spoke and not part.text.isspace():
            self.findings.spoke = True

    async def push(self, text: str) -> Sequence[Sentence]:
        """The sentences that ``text`` completes. Without a judge, the whole reply is one, at its end."""
        if self._check is None:
            return ()
        return await run(len(text) <= MAX_INLINE_SPLIT_CHARS, self._check.push, text)

    def pause(self) -> Sequence[Sentence]:
        """The sentences before a point that no sentence continues across."""
        return self._check.pause() if self._check is not None else self._rest()

    def flush(self, *, truncated: bool) -> Sequence[Sentence]:
        """The remaining sentences; ``truncated``: the text breaks off."""
        return self._check.flush(truncated=truncated) if self._check is not None else self._rest()

    def _rest(self) -> Sequence[Sentence]:
        """The text that is held, as one sentence that nobody judges."""
        text = self._buffer.rest
        if not text:
            return ()
        self._unjudged_runs += 1
        span = Span(self._buffer.taken, self._buffer.taken + len(text))
        return (Sentence(index=self._unjudged_runs - 1, text=text, span=span, plain=""),)

    @property
    def holds_text(self) -> bool:
        """Some of the text that came is not yet part of a sentence that is judged."""
        return bool(self._buffer)

    def cut(self, end: int | None = None) -> Sequence[TextSlice]:
        """Take the text that is held, up to position ``end`` of the reply (by default, all of it)."""
        return self._buffer.cut(end)

    # Judging

    async def check(self, sentence: Sentence) -> SentenceVerdict:
        if self._check is None:
            return SentenceVerdict(sentence=sentence, label=Label.NOT_A_CLAIM)
        complete_ms = self._timings.elapsed_ms()
        verdict = await self._check.check(sentence)
        if self._context.unjudged is not None:
            # Nobody judges it. Its claims have no verdicts, but it is known which of its text states nothing.
            return replace(verdict, claims=(), label=Label.NOT_A_CLAIM)
        if self._evaluation.settings.corrects and self._context.strippable:
            claims = [await _with_sound_correction(self._check, claim) for claim in verdict.claims]
            verdict = replace(verdict, claims=tuple(claims))
        self._times[sentence.index] = (complete_ms, self._timings.elapsed_ms())
        return verdict

    async def run_final_checks(self) -> None:
        """Run the checks that take time and need the whole reply. Await it once, before ``decide_end``."""
        context = self._context
        if self._opening is Action.BLOCK or not context.final_checks:
            return
        reply = WholeReply(
            text=self.delivered,
            claims=self.findings.shown_claims(),
            chunks=context.chunks,
            settings=self._evaluation.settings,
            earlier=context.earlier,
            citations=self.findings.citations(self.delivered),
            citation_checker=context.citation_checker,
        )
        self.findings.final = await run_final_checks(context.final_checks, reply)

    # Policies

    def decide(self, verdict: SentenceVerdict) -> SentenceDecision:
        """The policies' decision about a sentence."""
        if self._opening is Action.BLOCK:
            return SentenceDecision(action=Action.BLOCK, cause=self._cause)
        claims, unjudged = policy_claims((verdict,)), self._unjudged_texts(verdict)
        if not claims and not unjudged:
            return SentenceDecision()
        decision = self._evaluation.sentence(claims, unjudged)
        self._cause = decision.cause
        return decision

    def _unjudged_texts(self, verdict: SentenceVerdict) -> list[UnjudgedText]:
        """The unjudged text of a sentence that policies decide about."""
        return [text for text in unjudged_texts(verdict) if not self._is_taken_out(text.kind)]

    def _is_taken_out(self, kind: str | None) -> bool:
        """Characters that show nothing are taken out where unjudged text is not delivered, and not decided about."""
        settings = self._evaluation.settings
        return kind == INVISIBLE and self._context.strippable and settings.withholds_unjudged

    def left_out(self, verdict: SentenceVerdict, decision: SentenceDecision) -> tuple[Span, ...]:
        """The parts of a sentence that do not go to the client with it, in order."""
        spans = [text.span for text in decision.left_out]
        spans += [part.span for part in verdict.parts if self._is_taken_out(part.kind)]
        return tuple(sorted(spans, key=lambda span: span.start))

    @property
    def is_short(self) -> bool:
        """What needs the whole reply is done on the event loop."""
        return self.received <= MAX_INLINE_REPLY_CHARS

    def decide_end(self) -> Action:
        """The policies' decision about the whole reply. Ask once, when all of it is judged."""
        self._decided = True
        citations = self.findings.citations(self.delivered)
        combined = self._evaluation.finish(self.findings.policy_inputs(blocked=self.blocked, citations=citations))
        if self._opening is Action.BLOCK:
            return Action.BLOCK
        self._cause = combined.cause
        return combined.action

    def can_improve(self, verdict: SentenceVerdict, decision: SentenceDecision) -> bool:
        """Whether the sentence cannot be delivered as it is, and not only because no judge looked at it."""
        judged = self._opening is not Action.BLOCK and any(claim.reason is None for claim in verdict.claims)
        return judged and (decision.action is Action.BLOCK or decision.strip or decision.uncorrected)

    @property
    def refuses(self) -> bool:
        """A block answers with an error instead of a replacement."""
        return self._evaluation.on_block == "error"

    @property
    def replacement(self) -> str | None:
        return self._evaluation.abstention_response

    # Text out

    @property
    def delivered(self) -> str:
        return str(self._delivered)

    @property
    def emptied(self) -> bool:
        """There were sentences, and every one was left out."""
        return bool(self.findings.sentences) and self._delivered.length == self._reasoned

    def deliver(
        self, verdict: SentenceVerdict, text: OutgoingText, left_out: tuple[Span, ...] = ()
    ) -> tuple[OutgoingText, list[dict[str, Any]]]:
        """The sentence goes to the client, without the parts ``left_out``. Return it as it follows on the text before
        it, and its claims as the client sees them."""
        sentence = verdict.sentence
        structure = self.is_json and sentence.in_code and not sentence.plain
        citations = [] if structure else cite_sentence(sentence, self._context.names)
        text = self._delivered.follow(text, opening=self.emptied)
        length = len(sentence.text.rstrip()) - sum(span.end - span.start for span in left_out)
        judged = JudgedSentence(
            verdict=verdict,
            offset=self._delivered.length - length,
            citations=citations,
            structure=structure,
            left_out=left_out,
        )
        self._add(judged)
        return text, self.findings.claims_shown((judged,))

    def correct(
        self, verdict: SentenceVerdict, claims: Sequence[ClaimVerdict], text: OutgoingText
    ) -> tuple[OutgoingText, list[dict[str, Any]]]:
        """The corrections of ``claims`` go to the client instead of the sentence."""
        corrections = correction([claim.correction or "" for claim in claims])
        text = self._delivered.follow(corrected(text, corrections), opening=self.emptied)
        start = self._delivered.length - len(text.text) + text.text.rindex(corrections)
        judged = JudgedSentence(verdict=verdict, offset=None, corrected=Span(start, start + len(corrections)))
        self._repairs.corrected += 1
        self._add(judged)
        return text, self.findings.claims_shown((judged,))

    def reason(self, text: str) -> None:
        """Reasoning that nobody judges, or the tags around it, goes to the client."""
        self._delivered.add(text)
        self._reasoned += len(text)

    def trail(self, text: str) -> bool:
        """White space ends the reply: it goes to the client if the sentence before it did."""
        sentences = self.findings.sentences
        self._delivered.pause()
        if not text or not sentences or not sentences[-1].shown:
            return False
        self._delivered.add(text)
        return True

    def withhold(self, verdict: SentenceVerdict, text: OutgoingText) -> None:
        """The sentence does not go to the client."""
        self._delivered.leave_out(text)
        self._add(JudgedSentence(verdict=verdict, offset=None))

    def strip(self, verdict: SentenceVerdict, text: OutgoingText) -> None:
        """The sentence is left out, and the reply goes on."""
        self.withhold(verdict, text)
        self._repairs.stripped += 1

    def block(self, *, shown: bool) -> None:
        """Nothing more of this choice is released, and nothing that is still held. ``shown``: the client has seen all
        of it so far."""
        self.blocked = True
        for judged in self.findings.sentences if shown else ():
            if judged.offset is None:
                judged.offset = judged.verdict.sentence.span.start + self._reasoned
        if self.held:
            self.held.clear()
            self._delivered.clear()
            self._reasoned = 0
            for judged in self.findings.sentences:
                judged.offset = judged.corrected = None
        if not self._decided:
            self._evaluation.abort()

    def replace(self, text: str) -> str:
        """The text that replaces what is blocked, set off from the text delivered before it."""
        return self._delivered.replace(text)

    def _add(self, judged: JudgedSentence) -> None:
        judged.times = self._times.pop(judged.verdict.sentence.index, None)
        self.findings.sentences.append(judged)

    # Regeneration

    def continuation(self, verdict: SentenceVerdict, text: OutgoingText) -> Continuation:
        """What to tell the upstream when it is asked to continue the reply without the sentence."""
        return Continuation(
            said=self.delivered,
            withheld=text.text.strip(),
            reasons=reasons_of(verdict, self._evaluation.settings.thresholds),
            frame=text.slices[0].frame,
        )

    def restart(self, verdict: SentenceVerdict, text: OutgoingText) -> None:
        """A further call replaces the one that said the sentence: neither it nor what followed was ever part of the
        reply."""
        self.withhold(verdict, text)
        self.findings.sentences[-1].retracted = True
        self._evaluation.retract(verdict.claims, self._unjudged_texts(verdict))
        self._repairs.regenerations += 1
        self._starts_over = True
        self.inline = InlineReasoning()
        self.finish, self.closing, self.received = None, False, 0
        if self._check is not None:
            self._buffer = TextBuffer(self._check.restart(verdict.sentence.index))

    def repeats(self, sentence: Sentence) -> bool:
        """Whether a further call repeats a delivered sentence instead of continuing after it."""
        if not self._starts_over:
            return False
        shown = {judged.verdict.sentence.text.strip() for judged in self.findings.sentences if judged.shown}
        self._starts_over = sentence.text.strip() in shown
        return self._starts_over

    # What came of it

    @property
    def verdict(self) -> str:
        return (self.findings.unjudged or self.findings.report(blocked=self.blocked).verdict).value

    @property
    def trust_score(self) -> float | None:
        return None if self.findings.unjudged else self.findings.report(blocked=self.blocked).trust_score

    @property
    def judge_ms(self) -> float | None:
        return self._check.judge_ms if self._check is not None else None

    def summary(self) -> dict[str, Any] | None:
        """The ``grounding`` object of this choice; None if the client wants none."""
        context, findings = self._context, self.findings
        if context.options.silent:
            return None
        decisions = [*context.retrieval_decisions, *self._shown_decisions()]
        report = findings.report(blocked=self.blocked)
        return summary_of(
            request_id=context.request_id,
            action=self._action(decisions),
            verdict=(findings.unjudged or report.verdict).value,
            report=report,
            claims=findings.claims_shown(findings.sentences),
            decisions=decisions,
            withheld=findings.withheld_texts(),
            retrieval=context.retrieval,
            judge_name=context.judge_name,
            judge_ms=self.judge_ms,
            llm_calls=self._llm_calls(),
            unchecked=sorted(findings.unchecked),
            unjudged=findings.unjudged_parts(),
            final_because=self._evaluation.settings.held_to_end_by,
            repairs=self._repairs,
            not_regenerated=self.not_regenerated,
            options=context.options,
        )

    def _shown_decisions(self) -> list[Decision]:
        """The decisions as the client sees them: they quote no unjudged text that it did not get."""
        withholds = self.blocked or any(not each.shown or each.left_out for each in self.findings.sentences)
        return [without_text(each, quotes_unjudged) if withholds else each for each in self._evaluation.decisions]

    def _action(self, decisions: Sequence[Decision]) -> str:
        if self.blocked:
            return "block"
        return "warn" if any(decision.action is not Action.ALLOW for decision in decisions) else "allow"

    def refusal(self) -> ReplyRefusal:
        """The error that answers the request instead of the blocked reply."""
        decisions = self._shown_decisions()
        decision = next((d for d in decisions if d.action is Action.BLOCK), None)
        withheld = self.findings.withheld_texts()
        return ReplyRefusal(
            choice=self.index,
            reason=without_withheld(decision, withheld).reason if decision else "",
            reason_code=self._cause.reason_code if self._cause else None,
            decisions=[decision_to_dict(without_withheld(d, withheld)) for d in decisions],
        )

    def record(self) -> ChoiceRecord:
        """What the event log keeps of the choice. Ask once, at the end of the request, however it ended."""
        if not self._decided and not self.blocked and (self.index == 0 or self.findings.sentences):
            self._evaluation.abort()
        return self.findings.record(
            text=self.delivered,
            # The rules are bound once per request, not once per choice.
            decisions=[
                decision
                for decision in self._evaluation.decisions
                if self.index == 0 or decision.phase is not Phase.BEFORE_WORKFLOW
            ],
            llm_calls=self._llm_calls(),
            blocked=self.blocked,
            complete=self._decided or (self.ended and not self.blocked),
        )

    def _llm_calls(self) -> list[LlmCall]:
        of_claims = self._check.llm_calls if self._check is not None else ()
        return [*of_claims, *self.findings.llm_calls()]


async def _with_sound_correction(check: ReplyCheck, claim: ClaimVerdict) -> ClaimVerdict:
    """The claim without its correction, unless the documents support it: a correction is a model's text too."""
    if claim.correction is None or await check.supports(claim.correction, claim.claim):
        return claim
    return replace(claim, correction=None)
