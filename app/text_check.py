"""A text checked against sources on demand: the judge and the policies of the gateway, without a model's reply."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.claim_rows import claim_rows
from app.errors import InvalidRequestError
from app.events.records import EventLog, RequestEvent
from app.inquiry import Inquiry, Said, ask_all
from app.intake.check import CheckRequest, read_check
from app.intake.documents import Limits
from app.keys import GatewayKey
from app.reply import Entry
from app.settings import Settings
from app.trace import Trace
from judges.pipeline import GroundingChecker, ReplyCheck
from judges.reporting import SKIPPED, build_report
from judges.types import Chunk, ClaimVerdict, GroundingReport, ReplyVerdict, Sentence, SentenceVerdict
from policies.citations import find_citations
from policies.engine import PolicyEngine, PolicySet
from policies.grounding import GroundingRules
from policies.names import DocumentNames
from policies.types import Action, Citation, Decision, Policy, Record, strictest

_LONG_TEXT = 20_000
"""Characters beyond which a text is split off the event loop."""
_OPTIONS = "options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found of a text.

    ``decisions`` are those of the policy named, or of the rules given; without either there are none. ``judge_ms``:
    milliseconds during which at least one sentence was being judged; None where nobody judged.
    """

    request_id: str
    report: GroundingReport
    decisions: Sequence[Decision]
    max_unverifiable_ratio: float
    judge_name: str | None
    judge_ms: float | None

    @property
    def action(self) -> Action:
        return strictest([decision.action for decision in self.decisions])

    @property
    def grounded(self) -> bool:
        """Judged, nothing contradicted, and no larger share found in no source than allowed. So is a text without
        claims."""
        judged = self.report.verdict not in (ReplyVerdict.NO_SOURCES, ReplyVerdict.NOT_CHECKED)
        unverifiable = self.report.unverifiable_ratio
        return judged and not self.report.contradicted_count and unverifiable <= self.max_unverifiable_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChecks:
    """One per process. ``engine`` gives the policies in force, ``inquiries`` are what the gateway asks of a whole
    reply, ``observers`` are told of every event."""

    settings: Settings
    checker: GroundingChecker
    engine: Callable[[], PolicyEngine]
    events: EventLog
    inquiries: Sequence[Inquiry] = ()
    observers: Sequence[Callable[[RequestEvent], None]] = ()

    async def check(self, body: Mapping[str, Any], *, key: GatewayKey | None = None) -> Checked:
        """Check what ``body``, decoded JSON, asks for; ``key`` is the caller's. Cancelling it ends the check.

        Raises InvalidRequestError that names the field, and KeyLimitError for a document that the key is not for.
        """
        request = read_check(body, Limits.of(self.settings))
        if key is not None:
            key.check_documents(request.chunks, request.path_of)
        policy = self._policy(request)
        trace = Trace(api="grounding.check", stream=False, store_text=self.settings.store_text)
        trace.key_prefix, trace.reply = key.prefix if key else None, request.text
        trace.keep_documents(request.chunks, {})
        checked = await self._run(request, PolicySet((policy,) if policy else ()), trace)
        if policy is not None and policy.id != _OPTIONS:
            trace.decisions.extend(checked.decisions)
        trace.verdict, trace.trust_score = checked.report.verdict.value, checked.report.trust_score
        trace.judge_ms = checked.judge_ms
        await self._log(trace)
        return checked

    def _policy(self, request: CheckRequest) -> Policy | None:
        if request.options is not None:
            return Policy(id=_OPTIONS, name=_OPTIONS, category="grounding", rules=request.options, version=0)
        if request.policy is None:
            return None
        named = [p for p in self.engine().enabled if request.policy in (p.id, p.name)]
        for policy in named:
            if policy.category == "grounding":
                return policy
        told = f"is of category {named[0].category}, not grounding" if named else "is not in force"
        raise InvalidRequestError(f"policy: {request.policy!r:.200} {told}.", param="policy")

    async def _run(self, request: CheckRequest, policies: PolicySet, trace: Trace) -> Checked:
        rules = next((p.rules for p in policies.policies if isinstance(p.rules, GroundingRules)), GroundingRules())
        llm = rules.llm_grounding_check or rules.contradiction_action == "correct"
        opening = Record(chunks=request.chunks)
        audit = policies.audit(opening)
        evidence = await self.checker.prepare(request.chunks)
        can_judge = bool(request.chunks) and self.checker.can_judge(llm=llm)
        reply = self.checker.reply(
            evidence,
            thresholds=audit.thresholds,
            max_sources_per_claim=audit.max_sources_per_claim,
            max_claims=audit.max_claims,
            correct=rules.contradiction_action == "correct",
            llm=llm,
        )
        verdicts = await _judge_all(reply, request.text) if can_judge else []
        report = build_report(
            verdicts, characters=len(request.text), has_sources=bool(request.chunks), available=can_judge
        )
        entries = _entries(verdicts, request.chunks)
        claims = [claim for verdict in verdicts for claim in _judged(verdict)]
        audit.start()
        for verdict in verdicts:
            audit.sentence(_judged(verdict))
        said = Said(text=request.text, claims=claims, chunks=request.chunks, audit=audit)
        found = await ask_all(self.inquiries, said) if policies else {}
        record = replace(
            opening,
            claims=claims,
            citations=[citation for entry in entries for citation in entry.citations],
            trust_score=report.trust_score,
            judged=can_judge,
            judge_unavailable=bool(request.chunks) and not can_judge,
            **found,
        )
        audit.finish(record)
        self._keep(trace, entries)
        return Checked(
            request_id=trace.request_id,
            report=report,
            decisions=audit.decisions,
            max_unverifiable_ratio=rules.max_unverifiable_ratio,
            judge_name=self.checker.named(llm=llm) if can_judge else None,
            judge_ms=reply.judge_ms if can_judge else None,
        )

    def _keep(self, trace: Trace, entries: Sequence[Entry]) -> None:
        positions = range(len(trace.documents))
        trace.claims.extend(
            claim_rows(entries, choice=0, first=0, positions=positions, store_text=self.settings.store_text)
        )
        trace.sentences = len(entries)
        trace.withheld.extend(claim.claim.text for entry in entries for claim in entry.verdict.claims)

    async def _log(self, trace: Trace) -> None:
        event = trace.event()
        await self.events.append(event)
        for observer in self.observers:
            observer(event)


async def _judge_all(reply: ReplyCheck, text: str) -> list[SentenceVerdict]:
    """The verdicts of all sentences, in order; several are judged at once."""

    def split() -> Sequence[Sentence]:
        return [*reply.push(text), *reply.flush()]

    sentences = await asyncio.to_thread(split) if len(text) > _LONG_TEXT else split()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reply.check(sentence)) for sentence in sentences]
    return [task.result() for task in tasks]


def _judged(verdict: SentenceVerdict) -> list[ClaimVerdict]:
    return [claim for claim in verdict.claims if claim.reason != SKIPPED]


def _entries(verdicts: Sequence[SentenceVerdict], chunks: Sequence[Chunk]) -> list[Entry]:
    names = DocumentNames(chunks)
    return [
        Entry(verdict=verdict, offset=verdict.sentence.span.start, citations=_citations(verdict, names))
        for verdict in verdicts
    ]


def _citations(verdict: SentenceVerdict, names: DocumentNames) -> list[Citation]:
    sentence = verdict.sentence
    return [replace(found, sentence_index=sentence.index) for found in find_citations(sentence.text, names)]
