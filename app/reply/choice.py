"""One choice of a reply while it is judged: its text, its sentences with their verdicts, and its policies."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.events.recorder import Timings
from app.events.redaction import redact
from app.events.request_record import ChoiceRecord
from app.protocols.common.stream_events import (
    ChoiceFinish,
    Continuation,
    Frame,
    Output,
    ReplyRefusal,
    SupportingPassage,
    TextDelta,
    TextSlice,
    UpstreamCitation,
)
from app.reply.choice_record import choice_log
from app.reply.citations import cite_reply, cite_sentence, cited_by_upstream
from app.reply.context import ReplyContext
from app.reply.edits import Lead, OutgoingText, closed_up, corrected, correction, lead_of
from app.reply.final_checks import WholeReply, run_final_checks
from app.reply.grounding_object import Repairs, annotations_of, claims_of, reasons_of, summary_of
from app.reply.judged_sentence import (
    Findings,
    JudgedSentence,
    llm_calls,
    policy_claims,
    quotable_texts,
    sentence_records,
    standing,
    withheld_texts,
)
from app.reply.text_buffer import DeliveredText, TextBuffer
from judges.checker import ReplyCheck
from judges.concurrency import MAX_INLINE_SPLIT_CHARS, run
from judges.report import build_report, letters
from judges.types import ClaimVerdict, GroundingReport, Label, LlmCall, ReplyVerdict, Sentence, SentenceVerdict, Span
from policies.citations.extraction import reported_citations
from policies.engine import ReplyEvaluation, SentenceDecision, decision_to_dict
from policies.replay import ChoiceLog
from policies.types import Action, Citation, Decision, Phase, PolicyInputs

TOOL_CALLS = frozenset({"tool_calls", "tool_use"})
"""The names that the APIs have for a part of a reply that calls a tool."""
_EMPTY_FRAME = Frame(json={})


class Choice:
    """The state of one choice.

    Text comes in by ``hold`` and ``push``, and goes out by ``deliver``, ``correct``, ``strip``, ``withhold`` or
    ``replace``; ``pass_on`` is for text that nobody decides about. ``decide`` and ``decide_end`` ask the policies.

    ``unchecked`` names content that no judge looks at. ``held`` are outputs that wait for the end of the reply.
    ``not_regenerated``: why the upstream was not asked to continue, although a policy wants that.
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
        self.blocked = False
        self.closing = False
        self.ended = False
        self.finish: ChoiceFinish | None = None
        self.frame = _EMPTY_FRAME
        self.received = 0
        self.held: list[Output] = []
        self.unchecked: set[str] = set()
        self.not_regenerated: str | None = None
        self._context = context
        self._timings = timings
        self._evaluation = evaluation
        self._check = check
        self._buffer = TextBuffer()
        self._delivered = DeliveredText()
        self._sentences: list[JudgedSentence] = []
        self._cited: list[UpstreamCitation] = []
        self._findings: Findings = {}
        self._repairs = Repairs()
        self._times: dict[int, tuple[float, float]] = {}
        self._spoke = False
        self._left_out: Lead | None = None
        self._starts_over = False
        self._unjudged_runs = 0
        self._decided = False
        self._placed = False
        opening = evaluation.start()
        self._opening, self._cause = opening.action, opening.cause

    # Text in

    def hold(self, part: TextDelta) -> None:
        self._hear(part)
        self._buffer.add(part)

    def pass_on(self, part: TextDelta) -> None:
        """The text goes to the client as it comes."""
        self._hear(part)
        self._delivered.add(part.text)

    def _hear(self, part: TextDelta) -> None:
        self.frame = part.frame
        if not self.received:
            self._timings.mark("first_text")
        self.received += len(part.text)
        self._spoke = self._spoke or not part.text.isspace()

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
        return bool(self._buffer.rest)

    def cut(self, end: int | None = None) -> Sequence[TextSlice]:
        """Take the text that is held, up to position ``end`` of the reply (by default, all of it)."""
        return self._buffer.cut(end)

    def cite(self, citation: UpstreamCitation) -> None:
        """The upstream reports that its text cites a document."""
        self._cited.append(citation)

    # Judging

    async def check(self, sentence: Sentence) -> SentenceVerdict:
        if self._check is None:
            return SentenceVerdict(sentence=sentence, label=Label.NOT_A_CLAIM)
        complete_ms = self._timings.elapsed_ms()
        verdict = await self._check.check(sentence)
        if self._evaluation.settings.corrects and self._context.strippable:
            claims = [await self._with_sound_correction(self._check, claim) for claim in verdict.claims]
            verdict = replace(verdict, claims=tuple(claims))
        self._times[sentence.index] = (complete_ms, self._timings.elapsed_ms())
        return verdict

    async def _with_sound_correction(self, check: ReplyCheck, claim: ClaimVerdict) -> ClaimVerdict:
        """The claim without its correction, unless the documents support it: a correction is a model's text too."""
        if claim.correction is None or await check.supports(claim.correction, claim.claim):
            return claim
        return replace(claim, correction=None)

    async def run_final_checks(self) -> None:
        """Run the checks that take time and need the whole reply. Await it once, before ``decide_end``."""
        context = self._context
        if self._opening is Action.BLOCK or not context.final_checks:
            return
        reply = WholeReply(
            text=self.delivered,
            claims=policy_claims(each.verdict for each in self._sentences if each.offset is not None),
            chunks=context.chunks,
            settings=self._evaluation.settings,
            earlier=context.earlier,
            citations=self._citations(),
            citation_checker=context.citation_checker,
        )
        self._findings = await run_final_checks(context.final_checks, reply)

    # Policies

    def decide(self, verdict: SentenceVerdict) -> SentenceDecision:
        """The policies' decision about a sentence."""
        if self._opening is Action.BLOCK:
            return SentenceDecision(action=Action.BLOCK, cause=self._cause)
        claims = policy_claims((verdict,))
        if not claims:
            return SentenceDecision()
        decision = self._evaluation.sentence(claims)
        self._cause = decision.cause
        return decision

    def decide_end(self) -> Action:
        """The policies' decision about the whole reply. Ask once, when all of it is judged."""
        self._decided = True
        combined = self._evaluation.finish(self._policy_inputs(citations=self._citations()))
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

    def _policy_inputs(self, **found: Any) -> PolicyInputs:
        """What policies look at in the whole reply."""
        return self._context.policy_inputs(
            claims=policy_claims(each.verdict for each in standing(self._sentences)),
            trust_score=self.trust_score,
            judged=self._unjudged() is None,
            tool_calls_only=bool(TOOL_CALLS & self.unchecked) and not self._sentences,
            **self._findings,
            **found,
        )

    def _citations(self) -> list[Citation]:
        """The citations of the whole reply, each with its sentence; the reply is complete."""
        shown = [each for each in self._sentences if each.offset is not None]
        by_upstream = self._cited_by_upstream()
        if not self._placed:
            self._placed = True
            if not self.is_json:  # whose lists of numbers look like markers
                cite_reply(self._sentences, self.delivered, self._context.names)
            for each in shown:
                each.noted = [c for c in by_upstream if c.sentence_index == each.verdict.sentence.index]
        indices = {None, *(each.verdict.sentence.index for each in shown)}
        in_text = (citation for each in shown for citation in each.citations)
        by_upstream = [citation for citation in by_upstream if citation.sentence_index in indices]
        return [*in_text, *by_upstream, *self._reported_citations()]

    def _cited_by_upstream(self) -> list[Citation]:
        return cited_by_upstream(self._cited, self._sentences, self._context.names, self._context.positions)

    def _reported_citations(self) -> Sequence[Citation]:
        return reported_citations(self._context.options.reported.citations, self._context.chunks)

    # Text out

    def deliver(self, verdict: SentenceVerdict, text: OutgoingText) -> tuple[OutgoingText, list[dict[str, Any]]]:
        """The sentence goes to the client. Return it as it follows on the text before it, and its claims as the client
        sees them."""
        sentence = verdict.sentence
        structure = self.is_json and sentence.in_code and not sentence.plain
        citations = [] if structure else cite_sentence(sentence, self._context.names)
        text = self._follow(text)
        offset = self._delivered.length - len(sentence.text.rstrip())
        judged = JudgedSentence(verdict=verdict, offset=offset, citations=citations, structure=structure)
        return text, self._add_shown(judged)

    def correct(
        self, verdict: SentenceVerdict, claims: Sequence[ClaimVerdict], text: OutgoingText
    ) -> tuple[OutgoingText, list[dict[str, Any]]]:
        """The corrections of ``claims`` go to the client instead of the sentence."""
        corrections = correction([claim.correction or "" for claim in claims])
        text = self._follow(corrected(text, corrections))
        start = self._delivered.length - len(text.text) + text.text.rindex(corrections)
        self._repairs.corrected += 1
        span = Span(start, start + len(corrections))
        return text, self._add_shown(JudgedSentence(verdict=verdict, offset=None, corrected=span))

    def _follow(self, text: OutgoingText) -> OutgoingText:
        opening = self.emptied
        text = closed_up(text, self._left_out or (Lead() if opening else None), opening=opening)
        self._left_out = None
        self._delivered.add(text.text)
        return text

    def _add_shown(self, judged: JudgedSentence) -> list[dict[str, Any]]:
        self._add(judged)
        return self._claims_of(judged) if self._context.options.shows("claims") else []

    def _add(self, judged: JudgedSentence) -> None:
        judged.times = self._times.pop(judged.verdict.sentence.index, None)
        self._sentences.append(judged)

    def trail(self, text: str) -> bool:
        """White space ends the reply: it goes to the client if the sentence before it did."""
        self._left_out = None
        if not text or not self._sentences or not self._sentences[-1].shown:
            return False
        self._delivered.add(text)
        return True

    def withhold(self, verdict: SentenceVerdict, text: OutgoingText) -> None:
        """The sentence does not go to the client."""
        lead = lead_of(text.text)
        self._left_out = self._left_out.then(lead) if self._left_out is not None else lead
        self._add(JudgedSentence(verdict=verdict, offset=None))

    def strip(self, verdict: SentenceVerdict, text: OutgoingText) -> None:
        """The sentence is left out, and the reply goes on."""
        self.withhold(verdict, text)
        self._repairs.stripped += 1

    def block(self, *, shown: bool) -> None:
        """Nothing more of this choice is released, and nothing that is still held. ``shown``: the client has seen all
        of it so far."""
        self.blocked = True
        if shown:
            for judged in self._sentences:
                if judged.offset is None:
                    judged.offset = judged.verdict.sentence.span.start
        if self.held:
            self.held.clear()
            self._delivered.clear()
            for judged in self._sentences:
                judged.offset = judged.corrected = None
        if not self._decided:
            self._evaluation.abort()

    def replace(self, text: str) -> str:
        """The text that replaces what is blocked, set off from the text delivered before it."""
        text = text if self._delivered.ends_in_space else f" {text}"
        self._delivered.add(text)
        return text

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
        self._sentences[-1].retracted = True
        self._evaluation.retract(verdict.claims)
        self._repairs.regenerations += 1
        self._starts_over = True
        self.finish, self.closing, self.received = None, False, 0
        if self._check is not None:
            self._buffer = TextBuffer(self._check.restart(verdict.sentence.index))

    def repeats(self, sentence: Sentence) -> bool:
        """Whether a further call repeats a delivered sentence instead of continuing after it."""
        if not self._starts_over:
            return False
        shown = {judged.verdict.sentence.text.strip() for judged in self._sentences if judged.shown}
        self._starts_over = sentence.text.strip() in shown
        return self._starts_over

    # What came of it

    @property
    def is_json(self) -> bool:
        return self._context.is_json

    @property
    def delivered(self) -> str:
        return str(self._delivered)

    @property
    def emptied(self) -> bool:
        """There were sentences, and every one was left out."""
        return bool(self._sentences) and not self._delivered

    @property
    def verdict(self) -> str:
        unjudged = self._unjudged()
        return (unjudged or self._report().verdict).value

    @property
    def trust_score(self) -> float | None:
        return None if self._unjudged() else self._report().trust_score

    @property
    def judge_ms(self) -> float | None:
        return self._check.judge_ms if self._check is not None else None

    def support(self) -> list[SupportingPassage]:
        """The passages that support the latest delivered sentence; none if the client wants none."""
        context = self._context
        if context.options.silent:
            return []
        return [
            SupportingPassage(
                position=context.positions[source.document_index],
                chunk=context.chunks[source.document_index],
                source=source,
            )
            for source in self._sentences[-1].supporting
            if source is not None
        ]

    def annotations(self) -> list[dict[str, Any]]:
        if not self._context.options.shows("documents"):
            return []
        return annotations_of(self._sentences, self._context.chunks)

    def summary(self) -> dict[str, Any] | None:
        """The ``grounding`` object of this choice; None if the client wants none."""
        context = self._context
        if context.options.silent:
            return None
        decisions = [*context.retrieval_decisions, *self._evaluation.decisions]
        shows_claims = context.options.shows("claims")
        return summary_of(
            request_id=context.request_id,
            action=self._action(decisions),
            verdict=self.verdict,
            report=self._report(),
            claims=[claim for each in self._sentences for claim in self._claims_of(each)] if shows_claims else [],
            decisions=decisions,
            withheld=withheld_texts(self._sentences, self._findings),
            retrieval=context.retrieval,
            judge_name=context.judge_name,
            judge_ms=self.judge_ms,
            llm_calls=self._llm_calls(),
            unchecked=sorted(self.unchecked),
            repairs=self._repairs,
            not_regenerated=self.not_regenerated,
            options=context.options,
        )

    def refusal(self) -> ReplyRefusal:
        """The error that answers the request instead of the blocked reply."""
        decision = next((d for d in self._evaluation.decisions if d.action is Action.BLOCK), None)
        withheld = withheld_texts(self._sentences, self._findings)
        return ReplyRefusal(
            choice=self.index,
            reason=redact(decision.reason, withheld) if decision else "",
            reason_code=self._cause.reason_code if self._cause else None,
            decisions=[redact(decision_to_dict(d), withheld) for d in self._evaluation.decisions],
        )

    def record(self) -> ChoiceRecord:
        """What the event log keeps of the choice. Ask once, at the end of the request, however it ended."""
        if not self._decided and not self.blocked:
            self._evaluation.abort()
        verdicts = [judged.verdict for judged in self._sentences]
        return ChoiceRecord(
            index=self.index,
            text=self.delivered,
            # The rules are bound once per request, not once per choice.
            decisions=[
                decision
                for decision in self._evaluation.decisions
                if self.index == 0 or decision.phase is not Phase.BEFORE_WORKFLOW
            ],
            sentences=sentence_records(self._sentences),
            positions=self._context.positions,
            quotable=[
                *quotable_texts(verdicts, self._findings),
                *self._context.options.reported.unsupported_claims,
            ],
            llm_calls=self._llm_calls(),
            log=self._log,
        )

    def _log(self) -> ChoiceLog:
        return choice_log(
            self._policy_inputs(),
            standing(self._sentences),
            cited=self._cited_by_upstream(),
            reported=self._reported_citations(),
            names=self._context.names,
            positions=self._context.positions,
            ready=self._context.unjudged is None,
            complete=self._decided or (self.ended and not self.blocked),
        )

    def _claims_of(self, judged: JudgedSentence) -> list[dict[str, Any]]:
        shown_index = self.index if self._context.expected > 1 else None
        return claims_of(judged, self._context.chunks, choice=shown_index)

    def _report(self) -> GroundingReport:
        """The report on what the client got; if the reply was blocked, on everything that was judged."""
        verdicts = [each.verdict for each in standing(self._sentences) if self.blocked or each.shown]
        return build_report(
            verdicts,
            characters=sum(letters(verdict.sentence.text) for verdict in verdicts),
            has_sources=bool(self._context.chunks),
            available=self._check is not None,
        )

    def _unjudged(self) -> ReplyVerdict | None:
        """The verdict if no judge has one: no judge, no documents, a reply of tool calls alone, or one that ended
        before a sentence was judged."""
        if self._context.unjudged is not None:
            return self._context.unjudged
        if not self._sentences and (self.unchecked or self._spoke):
            return ReplyVerdict.NOT_CHECKED
        return None

    def _llm_calls(self) -> list[LlmCall]:
        of_claims = self._check.llm_calls if self._check is not None else ()
        return [*of_claims, *llm_calls(self._findings)]

    def _action(self, decisions: Sequence[Decision]) -> str:
        if self.blocked:
            return "block"
        return "warn" if any(decision.action is not Action.ALLOW for decision in decisions) else "allow"
