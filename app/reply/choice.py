"""One choice of a reply while it is judged: its text, its verdicts, its evaluation by the policies."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.events.recorder import RequestRecorder, redact
from app.protocols.common.stream_events import (
    ChoiceFinish,
    Continuation,
    Frame,
    Output,
    ReplyRefusal,
    TextDelta,
    TextSlice,
)
from app.reply.choice_result import Account, judged
from app.reply.citations import cite_sentence
from app.reply.context import ReplyContext
from app.reply.edits import Lead, OutgoingText, closed_up, corrected, correction, lead_of
from app.reply.final_checks import WholeReply, run_final_checks
from app.reply.grounding_object import JudgedSentence, claims_of, reasons_of
from app.reply.text_buffer import TextBuffer
from judges.checker import ReplyCheck
from judges.concurrency import MAX_INLINE_SPLIT_CHARS
from judges.types import ClaimVerdict, Label, Sentence, SentenceVerdict, Span
from policies.engine import ReplyEvaluation, SentenceDecision, decision_to_dict
from policies.types import Action

_EMPTY_FRAME = Frame(json={})


class Choice(Account):
    """The state of one choice. Text comes by ``hold`` and ``push`` and leaves by ``deliver``, ``correct``, ``strip``,
    ``withhold`` or ``replace``; ``rule`` and ``audit_end`` ask the policies."""

    def __init__(
        self,
        index: int,
        *,
        context: ReplyContext,
        recorder: RequestRecorder,
        evaluation: ReplyEvaluation,
        check: ReplyCheck | None,
    ) -> None:
        super().__init__(index, context=context, recorder=recorder, evaluation=evaluation, check=check)
        self.closing = False
        self.finish: ChoiceFinish | None = None
        self.frame = _EMPTY_FRAME
        self.held: list[Output] = []
        self.received = 0
        self._text = TextBuffer()
        self._left_out: Lead | None = None
        self._starts_anew = False
        self._unjudged_runs = 0
        self._times: dict[int, tuple[float, float]] = {}
        opening = evaluation.start()
        self._opening, self._cause = opening.action, opening.cause

    # Text in

    def hold(self, part: TextDelta) -> None:
        self.frame = part.frame
        if not self.received:
            self._recorder.mark("first_text")
        self.received += len(part.text)
        self._spoke = self._spoke or not part.text.isspace()
        self._text.add(part)

    async def push(self, text: str) -> Sequence[Sentence]:
        """The sentences completed by ``text``; without a judge all of the reply is one, at its end."""
        if self._check is None:
            return ()
        if len(text) > MAX_INLINE_SPLIT_CHARS:
            return await asyncio.to_thread(self._check.push, text)
        return self._check.push(text)

    def flush(self, *, truncated: bool) -> Sequence[Sentence]:
        if self._check is not None:
            return self._check.flush(truncated=truncated)
        return self._rest()

    def pause(self) -> Sequence[Sentence]:
        """The sentences before a point that none runs across."""
        return self._check.pause() if self._check is not None else self._rest()

    def _rest(self) -> Sequence[Sentence]:
        """What is held, as one sentence that nobody judges."""
        text = self._text.rest
        if not text:
            return ()
        self._unjudged_runs += 1
        span = Span(self._text.taken, self._text.taken + len(text))
        return (Sentence(index=self._unjudged_runs - 1, text=text, span=span, plain=""),)

    def cut(self, end: int | None = None) -> Sequence[TextSlice]:
        """Take the text held up to ``end`` of the reply (all of it by default), as slices of the frames it came in."""
        return self._text.cut(end)

    async def check(self, sentence: Sentence) -> SentenceVerdict:
        if self._check is None:
            return SentenceVerdict(sentence=sentence, label=Label.NOT_A_CLAIM)
        came_ms = self._recorder.elapsed_ms()
        verdict = await self._check.check(sentence)
        if self._evaluation.settings.corrects and self._context.strippable:
            claims = [await self._with_sound_correction(claim) for claim in verdict.claims]
            verdict = replace(verdict, claims=tuple(claims))
        self._times[sentence.index] = (came_ms, self._recorder.elapsed_ms())
        return verdict

    async def _with_sound_correction(self, claim: ClaimVerdict) -> ClaimVerdict:
        """The claim without its correction, unless the documents support that: it is a model's word too."""
        if claim.correction is None or self._check is None:
            return claim
        sound = await self._check.supports(claim.correction, claim.claim)
        return claim if sound else replace(claim, correction=None)

    # Policies

    def rule(self, verdict: SentenceVerdict) -> SentenceDecision:
        """What the policies say of a sentence."""
        if self._opening is Action.BLOCK:
            return SentenceDecision(action=Action.BLOCK, cause=self._cause)
        claims = judged(verdict)
        if not claims:
            return SentenceDecision()
        ruling = self._evaluation.sentence(claims)
        self._cause = ruling.cause
        return ruling

    def fails(self, verdict: SentenceVerdict, ruling: SentenceDecision) -> bool:
        """Whether a sentence could be better: it cannot go out as it is, and not for want of a judge."""
        judged = self._opening is not Action.BLOCK and any(claim.reason is None for claim in verdict.claims)
        return judged and (ruling.action is Action.BLOCK or ruling.strip or ruling.uncorrected)

    async def conclude(self) -> None:
        """Find out what takes time and needs the whole reply. To be awaited once, before ``audit_end``."""
        if self._opening is Action.BLOCK or not self._context.final_checks:
            return
        shown = (entry.verdict for entry in self._entries if entry.offset is not None)
        said = WholeReply(
            text=self.delivered,
            claims=[claim for verdict in shown for claim in judged(verdict)],
            chunks=self._context.chunks,
            settings=self._evaluation.settings,
            earlier=self._context.earlier,
            citations=self._citations(),
            citation_checker=self._context.citation_checker,
        )
        self._found = await run_final_checks(self._context.final_checks, said)

    def audit_end(self) -> Action:
        """What the policies say of the whole reply. To be asked once, when all of it is judged."""
        self._audited = True
        ruling = self._evaluation.finish(self._policy_inputs(citations=self._citations()))
        if self._opening is Action.BLOCK:
            return Action.BLOCK
        self._cause = ruling.cause
        return ruling.action

    @property
    def refuses(self) -> bool:
        return self._evaluation.on_block == "error"

    @property
    def replacement(self) -> str | None:
        return self._evaluation.abstention_response

    # Text out

    def deliver(self, verdict: SentenceVerdict, piece: OutgoingText) -> tuple[OutgoingText, list[dict[str, Any]]]:
        """The sentence goes to the client. Return it as it follows on what went before, and its claims as the client
        sees them."""
        sentence = verdict.sentence
        structure = self._context.is_json and sentence.in_code and not sentence.plain
        citations = [] if structure else cite_sentence(sentence, self._context.names)
        piece = self._follow(piece)
        offset = self._delivered_chars - len(sentence.text.rstrip())
        return piece, self._enter(
            JudgedSentence(verdict=verdict, offset=offset, citations=citations, structure=structure)
        )

    def correct(
        self, verdict: SentenceVerdict, claims: Sequence[ClaimVerdict], piece: OutgoingText
    ) -> tuple[OutgoingText, list[dict[str, Any]]]:
        """The corrections of ``claims`` go to the client, in place of the sentence."""
        standing = correction([claim.correction or "" for claim in claims])
        piece = self._follow(corrected(piece, standing))
        start = self._delivered_chars - len(piece.text) + piece.text.rindex(standing)
        self._repairs.corrected += 1
        return piece, self._enter(
            JudgedSentence(verdict=verdict, offset=None, corrected=Span(start, start + len(standing)))
        )

    def _follow(self, piece: OutgoingText) -> OutgoingText:
        opening = self.emptied
        piece = closed_up(piece, self._left_out or (Lead() if opening else None), opening=opening)
        self._left_out = None
        self._say(piece.text)
        return piece

    def _enter(self, entry: JudgedSentence) -> list[dict[str, Any]]:
        self._keep(entry)
        if not self._context.options.shows("claims"):
            return []
        return claims_of(entry, self._context.chunks, choice=self._shown_index)

    def trail(self, text: str) -> bool:
        """The white space at the end of the reply goes to the client, if what stands before it did."""
        self._left_out = None
        if not text or not self._entries or not self._entries[-1].shown:
            return False
        self._say(text)
        return True

    def withhold(self, verdict: SentenceVerdict, piece: OutgoingText) -> None:
        """The sentence does not go to the client."""
        lead = lead_of(piece.text)
        self._left_out = self._left_out.then(lead) if self._left_out is not None else lead
        self._keep(JudgedSentence(verdict=verdict, offset=None))

    def _keep(self, entry: JudgedSentence) -> None:
        entry.times = self._times.pop(entry.verdict.sentence.index, None)
        self._entries.append(entry)

    def strip(self, verdict: SentenceVerdict, piece: OutgoingText) -> None:
        """The sentence is left out, and the text goes on."""
        self.withhold(verdict, piece)
        self._repairs.stripped += 1

    # Once more

    def turn(self, verdict: SentenceVerdict, piece: OutgoingText) -> Continuation:
        """What to tell the upstream where it is to go on anew."""
        return Continuation(
            said=self.delivered,
            withheld=piece.text.strip(),
            reasons=reasons_of(verdict, self._evaluation.settings.thresholds),
            frame=piece.slices[0].frame,
        )

    def restart(self, verdict: SentenceVerdict, piece: OutgoingText) -> None:
        """A further call takes the place of the one that said the sentence: it, and what came behind it, was never
        part of the reply."""
        self.withhold(verdict, piece)
        self._entries[-1].retracted = True
        self._evaluation.retract(verdict.claims)
        self._repairs.regenerations += 1
        self._starts_anew = True
        self.finish, self.closing, self.received = None, False, 0
        if self._check is not None:
            self._text = TextBuffer(self._check.restart(verdict.sentence.index))

    def repeats(self, sentence: Sentence) -> bool:
        """Whether a further call says over again what stands already, rather than go on from there."""
        if not self._starts_anew:
            return False
        stand = {entry.verdict.sentence.text.strip() for entry in self._entries if entry.shown}
        self._starts_anew = sentence.text.strip() in stand
        return self._starts_anew

    def block(self, *, shown: bool) -> None:
        """No more of this choice leaves; what is still held never does. ``shown``: the client has seen it all."""
        self.blocked = True
        if shown:
            for entry in self._entries:
                if entry.offset is None:
                    entry.offset = entry.verdict.sentence.span.start
        if self.held:
            self.held.clear()
            self._delivered.clear()
            self._delivered_chars = 0
            for entry in self._entries:
                entry.offset = entry.corrected = None
        if not self._audited:
            self._evaluation.abort()

    def replace(self, text: str) -> str:
        """What stands in place of the blocked text, set off from what was delivered before it."""
        if self._delivered and not self._delivered[-1][-1:].isspace():
            text = f" {text}"
        self._say(text)
        return text

    def refusal(self) -> ReplyRefusal:
        decision = next((d for d in self._evaluation.decisions if d.action is Action.BLOCK), None)
        withheld = self._withheld()
        return ReplyRefusal(
            choice=self.index,
            reason=redact(decision.reason, withheld) if decision else "",
            reason_code=self._cause.reason_code if self._cause else None,
            decisions=[redact(decision_to_dict(d), withheld) for d in self._evaluation.decisions],
        )
