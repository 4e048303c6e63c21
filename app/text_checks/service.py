"""Checks a given text against sources, with the gateway's judge and policies."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from msgspec import structs

from app.auth import GatewayKey
from app.errors import InvalidRequestError, LlmCheckError
from app.events.recorder import RequestRecorder
from app.events.records import EventLog, RecordedRequest
from app.events.request_record import ChoiceRecord, ReplyOutcome, RetrievalOutcome
from app.gateway.request_lifetime import RequestLifetime
from app.protocols.documents.document_extraction import Limits
from app.protocols.documents.parsed_request import question_of
from app.reply.checks.final_checks import FinalCheck, WholeReply, run_final_checks
from app.reply.citation_annotations import cite_reply
from app.reply.inline_reasoning import blank_reasoning
from app.reply.judged_sentence import JudgedSentence, llm_calls, policy_claims, sentence_records
from app.settings import Settings
from app.text_checks.request import CheckRequest, read_check
from judges.checker import GroundingChecker, ReplyCheck
from judges.concurrency import MAX_INLINE_SPLIT_CHARS, run
from judges.report import build_report, coverage_of, letters
from judges.types import (
    ClaimVerdict,
    GroundingReport,
    ReplyVerdict,
    Sentence,
    SentenceVerdict,
)
from judges.verdicts.citation_support import CitationChecker
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents
from policies.evaluation import strictest
from policies.grounding.evaluator import GroundingRules
from policies.grounding.sentence_checks import unjudged_texts
from policies.policy_selection import PolicyEngine, PolicySet, ReplyEvaluation
from policies.registry import decides_on
from policies.types import Action, Citation, Decision, Policy, PolicyInputs, PolicySubject, Scope

_OPTIONS = "options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a check.

    ``decisions`` contains the decisions of the given policy or rules. If neither is given, it is empty. ``judge_ms`` is
    the time, in milliseconds, during which at least one sentence was being judged. It is None if there was no judge.
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
        """Whether the text is grounded. All of it must have been judged, no claim may be contradicted, the ratio of
        unverifiable claims must be within the limit, and the policy must allow the text. A text without claims is
        grounded."""
        report = self.report
        judged = report.verdict not in (ReplyVerdict.NO_SOURCES, ReplyVerdict.NOT_CHECKED) and not report.unjudged
        sound = not report.contradicted_count and report.unverifiable_ratio <= self.max_unverifiable_ratio
        return judged and sound and self.action is Action.ALLOW


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """Judged text with its verdicts, before the policy decides. ``answer`` is the text without reasoning. ``read``
    lists the sentences of the text. ``by`` is the name of the judge, or None if there is no judge."""

    request: CheckRequest
    answer: str
    policy: Policy | None
    evaluation: ReplyEvaluation
    reply: ReplyCheck
    read: Sequence[SentenceVerdict]
    by: str | None
    citation_checker: Callable[[], CitationChecker | None] | None

    @property
    def verdicts(self) -> Sequence[SentenceVerdict]:
        """Return the verdicts of the judge, or none if there is no judge."""
        return self.read if self.by is not None else ()

    @cached_property
    def sentences(self) -> Sequence[JudgedSentence]:
        return _sentences(self.verdicts, self.answer, DocumentNames(self.request.chunks))

    @property
    def rules(self) -> GroundingRules:
        rules = None if self.policy is None else self.policy.rules
        return rules if isinstance(rules, GroundingRules) else GroundingRules()

    @cached_property
    def report(self) -> GroundingReport:
        return build_report(
            self.verdicts,
            characters=letters(self.answer),
            has_sources=bool(self.request.chunks),
            available=self.by is not None,
        )

    @property
    def claims(self) -> list[ClaimVerdict]:
        return policy_claims(self.verdicts)

    @property
    def citations(self) -> list[Citation]:
        return [citation for entry in self.sentences for citation in entry.citations]

    @property
    def judge_ms(self) -> float | None:
        return None if self.by is None else self.reply.judge_ms

    def whole_reply(self) -> WholeReply:
        return WholeReply(
            text=self.answer,
            claims=self.claims,
            chunks=self.request.chunks,
            settings=self.evaluation.settings,
            citations=self.citations,
            citation_checker=self.citation_checker,
            record=self.reply.record_call,
        )

    def policy_inputs(self, found: Mapping[str, Any]) -> PolicyInputs:
        return PolicyInputs(
            chunks=self.request.chunks,
            claims=self.claims,
            citations=self.citations,
            trust_score=self.report.trust_score,
            judged=self.by is not None,
            judge_unavailable=bool(self.request.chunks) and self.by is None,
            coverage=coverage_of(self.read),
            **found,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChecks:
    """Performs text checks. There is one instance per process. ``engine`` returns the active policies, ``final_checks``
    are the checks on whole replies, and ``observers`` receive every event."""

    settings: Settings
    checker: GroundingChecker
    engine: Callable[[], PolicyEngine]
    events: EventLog
    final_checks: Sequence[FinalCheck] = ()
    observers: Sequence[Callable[[RecordedRequest], None]] = ()

    async def check(self, body: Mapping[str, Any], *, key: GatewayKey | None = None) -> Checked:
        """Perform the check requested by ``body``, which is decoded JSON. ``key`` is the caller's gateway key.
        Cancelling the call stops the check.

        Raises InvalidRequestError, which names the field. Raises KeyLimitError for a document or an LLM that the key
        does not allow, and LlmCheckError for an LLM judge that the caller may not use.
        """
        request = read_check(body, Limits.of(self.settings))
        if key is not None:
            key.check_documents(request.chunks, request.path_of)
        if request.options is not None:
            self._check_llm(request.options, key)
        policy = self._policy(request, key)
        recorder = RequestRecorder(
            api="grounding.check", store_text=self.settings.store_text, key_prefix=key.prefix if key else None
        )
        recorder.retrieval = RetrievalOutcome(chunks=request.chunks)
        recorder.reply = ReplyOutcome(choices=[ChoiceRecord(text=request.text)])
        scope = RequestLifetime(recorder=recorder, events=self.events, observers=self.observers)
        async with scope:
            checked = await self._decide(await self._judge(request, policy), recorder)
            await scope.record()
        return checked

    def _check_llm(self, options: GroundingRules, key: GatewayKey | None) -> None:
        """Check that the caller may use an LLM, if ``options`` require one. LLM calls cost money and send text to
        another service, so the settings or a policy in scope must allow them. Raises LlmCheckError or KeyLimitError."""
        in_scope = self.engine().in_scope(key=key.names if key is not None else None).policies
        allowed = [policy.rules for policy in in_scope if isinstance(policy.rules, GroundingRules)]
        if options.contradiction_action == "correct" and not (
            self.settings.caller_llm_checks or any(rules.contradiction_action == "correct" for rules in allowed)
        ):
            raise _llm_check_error("contradiction_action", "'correct', because it calls an LLM")
        if not options.llm_grounding_check:
            return
        models = {rules.llm_grounding_model for rules in allowed if rules.llm_grounding_check}
        if not self.settings.caller_llm_checks and options.llm_grounding_model not in models:
            name = "llm_grounding_model" if models else "llm_grounding_check"
            raise _llm_check_error(name, f"the LLM {options.llm_grounding_model!r:.200}")
        if key is not None:
            key.check_model(options.llm_grounding_model, param="options.llm_grounding_model")

    def _policy(self, request: CheckRequest, key: GatewayKey | None) -> Policy | None:
        if request.options is not None:
            return Policy(id=_OPTIONS, name=_OPTIONS, category="grounding", rules=request.options, version=0)
        if request.policy is None:
            return None
        # A caller must not learn about policies that apply only to other keys, so they are treated as unknown.
        names = key.names if key is not None else None
        named = [
            policy
            for policy in self.engine().enabled
            if request.policy in (policy.id, policy.name)
            and Scope(keys=policy.scope.keys).covers(agent=None, model=None, key=names)
        ]
        for policy in named:
            if decides_on(policy.category, PolicySubject.REPLY):
                return policy
        told = f"has the category {named[0].category}, which doesn't check replies" if named else "is not in force"
        raise InvalidRequestError(f"policy: {request.policy!r:.200} {told}.", param="policy")

    async def _judge(self, request: CheckRequest, policy: Policy | None) -> _Judged:
        """Judge every sentence, if there are documents and a judge. The LLM is called only if a policy requires it."""
        policies = PolicySet(() if policy is None else (policy,))
        evaluation = policies.evaluate_reply(PolicyInputs(chunks=request.chunks))
        settings = evaluation.settings
        llm = settings.corrects or bool(settings.score_requests)
        evidence = await self.checker.prepare(request.chunks)
        can_judge = bool(request.chunks) and self.checker.can_judge(llm=llm)
        names = DocumentNames(request.chunks)
        reply = self.checker.reply(
            evidence,
            thresholds=settings.judging.thresholds,
            max_sources_per_claim=settings.judging.max_sources,
            max_claims=settings.judging.max_claims,
            correct=settings.corrects,
            llm=llm,
            question=question_of(request.question or ""),
            message=request.question,
            conversation=request.question or "",
            resolves=partial(names_only_documents, names=names),
        )
        # A check doesn't leave out any text, so reasoning that would be left out of a reply is judged.
        judges = settings.reasoning_action == "judge" or settings.withholds_unjudged
        answer = request.text if judges else blank_reasoning(request.text)
        return _Judged(
            request=request,
            answer=answer,
            policy=policy,
            evaluation=evaluation,
            reply=reply,
            read=[
                structs.replace(each, claims=settings.with_accepted_corrections(each.claims))
                for each in await _judge_all(reply, answer)
            ],
            by=self.checker.named(llm=llm) if can_judge else None,
            citation_checker=partial(self.checker.citation_checker, evidence) if can_judge else None,
        )

    async def _decide(self, judged: _Judged, recorder: RequestRecorder) -> Checked:
        """Apply the policy to the text as if it were a reply, and record the result."""
        evaluation, request, report = judged.evaluation, judged.request, judged.report
        evaluation.start()
        for verdict in judged.read:
            claims = policy_claims((verdict,)) if judged.by is not None else ()
            evaluation.sentence(claims, unjudged_texts(verdict))
        found = await run_final_checks(self.final_checks, judged.whole_reply()) if judged.policy else {}
        evaluation.finish(judged.policy_inputs(found))
        named = judged.policy is not None and judged.policy.id != _OPTIONS
        choice = ChoiceRecord(
            text=request.text,
            decisions=evaluation.decisions if named else (),
            sentences=sentence_records(judged.sentences),
            positions=range(len(request.chunks)),
            llm_calls=[*judged.reply.llm_calls, *llm_calls(found)],
        )
        recorder.reply = ReplyOutcome(
            choices=[choice],
            verdict=report.verdict.value,
            trust_score=report.trust_score,
            judge_ms=judged.judge_ms,
            judge_fault=(self.checker.fault or self.checker.error) if request.chunks else None,
        )
        return Checked(
            request_id=recorder.request_id,
            report=report,
            decisions=evaluation.decisions,
            max_unverifiable_ratio=judged.rules.max_unverifiable_ratio,
            judge_name=judged.by,
            judge_ms=judged.judge_ms,
        )


def _llm_check_error(name: str, what: str) -> LlmCheckError:
    return LlmCheckError(
        f"options.{name}: callers may not use {what}. An operator can allow it in a policy, or with "
        "GROUNDLANE_CALLER_LLM_CHECKS.",
        param=f"options.{name}",
    )


async def _judge_all(reply: ReplyCheck, text: str) -> list[SentenceVerdict]:
    """Judge all sentences concurrently, and return the verdicts in order."""

    def split() -> Sequence[Sentence]:
        return [*reply.push(text), *reply.flush()]

    sentences = await run(len(text) <= MAX_INLINE_SPLIT_CHARS, split)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reply.check(sentence)) for sentence in sentences]
    return [task.result() for task in tasks]


def _sentences(verdicts: Sequence[SentenceVerdict], text: str, names: DocumentNames) -> list[JudgedSentence]:
    entries = [JudgedSentence(verdict=verdict, offset=verdict.sentence.span.start) for verdict in verdicts]
    if entries:
        cite_reply(entries, text, names)
    return entries
