"""The findings on one choice of a reply: judged sentences, citations, and the overall result."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from app.events.request_record import ChoiceRecord
from app.protocols.common.known_fields import REASONING
from app.protocols.common.stream_events import SupportingPassage, UpstreamCitation
from app.protocols.documents import Options
from app.protocols.documents.last_turn import UNKNOWN, LastTurn
from app.reply.checks.final_checks import FinalCheck
from app.reply.citation_annotations import annotations_of, cite_reply, cited_by_upstream
from app.reply.judged_sentence import (
    Findings,
    JudgedSentence,
    choice_log,
    left_out_citations,
    llm_calls,
    policy_claims,
    sentence_records,
    standing,
)
from judges.checker import ReplyCheck
from judges.concurrency import FreedInSteps
from judges.llm_types import LlmCall
from judges.report import build_report, coverage_of
from judges.types import VERDICTS_WORST_FIRST, Chunk, Claim, GroundingReport, ReplyVerdict
from judges.verdicts.citation_support import CitationChecker
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import reported_citations
from policies.grounding.sentence_checks import quotes_unjudged
from policies.policy_selection import ReplyEvaluation
from policies.reason_texts import without_text
from policies.replay import ChoiceLog
from policies.types import Citation, Decision, Phase, PolicyInputs


class ReplyContext(Struct, frozen=True, kw_only=True):
    """The context that all choices of a reply share.

    - ``chunks``: the documents that the retrieval policies kept. ``positions`` contains their positions in the request.
    - ``unjudged``: the verdict on a reply that isn't judged. It is None if the reply is judged.
    - ``expected``: the number of choices.
    - ``final_checks``: the checks at the end of the reply. They use ``citation_checker`` and ``earlier``, the claims of
      earlier replies in the run.
    - ``strippable``: whether sentences can be left out or replaced.
    - ``is_json``: whether the reply must be JSON.
    - ``indivisible``: whether the reply must be JSON and is held. If text in it would be left out, the whole reply is
      blocked instead.
    - ``asked``: the question in the user's last message. ``question`` contains all questions in that message, and
      ``conversation`` contains everything that the user wrote.
    - ``turns``: the last turn of each prompt.
    - ``documents_may_follow``: whether the reply may contain documents.
    """

    request_id: str
    options: Options
    chunks: Sequence[Chunk]
    names: DocumentNames
    positions: Sequence[int]
    injectable: bool
    strippable: bool
    indivisible: bool
    retrieval: Mapping[str, Any]
    retrieval_decisions: Sequence[Decision]
    unjudged: ReplyVerdict | None
    judge_unavailable: bool
    judge_name: str | None
    expected: int
    final_checks: Sequence[FinalCheck] = ()
    earlier: Sequence[Claim] = ()
    citation_checker: Callable[[], CitationChecker | None] | None = None
    is_json: bool = False
    turns: Sequence[LastTurn] = (UNKNOWN,)
    asked: str = ""
    question: str = ""
    conversation: str = ""
    documents_may_follow: bool = False

    def policy_inputs(self, **found: Any) -> PolicyInputs:
        """Build the inputs for policies, with the findings ``found`` on the reply."""
        reported = self.options.reported
        return PolicyInputs(
            chunks=self.chunks,
            injectable=self.injectable,
            strippable=self.strippable,
            indivisible=self.indivisible,
            judge_unavailable=self.judge_unavailable,
            # If they are empty, they must equal the defaults, so that the event log doesn't store them.
            reported_scores=tuple(reported.grounding_scores),
            reported_unsupported=tuple(reported.unsupported_claims),
            output_confidence=reported.output_confidence,
            **found,
        )


TOOL_CALLS = frozenset({"tool_calls", "tool_use"})
"""The names that the different APIs use for tool calls in replies."""
REASONING_FIELDS = frozenset({REASONING, "reasoning_content", "reasoning_details"})
"""The names of the fields that contain reasoning in chat replies."""


@dataclass(slots=True, kw_only=True)
class Repairs:
    """Counts the sentences that were left out, the sentences that were corrected, and the calls that asked the upstream
    to continue."""

    stripped: int = 0
    corrected: int = 0
    regenerations: int = 0


class ChoiceFindings:
    """Collects the findings on a choice. ``unchecked`` names content that isn't judged, and ``unchecked_sent`` names
    such content that was sent before the end of the reply. ``final`` contains the findings of the final checks.
    ``spoke`` means that the choice has text. ``blocked`` means that no more of the choice is released. If a policy
    requires a regeneration and the upstream wasn't asked to continue, ``not_regenerated`` says why."""

    def __init__(
        self, index: int, *, context: ReplyContext, evaluation: ReplyEvaluation, check: ReplyCheck | None
    ) -> None:
        self.index = index
        self.context = context
        self.evaluation = evaluation
        self.sentences: list[JudgedSentence] = FreedInSteps()
        self.unchecked: set[str] = set()
        self.unchecked_sent: set[str] = set()
        self.final: Findings = {}
        self.spoke = False
        self.blocked = False
        self.repairs = Repairs()
        self.not_regenerated: str | None = None
        self._check = check
        self._cited: list[UpstreamCitation] = []
        self._citations_placed = False
        self._report: GroundingReport | None = None
        """The latest report."""

    def cite(self, citation: UpstreamCitation) -> None:
        """Record a citation that the upstream reports for its text."""
        self._cited.append(citation)

    def retract(self, position: int, *, released: Collection[str]) -> None:
        """Record that a further call replaces the text of the reply from ``position`` on. Of the reply's other content,
        only ``released`` remains."""
        self.unchecked.intersection_update(released)
        self._cited = [each for each in self._cited if each.place is not None and each.place <= position]

    def sentences_in(self, field: str | None) -> list[JudgedSentence]:
        """Return the sentences in a reasoning field or, for None, in the text of the reply."""
        return [sentence for sentence in self.sentences if sentence.field == field]

    # Verdict

    @property
    def unjudged(self) -> ReplyVerdict | None:
        """The verdict on a reply without judged sentences, or None if there are some. A reply has none if there is no
        judge or no document, if it contains only tool calls, or if it ended before a sentence was judged."""
        if self.context.unjudged is not None:
            return self.context.unjudged
        if not self.sentences and (self.unchecked or self.spoke):
            return ReplyVerdict.NOT_CHECKED
        return None

    @property
    def not_checked(self) -> list[str]:
        """The names of content that isn't judged. If the reply was blocked while it was held, only content that had
        already been sent is included.
        """
        is_held = self.context.strippable or self.context.indivisible
        return sorted(self.unchecked & self.unchecked_sent if self.blocked and is_held else self.unchecked)

    def report(self) -> GroundingReport:
        """Build the report on the delivered text or, if the reply was blocked, on all judged text."""
        shown = [each for each in standing(self.sentences) if self.blocked or each.shown]
        verdicts = [each.delivered_verdict for each in shown]
        if self._report is None or self._report.sentences != tuple(verdicts):
            self._report = build_report(
                verdicts,
                characters=sum(each.letters for each in shown),
                has_sources=bool(self.context.chunks),
                available=self.context.unjudged is not ReplyVerdict.NOT_CHECKED,
            )
        return self._report

    @property
    def judge_ms(self) -> float | None:
        return self._check.judge_ms if self._check is not None else None

    @property
    def llm_calls(self) -> list[LlmCall]:
        """The LLM calls made for the choice."""
        return [*(self._check.llm_calls if self._check is not None else ()), *llm_calls(self.final)]

    # For policies

    def policy_inputs(self, **found: Any) -> PolicyInputs:
        """Build the policy inputs for the whole reply."""
        verdicts, unjudged = [each.verdict for each in standing(self.sentences)], self.unjudged
        return self.context.policy_inputs(
            claims=policy_claims(verdicts),
            trust_score=None if unjudged else self.report().trust_score,
            judged=unjudged is None,
            tool_calls_only=bool(TOOL_CALLS & self.unchecked) and not self.sentences,
            coverage=coverage_of(verdicts),
            **self.final,
            **found,
        )

    def citations(self, delivered: str) -> list[Citation]:
        """Return the citations of the complete reply, each with its sentence."""
        shown = [each for each in self.sentences if each.offset is not None]
        by_upstream = self._cited_by_upstream()
        if not self._citations_placed:
            self._citations_placed = True
            if not self.context.is_json:  # lists of numbers in JSON look like citation markers
                cite_reply(self.sentences_in(None), delivered, self.context.names)
            noted: dict[int | None, list[Citation]] = {}
            for citation in by_upstream:
                noted.setdefault(citation.sentence_index, []).append(citation)
            for each in shown:
                each.noted = noted.get(each.verdict.sentence.index, [])
        indices = {None, *(each.verdict.sentence.index for each in shown)}
        in_text = (citation for each in shown for citation in each.citations)
        by_upstream = [citation for citation in by_upstream if citation.sentence_index in indices]
        return [*in_text, *by_upstream, *self._reported_citations()]

    def left_out_citations(self) -> list[Citation]:
        """Return the citations in text that policies left out of the reply. Call ``citations`` first."""
        withheld = self.evaluation.withheld
        in_text = (
            citation
            for each in ([] if self.context.is_json else standing(self.sentences_in(None)))
            if each.left_out or each.verdict.sentence.index in withheld
            for citation in left_out_citations(each, self.context.names)
        )
        by_upstream = (each for each in self._cited_by_upstream() if each.sentence_index in withheld)
        return [*in_text, *by_upstream]

    def _cited_by_upstream(self) -> list[Citation]:
        return cited_by_upstream(self._cited, self.sentences_in(None), self.context.names, self.context.positions)

    def _reported_citations(self) -> Sequence[Citation]:
        return reported_citations(self.context.options.reported.citations, self.context.chunks)

    # For the client

    def support(self) -> list[SupportingPassage]:
        """Return the passages that support the latest sentence, or none if the client doesn't want any."""
        context = self.context
        if context.options.silent:
            return []
        return [
            SupportingPassage(
                position=context.positions[source.document_index],
                chunk=context.chunks[source.document_index],
                source=source,
            )
            for source in self.sentences[-1].supporting
            if source is not None
        ]

    def annotations(self) -> list[dict[str, Any]]:
        """Return OpenAI annotations, or none if the client doesn't want any."""
        if not self.context.options.shows("documents"):
            return []
        return annotations_of(self.sentences_in(None), self.context.chunks)

    def shown_decisions(self) -> list[Decision]:
        """Return the decisions that the client sees. They don't quote unjudged text that wasn't delivered."""
        withholds = self.blocked or any(not each.shown or each.left_out for each in self.sentences)
        return [without_text(each, quotes_unjudged) if withholds else each for each in self.evaluation.decisions]

    def withheld_texts(self) -> list[str]:
        """Return text that the client must not see: the claims and citation markers of withheld sentences, and other
        text that may quote them."""
        texts: set[str] = set()
        for each in self.sentences:
            if each.offset is None:
                texts.update(claim.claim.text for claim in each.verdict.claims)
                texts.update(citation.marker for citation in each.citations)
        if texts:
            texts.update(score.reasoning for score in self.final.get("llm_scores", ()) if score.reasoning)
        if not any(each.offset is not None for each in self.sentences) and "consistency" in self.final:
            texts.update(self.final["consistency"].texts)
        return list(texts)

    # For the event log

    def record(self, *, text: str, complete: bool) -> ChoiceRecord:
        """Build the record of the choice for the event log. ``text`` is its delivered text."""

        def log() -> ChoiceLog:
            context = self.context
            return choice_log(
                self.policy_inputs,
                standing(self.sentences),
                cited=self._cited_by_upstream(),
                reported=self._reported_citations(),
                names=context.names,
                positions=context.positions,
                ready=context.unjudged is None,
                complete=complete,
            )

        return ChoiceRecord(
            index=self.index,
            text=text,
            # Decisions that were made before the reply are logged only with the first choice.
            decisions=[
                decision
                for decision in self.evaluation.decisions
                if self.index == 0 or decision.phase is not Phase.BEFORE_WORKFLOW
            ],
            sentences=sentence_records(self.sentences),
            positions=self.context.positions,
            llm_calls=self.llm_calls,
            log=log,
        )


def worst(choices: Sequence[ChoiceFindings], *, default: str) -> tuple[str, float | None]:
    """Return the verdict and trust score of a reply: the worst verdict and the lowest score among its choices."""
    if not choices:
        return default, None
    reports = [choice.report() for choice in choices if not choice.unjudged]
    verdicts = [choice.unjudged for choice in choices if choice.unjudged] + [report.verdict for report in reports]
    scores = [report.trust_score for report in reports if report.trust_score is not None]
    return min(verdicts, key=VERDICTS_WORST_FIRST.index).value, min(scores, default=None)
