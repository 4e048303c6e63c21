"""One choice of a reply while it is judged: its text, its verdicts, its audit."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.choice_log import choice_log
from app.citing import cite_reply, cite_sentence, cited_by_upstream
from app.claim_rows import claim_rows
from app.held import HeldText
from app.inquiry import Inquiry, Said, ask_all
from app.intake import Options
from app.parts import Cited, Finish, Frame, Output, Refused, Slice, Support, Text, Turn
from app.repair import Lead, Piece, closed_up, corrected, correction, lead_of
from app.reply import Entry, Repairs, annotations_of, claims_of, reasons_of, summary_of
from app.settings import StoreText
from app.trace import Trace, redact
from judges.attribution import Attribution
from judges.pipeline import ReplyCheck
from judges.reporting import SKIPPED, build_report
from judges.types import (
    Chunk,
    Claim,
    ClaimVerdict,
    Consistency,
    GroundingReport,
    Label,
    LlmCall,
    LlmScore,
    ReplyVerdict,
    Sentence,
    SentenceVerdict,
    Span,
)
from policies.citations import reported_citations
from policies.engine import Audit, SentenceRuling, decision_to_dict
from policies.names import DocumentNames
from policies.types import Action, Citation, Decision, Phase, Record

_EMPTY_FRAME = Frame(json={})

_LONG_TEXT = 20_000
"""Characters in one piece beyond which they are split off the event loop."""
_CALLS = frozenset({"tool_calls", "tool_use"})
"""What the APIs name a part of a reply that calls a tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for every choice of a reply.

    ``chunks`` are the documents that the retrieval policy kept; ``positions`` says where each stood in the request.
    ``unjudged`` is the verdict where no judge looks at the reply, else None. ``inquiries`` are made at its end;
    ``earlier`` claims of its run and ``attribution`` are for them. ``strippable``: a sentence can be left out, or
    another stand in its place. ``is_json``: the reply is to be JSON.
    """

    options: Options
    chunks: Sequence[Chunk]
    names: DocumentNames
    positions: Sequence[int]
    injectable: bool
    strippable: bool
    retrieval: Mapping[str, Any]
    retrieval_decisions: Sequence[Decision]
    unjudged: ReplyVerdict | None
    judge_unavailable: bool
    judge_name: str | None
    expected: int
    store_text: StoreText
    inquiries: Sequence[Inquiry] = ()
    earlier: Sequence[Claim] = ()
    attribution: Attribution | None = None
    is_json: bool = False

    def record(self, **found: Any) -> Record:
        """What policies read, with what was found of the reply."""
        reported = self.options.reported
        return Record(
            chunks=self.chunks,
            injectable=self.injectable,
            strippable=self.strippable,
            judge_unavailable=self.judge_unavailable,
            reported_scores=reported.grounding_scores,
            reported_unsupported=reported.unsupported_claims,
            output_confidence=reported.output_confidence,
            **found,
        )


class Choice:
    """The state of one choice. Text comes by ``hold`` and ``push`` and leaves by ``deliver``, ``correct``, ``strip``,
    ``withhold`` or ``replace``; ``rule`` and ``audit_end`` ask the policies."""

    def __init__(self, index: int, *, terms: Terms, trace: Trace, audit: Audit, check: ReplyCheck | None) -> None:
        self.index = index
        self.blocked = False
        self.ended = False
        self.closing = False
        self.finish: Finish | None = None
        self.frame = _EMPTY_FRAME
        self.held: list[Output] = []
        self.unchecked: set[str] = set()
        self.received = 0
        self.not_regenerated: str | None = None
        """Why the upstream was not asked to go on anew where a policy wants that."""
        self._spoke = False
        self._terms = terms
        self._trace = trace
        self._audit = audit
        self._check = check
        self._entries: list[Entry] = []
        self._delivered: list[str] = []
        self._delivered_chars = 0
        self._text = HeldText()
        self._left_out: Lead | None = None
        self._repairs = Repairs()
        self._starts_anew = False
        self._unjudged_runs = 0
        self._cited: list[Cited] = []
        opening = audit.start()
        self._opening, self._cause = opening.action, opening.cause
        self._settled = False
        self._audited = False
        self._found: Mapping[str, Any] = {}
        self._placed = False

    # Text in

    def hold(self, part: Text) -> None:
        self.frame = part.frame
        self.received += len(part.text)
        self._spoke = self._spoke or not part.text.isspace()
        self._text.add(part)

    def see(self, part: Text) -> None:
        """Text that goes to the client as it comes, and that nobody judges."""
        self.frame = part.frame
        self.received += len(part.text)
        self._spoke = self._spoke or not part.text.isspace()
        self._say(part.text)

    async def push(self, text: str) -> Sequence[Sentence]:
        """The sentences completed by ``text``; without a judge all of the reply is one, at its end."""
        if self._check is None:
            return ()
        if len(text) > _LONG_TEXT:
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

    def cut(self, end: int | None = None) -> Sequence[Slice]:
        """Take the text held up to ``end`` of the reply (all of it by default), as slices of the frames it came in."""
        return self._text.cut(end)

    async def check(self, sentence: Sentence) -> SentenceVerdict:
        if self._check is None:
            return SentenceVerdict(sentence=sentence, label=Label.NOT_A_CLAIM)
        verdict = await self._check.check(sentence)
        if not (self._audit.corrects and self._terms.strippable):
            return verdict
        return replace(verdict, claims=tuple([await self._with_sound_correction(claim) for claim in verdict.claims]))

    async def _with_sound_correction(self, claim: ClaimVerdict) -> ClaimVerdict:
        """The claim without its correction, unless the documents support that: it is a model's word too."""
        if claim.correction is None or self._check is None:
            return claim
        sound = await self._check.supports(claim.correction, claim.claim)
        return claim if sound else replace(claim, correction=None)

    # Policies

    def rule(self, verdict: SentenceVerdict) -> SentenceRuling:
        """What the policies say of a sentence."""
        if self._opening is Action.BLOCK:
            return SentenceRuling(action=Action.BLOCK, cause=self._cause)
        claims = _judged(verdict)
        if not claims:
            return SentenceRuling()
        ruling = self._audit.sentence(claims)
        self._cause = ruling.cause
        return ruling

    def fails(self, verdict: SentenceVerdict, ruling: SentenceRuling) -> bool:
        """Whether a sentence could be better: it cannot go out as it is, and not for want of a judge."""
        judged = self._opening is not Action.BLOCK and any(claim.reason is None for claim in verdict.claims)
        return judged and (ruling.action is Action.BLOCK or ruling.strip or ruling.uncorrected)

    async def conclude(self) -> None:
        """Find out what takes time and needs the whole reply. To be awaited once, before ``audit_end``."""
        if self._opening is Action.BLOCK or not self._terms.inquiries:
            return
        shown = (entry.verdict for entry in self._entries if entry.offset is not None)
        said = Said(
            text=self.delivered,
            claims=[claim for verdict in shown for claim in _judged(verdict)],
            chunks=self._terms.chunks,
            audit=self._audit,
            earlier=self._terms.earlier,
            citations=self._citations(),
            attribution=self._terms.attribution,
        )
        self._found = await ask_all(self._terms.inquiries, said)

    def audit_end(self) -> Action:
        """What the policies say of the whole reply. To be asked once, when all of it is judged."""
        self._audited = True
        ruling = self._audit.finish(self._record(citations=self._citations()))
        if self._opening is Action.BLOCK:
            return Action.BLOCK
        self._cause = ruling.cause
        return ruling.action

    @property
    def refuses(self) -> bool:
        return self._audit.on_block == "error"

    @property
    def replacement(self) -> str | None:
        return self._audit.abstention_response

    @property
    def is_json(self) -> bool:
        return self._terms.is_json

    # Text out

    @property
    def delivered(self) -> str:
        return "".join(self._delivered)

    def deliver(self, verdict: SentenceVerdict, piece: Piece) -> tuple[Piece, list[dict[str, Any]]]:
        """The sentence goes to the client. Return it as it follows on what went before, and its claims as the client
        sees them."""
        sentence = verdict.sentence
        structure = self._terms.is_json and sentence.in_code and not sentence.plain
        citations = [] if structure else cite_sentence(sentence, self._terms.names)
        piece = self._follow(piece)
        offset = self._delivered_chars - len(sentence.text.rstrip())
        return piece, self._enter(Entry(verdict=verdict, offset=offset, citations=citations, structure=structure))

    def correct(
        self, verdict: SentenceVerdict, claims: Sequence[ClaimVerdict], piece: Piece
    ) -> tuple[Piece, list[dict[str, Any]]]:
        """The corrections of ``claims`` go to the client, in place of the sentence."""
        standing = correction([claim.correction or "" for claim in claims])
        piece = self._follow(corrected(piece, standing))
        start = self._delivered_chars - len(piece.text) + piece.text.rindex(standing)
        self._repairs.corrected += 1
        return piece, self._enter(Entry(verdict=verdict, offset=None, corrected=Span(start, start + len(standing))))

    def _follow(self, piece: Piece) -> Piece:
        opening = self.emptied
        piece = closed_up(piece, self._left_out or (Lead() if opening else None), opening=opening)
        self._left_out = None
        self._say(piece.text)
        return piece

    def _enter(self, entry: Entry) -> list[dict[str, Any]]:
        self._entries.append(entry)
        if not self._terms.options.shows("claims"):
            return []
        return claims_of(entry, self._terms.chunks, choice=self._shown_index)

    def support(self) -> list[Support]:
        """The passages that support the sentence delivered last; none where the client wants none."""
        if self._terms.options.silent:
            return []
        best = self._entries[-1].supporting
        return [
            Support(
                position=self._terms.positions[source.document_index],
                chunk=self._terms.chunks[source.document_index],
                source=source,
            )
            for source in best
            if source is not None
        ]

    def cite(self, cited: Cited) -> None:
        """The upstream says that its text cites a document."""
        self._cited.append(cited)

    def trail(self, text: str) -> bool:
        """The white space at the end of the reply goes to the client, if what stands before it did."""
        self._left_out = None
        if not text or not self._entries or not self._entries[-1].shown:
            return False
        self._say(text)
        return True

    @property
    def emptied(self) -> bool:
        """There was something to say, and all of it was left out."""
        return bool(self._entries) and not self._delivered

    def withhold(self, verdict: SentenceVerdict, piece: Piece) -> None:
        """The sentence does not go to the client."""
        lead = lead_of(piece.text)
        self._left_out = self._left_out.then(lead) if self._left_out is not None else lead
        self._entries.append(Entry(verdict=verdict, offset=None))

    def strip(self, verdict: SentenceVerdict, piece: Piece) -> None:
        """The sentence is left out, and the text goes on."""
        self.withhold(verdict, piece)
        self._repairs.stripped += 1

    # Once more

    def turn(self, verdict: SentenceVerdict, piece: Piece) -> Turn:
        """What to tell the upstream where it is to go on anew."""
        return Turn(
            said=self.delivered,
            withheld=piece.text.strip(),
            reasons=reasons_of(verdict, self._audit.thresholds),
            frame=piece.slices[0].frame,
        )

    def restart(self, verdict: SentenceVerdict, piece: Piece) -> None:
        """A further call takes the place of the one that said the sentence: it, and what came behind it, was never
        part of the reply."""
        self.withhold(verdict, piece)
        self._entries[-1].retracted = True
        self._audit.retract(verdict.claims)
        self._repairs.regenerations += 1
        self._starts_anew = True
        self.finish, self.closing, self.received = None, False, 0
        if self._check is not None:
            self._text = HeldText(self._check.restart(verdict.sentence.index))

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
            self._audit.abort()

    def replace(self, text: str) -> str:
        """What stands in place of the blocked text, set off from what was delivered before it."""
        if self._delivered and not self._delivered[-1][-1:].isspace():
            text = f" {text}"
        self._say(text)
        return text

    def refusal(self) -> Refused:
        decision = next((d for d in self._audit.decisions if d.action is Action.BLOCK), None)
        withheld = self._withheld()
        return Refused(
            choice=self.index,
            reason=redact(decision.reason, withheld) if decision else "",
            reason_code=self._cause.reason_code if self._cause else None,
            decisions=[redact(decision_to_dict(d), withheld) for d in self._audit.decisions],
        )

    # What is told of it

    def annotations(self) -> list[dict[str, Any]]:
        if not self._terms.options.shows("documents"):
            return []
        return annotations_of(self._entries, self._terms.chunks)

    def summary(self) -> dict[str, Any] | None:
        """The ``grounding`` object of this choice; None where the client wants none."""
        options = self._terms.options
        if options.silent:
            return None
        decisions = [*self._terms.retrieval_decisions, *self._audit.decisions]
        claims = (
            [
                claim
                for entry in self._entries
                for claim in claims_of(entry, self._terms.chunks, choice=self._shown_index)
            ]
            if options.shows("claims")
            else []
        )
        return summary_of(
            request_id=self._trace.request_id,
            action=self._action(decisions),
            verdict=self.verdict,
            report=self._report(),
            claims=claims,
            decisions=decisions,
            withheld=self._withheld(),
            retrieval=self._terms.retrieval,
            judge_name=self._terms.judge_name,
            judge_ms=self.judge_ms,
            llm_calls=self._llm_calls(),
            unchecked=sorted(self.unchecked),
            repairs=self._repairs,
            not_regenerated=self.not_regenerated,
            options=options,
        )

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

    def settle(self) -> None:
        """Put what is known of this choice into the request's record. To be called at the end, whatever the end was."""
        if self._settled:
            return
        self._settled = True
        if not self._audited and not self.blocked:
            self._audit.abort()
        # The rules are bound once a request, not once a choice.
        self._trace.decisions.extend(
            decision
            for decision in self._audit.decisions
            if self.index == 0 or decision.phase is not Phase.BEFORE_WORKFLOW
        )
        self._trace.choices.append(
            choice_log(
                self._record(),
                self._standing(),
                cited=self._cited_by_upstream(),
                reported=self._reported_citations(),
                names=self._terms.names,
                positions=self._terms.positions,
                ready=self._terms.unjudged is None,
                complete=self._audited or (self.ended and not self.blocked),
            )
        )
        self._trace.sentences += sum(not entry.structure for entry in self._entries)
        self._trace.reply += self.delivered
        self._trace.claims.extend(
            claim_rows(
                self._entries,
                choice=self.index,
                first=len(self._trace.claims),
                positions=self._terms.positions,
                store_text=self._terms.store_text,
            )
        )
        # What decisions may quote of the reply, and of what the caller says of it.
        self._trace.withheld.extend(claim.claim.text for entry in self._entries for claim in entry.verdict.claims)
        self._trace.withheld.extend([*self._reasoning(), *self._corrections(), *self._compared()])
        self._trace.llm_calls.extend(self._llm_calls())
        self._trace.withheld.extend(self._terms.options.reported.unsupported_claims)

    def _record(self, **found: Any) -> Record:
        """What policies read of the whole reply."""
        return self._terms.record(
            claims=[claim for entry in self._standing() for claim in _judged(entry.verdict)],
            trust_score=self.trust_score,
            judged=self._unjudged() is None,
            tool_calls_only=bool(_CALLS & self.unchecked) and not self._entries,
            **self._found,
            **found,
        )

    def _say(self, text: str) -> None:
        self._delivered.append(text)
        self._delivered_chars += len(text)

    @property
    def _shown_index(self) -> int | None:
        return self.index if self._terms.expected > 1 else None

    def _report(self) -> GroundingReport:
        """Over what the client got; over everything judged where the reply was blocked."""
        verdicts = [entry.verdict for entry in self._standing() if self.blocked or entry.shown]
        return build_report(
            verdicts,
            characters=sum(len(verdict.sentence.text) for verdict in verdicts),
            has_sources=bool(self._terms.chunks),
            available=self._check is not None,
        )

    def _unjudged(self) -> ReplyVerdict | None:
        """The verdict where there is none of a judge: no judge, no documents, a reply of tool calls alone, or one that
        nobody was to judge or that ended before a sentence of it was judged."""
        if self._terms.unjudged is not None:
            return self._terms.unjudged
        if not self._entries and (self.unchecked or self._spoke):
            return ReplyVerdict.NOT_CHECKED
        return None

    def _standing(self) -> list[Entry]:
        """Without what a further call took the place of."""
        return [entry for entry in self._entries if not entry.retracted]

    def _withheld(self) -> list[str]:
        """Texts of claims that the client must not see, unless it saw the same elsewhere; longest first. An LLM may
        quote them in what it says of the reply."""
        texts = {c.claim.text for entry in self._entries if entry.offset is None for c in entry.verdict.claims}
        if texts:
            texts.update(self._reasoning())
        if not any(entry.offset is not None for entry in self._entries):
            texts.update(self._compared())
        return sorted(texts, key=len, reverse=True)

    def _scores(self) -> Sequence[LlmScore]:
        scores: Sequence[LlmScore] = self._found.get("llm_scores", ())
        return scores

    def _reasoning(self) -> list[str]:
        return [score.reasoning for score in self._scores() if score.reasoning]

    def _corrections(self) -> list[str]:
        claims = (claim for entry in self._entries for claim in entry.verdict.claims)
        return [claim.correction for claim in claims if claim.correction]

    def _llm_calls(self) -> list[LlmCall]:
        of_claims = self._check.llm_calls if self._check is not None else ()
        return [*of_claims, *(call for score in self._scores() for call in score.calls)]

    def _citations(self) -> list[Citation]:
        """Those of the whole reply, each put to its sentence; the reply is complete."""
        shown = [entry for entry in self._entries if entry.offset is not None]
        by_upstream = self._cited_by_upstream()
        if not self._placed:
            self._placed = True
            if not self.is_json:  # whose lists of numbers look like markers
                cite_reply(self._entries, self.delivered, self._terms.names)
            for entry in shown:
                entry.noted = [c for c in by_upstream if c.sentence_index == entry.verdict.sentence.index]
        indices = {None, *(entry.verdict.sentence.index for entry in shown)}
        in_text = (citation for entry in shown for citation in entry.citations)
        by_upstream = [citation for citation in by_upstream if citation.sentence_index in indices]
        return [*in_text, *by_upstream, *self._reported_citations()]

    def _reported_citations(self) -> Sequence[Citation]:
        return reported_citations(self._terms.options.reported.citations, self._terms.chunks)

    def _cited_by_upstream(self) -> list[Citation]:
        return cited_by_upstream(self._cited, self._entries, self._terms.names, self._terms.positions)

    def _compared(self) -> list[str]:
        """The statements that were found to contradict each other."""
        found: Consistency = self._found.get("consistency", Consistency())
        return found.texts

    def _action(self, decisions: Sequence[Decision]) -> str:
        if self.blocked:
            return "block"
        return "warn" if any(decision.action is not Action.ALLOW for decision in decisions) else "allow"


def _judged(verdict: SentenceVerdict) -> list[ClaimVerdict]:
    """The claims that policies look at: not those beyond ``max_claims``, which are reported as skipped."""
    return [claim for claim in verdict.claims if claim.reason != SKIPPED]
