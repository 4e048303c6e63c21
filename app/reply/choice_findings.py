"""What was found about one choice of a reply: its judged sentences, its citations, and what they come to."""

from collections.abc import Sequence
from typing import Any

from app.events.request_record import ChoiceRecord
from app.protocols.common.stream_events import SupportingPassage, UpstreamCitation
from app.reply.annotations import annotations_of
from app.reply.citations import cite_reply, cited_by_upstream
from app.reply.context import ReplyContext
from app.reply.grounding_object import claims_of, unjudged_of
from app.reply.judged_sentence import (
    Findings,
    JudgedSentence,
    choice_log,
    llm_calls,
    policy_claims,
    sentence_records,
    standing,
    withheld_texts,
)
from judges.report import build_report, coverage_of
from judges.types import ClaimVerdict, GroundingReport, LlmCall, ReplyVerdict
from policies.citations.extraction import reported_citations
from policies.replay import ChoiceLog
from policies.types import Citation, Decision, PolicyInputs

TOOL_CALLS = frozenset({"tool_calls", "tool_use"})
"""The names that the APIs have for a part of a reply that calls a tool."""


class ChoiceFindings:
    """Collects what is found about a choice. ``unchecked`` names content that no judge looks at; ``final`` are the
    findings of the final checks. ``spoke``: it has text."""

    def __init__(self, index: int, context: ReplyContext) -> None:
        self.sentences: list[JudgedSentence] = []
        self.unchecked: set[str] = set()
        self.final: Findings = {}
        self.spoke = False
        self._index = index
        self._context = context
        self._cited: list[UpstreamCitation] = []
        self._citations_placed = False

    def cite(self, citation: UpstreamCitation) -> None:
        """The upstream reports that its text cites a document."""
        self._cited.append(citation)

    # Verdict

    @property
    def unjudged(self) -> ReplyVerdict | None:
        """The verdict if no judge has one: no judge, no documents, a reply of tool calls alone, or one that ended
        before a sentence was judged."""
        if self._context.unjudged is not None:
            return self._context.unjudged
        if not self.sentences and (self.unchecked or self.spoke):
            return ReplyVerdict.NOT_CHECKED
        return None

    def report(self, *, blocked: bool) -> GroundingReport:
        """The report on what the client got; if the reply was blocked, on everything that was judged."""
        shown = [each for each in standing(self.sentences) if blocked or each.shown]
        return build_report(
            [each.delivered_verdict for each in shown],
            characters=sum(each.letters for each in shown),
            has_sources=bool(self._context.chunks),
            available=self._context.unjudged is not ReplyVerdict.NOT_CHECKED,
        )

    # For policies

    def shown_claims(self) -> list[ClaimVerdict]:
        """The claims of the sentences that the client got."""
        return policy_claims(each.verdict for each in self.sentences if each.offset is not None)

    def policy_inputs(self, *, blocked: bool, **found: Any) -> PolicyInputs:
        """What policies look at in the whole reply."""
        unjudged = self.unjudged
        return self._context.policy_inputs(
            claims=policy_claims(each.verdict for each in standing(self.sentences)),
            trust_score=None if unjudged else self.report(blocked=blocked).trust_score,
            judged=unjudged is None,
            tool_calls_only=bool(TOOL_CALLS & self.unchecked) and not self.sentences,
            coverage=coverage_of([each.verdict for each in standing(self.sentences)]),
            **self.final,
            **found,
        )

    def citations(self, delivered: str) -> list[Citation]:
        """The citations of the whole reply, each with its sentence; the reply is complete."""
        shown = [each for each in self.sentences if each.offset is not None]
        by_upstream = self._cited_by_upstream()
        if not self._citations_placed:
            self._citations_placed = True
            if not self._context.is_json:  # whose lists of numbers look like markers
                cite_reply(self.sentences, delivered, self._context.names)
            noted: dict[int | None, list[Citation]] = {}
            for citation in by_upstream:
                noted.setdefault(citation.sentence_index, []).append(citation)
            for each in shown:
                each.noted = noted.get(each.verdict.sentence.index, [])
        indices = {None, *(each.verdict.sentence.index for each in shown)}
        in_text = (citation for each in shown for citation in each.citations)
        by_upstream = [citation for citation in by_upstream if citation.sentence_index in indices]
        return [*in_text, *by_upstream, *self._reported_citations()]

    def _cited_by_upstream(self) -> list[Citation]:
        return cited_by_upstream(self._cited, self.sentences, self._context.names, self._context.positions)

    def _reported_citations(self) -> Sequence[Citation]:
        return reported_citations(self._context.options.reported.citations, self._context.chunks)

    # For the client

    def support(self) -> list[SupportingPassage]:
        """The passages that support the latest sentence; none if the client wants none."""
        context = self._context
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
        if not self._context.options.shows("documents"):
            return []
        return annotations_of(self.sentences, self._context.chunks)

    def unjudged_parts(self) -> list[dict[str, Any]]:
        """The parts of the delivered text that are neither judged nor harmless, as the client sees them."""
        return unjudged_of(standing(self.sentences))

    def claims_shown(self, sentences: Sequence[JudgedSentence]) -> list[dict[str, Any]]:
        """The claims of ``sentences`` as the client sees them; none if it wants none."""
        context = self._context
        if not context.options.shows("claims"):
            return []
        index = self._index if context.expected > 1 else None
        return [claim for each in sentences for claim in claims_of(each, context.chunks, choice=index)]

    def withheld_texts(self) -> list[str]:
        """Texts that the client must not see."""
        return withheld_texts(self.sentences, self.final)

    def llm_calls(self) -> list[LlmCall]:
        """The calls to an LLM that the final checks made."""
        return llm_calls(self.final)

    # For the event log

    def record(
        self, *, text: str, decisions: Sequence[Decision], llm_calls: Sequence[LlmCall], blocked: bool, complete: bool
    ) -> ChoiceRecord:
        """What the event log keeps of the choice, whose delivered text is ``text``."""

        def log() -> ChoiceLog:
            context = self._context
            return choice_log(
                self.policy_inputs(blocked=blocked),
                standing(self.sentences),
                cited=self._cited_by_upstream(),
                reported=self._reported_citations(),
                names=context.names,
                positions=context.positions,
                ready=context.unjudged is None,
                complete=complete,
            )

        return ChoiceRecord(
            index=self._index,
            text=text,
            decisions=decisions,
            sentences=sentence_records(self.sentences),
            positions=self._context.positions,
            llm_calls=llm_calls,
            log=log,
        )
