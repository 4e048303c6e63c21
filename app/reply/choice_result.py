"""What one choice of a reply came to: its sentences with their verdicts, and what is told of them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from weakref import proxy

from app.events.recorder import RequestRecorder
from app.protocols.common.stream_events import SupportingPassage, UpstreamCitation
from app.reply.choice_snapshot import choice_log
from app.reply.citations import cite_reply, cited_by_upstream
from app.reply.claim_rows import claim_rows
from app.reply.context import ReplyContext
from app.reply.grounding_object import JudgedSentence, Repairs, annotations_of, claims_of, summary_of
from judges.checker import ReplyCheck
from judges.report import SKIPPED, build_report
from judges.types import ClaimVerdict, Consistency, GroundingReport, LlmCall, LlmScore, ReplyVerdict, SentenceVerdict
from policies.citations.extraction import reported_citations
from policies.engine import ReplyEvaluation
from policies.replay import ChoiceLog
from policies.types import Action, Citation, Decision, Phase, PolicyInputs

CALLS = frozenset({"tool_calls", "tool_use"})
"""What the APIs name a part of a reply that calls a tool."""


class Account:
    """Kept while the choice is judged (``app.reply.choice``); what it tells is of what stands in it by then.

    ``settle`` puts all of it into the request's record.
    """

    def __init__(
        self,
        index: int,
        *,
        context: ReplyContext,
        recorder: RequestRecorder,
        evaluation: ReplyEvaluation,
        check: ReplyCheck | None,
    ) -> None:
        self.index = index
        self.blocked = False
        self.ended = False
        self.unchecked: set[str] = set()
        """What the reply has that no judge looks at."""
        self.not_regenerated: str | None = None
        """Why the upstream was not asked to go on anew where a policy wants that."""
        self._spoke = False
        self._context = context
        # The trace will hold this, and a ring of the two would keep all of the request in memory.
        self._recorder: RequestRecorder = proxy(recorder)
        self._evaluation = evaluation
        self._check = check
        self._entries: list[JudgedSentence] = []
        self._delivered: list[str] = []
        self._delivered_chars = 0
        self._repairs = Repairs()
        self._cited: list[UpstreamCitation] = []
        self._found: Mapping[str, Any] = {}
        self._audited = False
        self._placed = False
        self._settled = False

    @property
    def is_json(self) -> bool:
        return self._context.is_json

    @property
    def delivered(self) -> str:
        return "".join(self._delivered)

    @property
    def emptied(self) -> bool:
        """There was something to say, and all of it was left out."""
        return bool(self._entries) and not self._delivered

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

    def cite(self, cited: UpstreamCitation) -> None:
        """The upstream says that its text cites a document."""
        self._cited.append(cited)

    def support(self) -> list[SupportingPassage]:
        """The passages that support the sentence delivered last; none where the client wants none."""
        if self._context.options.silent:
            return []
        best = self._entries[-1].supporting
        return [
            SupportingPassage(
                position=self._context.positions[source.document_index],
                chunk=self._context.chunks[source.document_index],
                source=source,
            )
            for source in best
            if source is not None
        ]

    def annotations(self) -> list[dict[str, Any]]:
        if not self._context.options.shows("documents"):
            return []
        return annotations_of(self._entries, self._context.chunks)

    def summary(self) -> dict[str, Any] | None:
        """The ``grounding`` object of this choice; None where the client wants none."""
        options = self._context.options
        if options.silent:
            return None
        decisions = [*self._context.retrieval_decisions, *self._evaluation.decisions]
        claims = (
            [
                claim
                for entry in self._entries
                for claim in claims_of(entry, self._context.chunks, choice=self._shown_index)
            ]
            if options.shows("claims")
            else []
        )
        return summary_of(
            request_id=self._recorder.request_id,
            action=self._action(decisions),
            verdict=self.verdict,
            report=self._report(),
            claims=claims,
            decisions=decisions,
            withheld=self._withheld(),
            retrieval=self._context.retrieval,
            judge_name=self._context.judge_name,
            judge_ms=self.judge_ms,
            llm_calls=self._llm_calls(),
            unchecked=sorted(self.unchecked),
            repairs=self._repairs,
            not_regenerated=self.not_regenerated,
            options=options,
        )

    def settle(self) -> None:
        """Put what is known of this choice into the request's record. To be called at the end, whatever the end was."""
        if self._settled:
            return
        self._settled = True
        if not self._audited and not self.blocked:
            self._evaluation.abort()
        # The rules are bound once a request, not once a choice.
        self._recorder.decisions.extend(
            decision
            for decision in self._evaluation.decisions
            if self.index == 0 or decision.phase is not Phase.BEFORE_WORKFLOW
        )
        self._recorder.choices.append(self._log)
        self._recorder.sentences += sum(not entry.structure for entry in self._entries)
        self._recorder.reply += self.delivered
        self._recorder.claims.append(
            partial(
                claim_rows,
                self._entries,
                choice=self.index,
                positions=self._context.positions,
                store_text=self._context.store_text,
            )
        )
        # What decisions may quote of the reply, and of what the caller says of it.
        self._recorder.withheld.extend(claim.claim.text for entry in self._entries for claim in entry.verdict.claims)
        self._recorder.withheld.extend([*self._reasoning(), *self._corrections(), *self._compared()])
        self._recorder.llm_calls.extend(self._llm_calls())
        self._recorder.withheld.extend(self._context.options.reported.unsupported_claims)

    def _log(self) -> ChoiceLog:
        return choice_log(
            self._policy_inputs(),
            self._standing(),
            cited=self._cited_by_upstream(),
            reported=self._reported_citations(),
            names=self._context.names,
            positions=self._context.positions,
            ready=self._context.unjudged is None,
            complete=self._audited or (self.ended and not self.blocked),
        )

    def _policy_inputs(self, **found: Any) -> PolicyInputs:
        """What policies read of the whole reply."""
        return self._context.policy_inputs(
            claims=[claim for entry in self._standing() for claim in judged(entry.verdict)],
            trust_score=self.trust_score,
            judged=self._unjudged() is None,
            tool_calls_only=bool(CALLS & self.unchecked) and not self._entries,
            **self._found,
            **found,
        )

    def _say(self, text: str) -> None:
        self._delivered.append(text)
        self._delivered_chars += len(text)

    @property
    def _shown_index(self) -> int | None:
        return self.index if self._context.expected > 1 else None

    def _report(self) -> GroundingReport:
        """Over what the client got; over everything judged where the reply was blocked."""
        verdicts = [entry.verdict for entry in self._standing() if self.blocked or entry.shown]
        return build_report(
            verdicts,
            characters=sum(len(verdict.sentence.text) for verdict in verdicts),
            has_sources=bool(self._context.chunks),
            available=self._check is not None,
        )

    def _unjudged(self) -> ReplyVerdict | None:
        """The verdict where there is none of a judge: no judge, no documents, a reply of tool calls alone, or one that
        nobody was to judge or that ended before a sentence of it was judged."""
        if self._context.unjudged is not None:
            return self._context.unjudged
        if not self._entries and (self.unchecked or self._spoke):
            return ReplyVerdict.NOT_CHECKED
        return None

    def _standing(self) -> list[JudgedSentence]:
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
                cite_reply(self._entries, self.delivered, self._context.names)
            for entry in shown:
                entry.noted = [c for c in by_upstream if c.sentence_index == entry.verdict.sentence.index]
        indices = {None, *(entry.verdict.sentence.index for entry in shown)}
        in_text = (citation for entry in shown for citation in entry.citations)
        by_upstream = [citation for citation in by_upstream if citation.sentence_index in indices]
        return [*in_text, *by_upstream, *self._reported_citations()]

    def _reported_citations(self) -> Sequence[Citation]:
        return reported_citations(self._context.options.reported.citations, self._context.chunks)

    def _cited_by_upstream(self) -> list[Citation]:
        return cited_by_upstream(self._cited, self._entries, self._context.names, self._context.positions)

    def _compared(self) -> list[str]:
        """The statements that were found to contradict each other."""
        found: Consistency = self._found.get("consistency", Consistency())
        return found.texts

    def _action(self, decisions: Sequence[Decision]) -> str:
        if self.blocked:
            return "block"
        return "warn" if any(decision.action is not Action.ALLOW for decision in decisions) else "allow"


def judged(verdict: SentenceVerdict) -> list[ClaimVerdict]:
    """The claims that policies look at: not those beyond ``max_claims``, which are reported as skipped."""
    return [claim for claim in verdict.claims if claim.reason != SKIPPED]
