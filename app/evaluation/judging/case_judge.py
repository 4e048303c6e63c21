"""Judges cases with the gateway's judging pipeline, without its time limits."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

import orjson

import judges
from app.evaluation.cases.case import Case, ScoringMode
from app.evaluation.cases.case_result import (
    PASS_MARK,
    Cost,
    JudgedClaim,
    JudgedOutput,
    Passage,
    UnjudgedRange,
    normalized,
)
from app.events.llm_usage import llm_usage
from app.judge_runtime.offline import JudgeMissingError, open_cross_encoder, open_llm
from app.protocols.documents.parsed_request import question_of
from app.settings import Settings, SettingsError
from judges.checker import GroundingChecker, ReplyCheck
from judges.cross_encoder import spec_languages
from judges.cross_encoder.model_files import cores
from judges.cross_encoder.scorer_wrapper import ScorerWrapper
from judges.label_thresholds import Thresholds
from judges.llm import LlmJudge, LlmScoringMode
from judges.llm.claim_verdicts import ClaimsCall
from judges.llm.context_window import estimate_tokens
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, PairScorer
from judges.types import Claim, ClaimVerdict, GroundingReport, Label
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents

_TIMEOUT_S: Final = 600.0
"""The time limit for judging a sentence, in seconds. It is long, so that no verdict depends on how busy the machine is.
LLM calls have separate time limits."""
_FAILURES: Final = frozenset({"timeout", "overloaded", "judge_error", "unavailable"})
"""Reasons for a missing verdict that may no longer apply if the claim is judged again."""
_CASES_PER_CORE: Final = 4
"""The number of cases judged concurrently per core. It is high enough to keep the model busy while other cases are read
and written."""
_DIGITS: Final = 6
_NOT_HASHED: Final = frozenset({"training", "embedded", "__pycache__"})
_SOURCES: Final = frozenset({".py", ".json", ".toml"})


class JudgeKind(StrEnum):
    """The kind of judge: the cross-encoder, the LLM, or a cascade that asks the LLM if the cross-encoder is
    undecided."""

    CROSS_ENCODER = "cross-encoder"
    LLM = "llm"
    CASCADE = "cascade"

    @property
    def reads_pairs(self) -> bool:
        return self is not JudgeKind.LLM

    @property
    def asks_llm(self) -> bool:
        return self is not JudgeKind.CROSS_ENCODER


@dataclass(frozen=True, slots=True)
class CaseVerdicts:
    """The verdicts on a case. If they are incomplete, ``fault`` says why."""

    judged: JudgedOutput
    fault: str | None


class CaseJudge:
    """Judges cases with a cross-encoder, an LLM or both. ``open_judge`` builds one from the settings.

    Closing it also closes the judges passed to it. ``fingerprint`` identifies the judging code. Together with the
    judge's name, the case and the thresholds, it determines the verdicts. ``llm_concurrency`` is the maximum number of
    concurrent LLM calls.
    """

    def __init__(
        self,
        kind: JudgeKind,
        *,
        scorer: PairScorer | None = None,
        llm: LlmJudge | None = None,
        thresholds: Thresholds | None = None,
        languages: frozenset[str] | None = None,
        max_sentence_chars: int = 4000,
        llm_concurrency: int = 1,
        fingerprint: str | None = None,
    ) -> None:
        self.kind = kind
        self.thresholds = thresholds or Thresholds()
        self.at_once = max(_CASES_PER_CORE * cores(), llm_concurrency if kind.asks_llm else 0)
        """The number of cases to judge concurrently."""
        self._scorer = None if scorer is None else _WithoutReadAhead(scorer)
        self._llm = llm
        self._fingerprint = source_digest() if fingerprint is None else fingerprint
        self._max_sentence_chars = max_sentence_chars
        self.checker = GroundingChecker(
            self._scorer,
            llm=llm,
            languages=languages,
            timeout_s=_TIMEOUT_S,
            max_sentence_chars=max_sentence_chars,
        )

    @property
    def name(self) -> str:
        """The name and version of the judge. Available once the judge is loaded."""
        return " + ".join(one.name for one in (self._scorer, self._llm) if one is not None)

    async def start(self, *, ask_llm: bool = True) -> None:
        """Load the judge. Raises JudgeMissingError if loading fails or if the LLM is needed (``ask_llm``) but
        unavailable."""
        await self.checker.start()
        if self._scorer is not None and self.checker.fault is not None:
            raise JudgeMissingError(f"the judge cannot be loaded: {self.checker.fault}")
        if ask_llm and self._llm is not None:
            if self._llm.fault is not None:
                raise JudgeMissingError(f"the LLM judge is unavailable: {self._llm.fault}")
            await self._llm.start()

    async def aclose(self) -> None:
        await self.checker.aclose()
        if self._llm is not None:
            await self._llm.aclose()

    def key(self, case: Case) -> str:
        """Hash everything that determines the verdicts on ``case``: its texts, the judge, the thresholds and the code.
        The judge must be loaded. The scoring options are included only if the LLM gives the scores. Otherwise, scores
        are computed from the verdicts."""
        scoring = case.scoring
        parts = {
            "scoring": None if self.kind.reads_pairs else [scoring.mode.value, scoring.include_reasoning],
            "judge": self.name,
            "kind": self.kind.value,
            "code": self._fingerprint,
            "thresholds": [self.thresholds.entailment, self.thresholds.contradiction],
            "max_sentence_chars": self._max_sentence_chars,
            "input": case.input,
            "output": case.output,
            "documents": [[one.id, one.text, one.source, one.title, one.relevance_score] for one in case.documents],
        }
        return blake2b(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=20).hexdigest()

    async def judge(self, case: Case, *, llm: bool = True) -> CaseVerdicts:
        """Judge ``case``. If the judge fails, ``fault`` in the result says why. Errors are never raised. With
        ``llm=False``, the LLM is not called."""
        unready = None if self._llm is None or not llm else self._llm.fault
        if unready is not None:
            return self.nothing(f"the LLM judge is unavailable: {unready}")
        evidence = await self.checker.prepare(case.documents)
        reply = self.checker.reply(
            evidence,
            resolves=partial(names_only_documents, names=DocumentNames(case.documents)),
            thresholds=self.thresholds,
            llm=llm and self.kind.reads_pairs,
            question=question_of(case.input or ""),
            message=case.input if (case.input or "").strip() else None,
        )
        sentences = [*reply.push(case.output), *reply.flush()]
        if llm and self._llm is not None and not self.kind.reads_pairs:
            claims = [claim for sentence in sentences for claim in await reply.claims_of(sentence)]
            return await self._score_claims(self._llm, case, claims)
        await asyncio.gather(*(reply.check(sentence) for sentence in sentences))
        report = reply.report()
        return CaseVerdicts(self._judged(report, reply), _fault(report, reply.llm_calls))

    async def claims_calls(self, case: Case, claims: Sequence[Claim]) -> Sequence[ClaimsCall]:
        """Build the LLM calls that score ``claims`` of ``case`` without the cross-encoder. Raises JudgeError."""
        if self._llm is None or not claims:
            return ()
        return await asyncio.to_thread(
            self._llm.claims_calls,
            claims,
            case.documents,
            mode=LlmScoringMode(case.scoring.mode),
            reasoning=case.scoring.include_reasoning,
        )

    async def _score_claims(self, llm: LlmJudge, case: Case, claims: Sequence[Claim]) -> CaseVerdicts:
        mode, calls = case.scoring.mode, list[LlmCall]()
        try:
            prompts = await self.claims_calls(case, claims)
            found = await llm.score_claims(prompts, calls.append, mode=LlmScoringMode(mode))
        except (JudgeError, TimeoutError) as error:
            return self.nothing(_failure(calls) or str(error), _cost(calls))
        if found is None:
            return self.nothing(_failure(calls) or "the LLM gave no verdicts", _cost(calls))
        judged = tuple(_scored(claim, raw, mode) for claim, raw in zip(claims, found.raw, strict=True))
        accepted = sum(claim.accepted for claim in judged)
        return CaseVerdicts(
            JudgedOutput(
                judge=self.name,
                summary=f"{accepted}/{len(judged)} claims supported" if judged else "No claims to check",
                support=self.thresholds.entailment,
                claims=judged,
                cost=_cost(calls),
                reasoning=found.reasoning,
            ),
            None,
        )

    def nothing(self, fault: str, cost: Cost | None = None) -> CaseVerdicts:
        """Return a result without verdicts, with the given ``fault``."""
        return CaseVerdicts(
            JudgedOutput(
                judge=self.name, summary="Not checked", support=self.thresholds.entailment, cost=cost or Cost()
            ),
            fault,
        )

    def _judged(self, report: GroundingReport, reply: ReplyCheck) -> JudgedOutput:
        return JudgedOutput(
            judge=self.name,
            summary=report.summary,
            support=self.thresholds.entailment,
            claims=tuple(self._claim(verdict) for verdict in report.claims),
            cost=_cost(reply.llm_calls),
            unjudged=tuple(
                UnjudgedRange(kind=part.kind, start=part.span.start, end=part.span.end) for part in report.unjudged
            ),
        )

    def _claim(self, verdict: ClaimVerdict) -> JudgedClaim:
        claim = verdict.claim
        source = verdict.deciding_source
        count: Callable[[str], int] = estimate_tokens if self._scorer is None else self._scorer.count_tokens
        return JudgedClaim(
            text=claim.text,
            context=claim.context,
            sentence=claim.sentence_index,
            start=claim.span.start,
            end=claim.span.end,
            tokens=count(claim.text),
            label=verdict.label,
            entailed=round(verdict.entailed, _DIGITS),
            contradicted=round(verdict.contradicted, _DIGITS),
            confidence=None if verdict.confidence is None else round(verdict.confidence, _DIGITS),
            escalated=verdict.escalated,
            reason=verdict.reason,
            explanation=verdict.explanation,
            correction=verdict.correction,
            passage=None
            if source is None
            else Passage(
                document_id=source.document_id,
                document_index=source.document_index,
                content=source.content,
                start=source.span.start,
                end=source.span.end,
            ),
        )


def open_judge(
    settings: Settings, kind: JudgeKind = JudgeKind.CROSS_ENCODER, *, thresholds: Thresholds | None = None
) -> CaseJudge:
    """Build the judge described by ``settings``, without loading it. Raises SettingsError if they configure no judge of
    this kind."""
    if kind.reads_pairs and settings.judge == "none":
        raise SettingsError(f"GROUNDLANE_JUDGE: can't be 'none', because the judge {kind.value!r} needs a model")
    if kind.asks_llm and settings.llm_judge_model is None:
        raise SettingsError(f"GROUNDLANE_LLM_JUDGE_MODEL: must be set, because the judge {kind.value!r} needs an LLM")
    return CaseJudge(
        kind,
        scorer=open_cross_encoder(settings) if kind.reads_pairs else None,
        llm=open_llm(settings) if kind.asks_llm else None,
        thresholds=thresholds,
        languages=spec_languages(settings.judge) if kind.reads_pairs else None,
        max_sentence_chars=settings.max_sentence_chars,
        llm_concurrency=settings.llm_judge_concurrency,
    )


@cache
def source_digest() -> str:
    """Hash the judging code and the combiner's weights, because a different release may give different verdicts. The
    model's hash is part of its name."""
    root = Path(judges.__file__).parent
    digest = blake2b(digest_size=8)
    for file in sorted(root.rglob("*")):
        within = file.relative_to(root)
        if file.suffix in _SOURCES and not _NOT_HASHED.intersection(within.parts):
            digest.update(str(within).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _fault(report: GroundingReport, calls: Sequence[LlmCall]) -> str | None:
    """Return the reason why the verdicts are incomplete, or None if they are complete."""
    reasons = Counter(claim.reason for claim in report.claims if claim.reason in _FAILURES)
    if reasons:
        why = ", ".join(sorted(str(reason) for reason in reasons))
        return f"{reasons.total()} of {report.total_claims} claims could not be judged: {why}"
    return _failure(calls)


def _failure(calls: Sequence[LlmCall]) -> str | None:
    """Describe the failed LLM calls, or return None if all succeeded."""
    failed = [call.outcome for call in calls if call.outcome not in ("ok", "unreadable")]
    if failed:
        return f"{len(failed)} of {len(calls)} calls to the LLM failed: {', '.join(sorted(set(failed)))}"
    # If a sentence can't be split by the LLM, it is judged as a whole.
    unread = sum(call.outcome == "unreadable" and call.mode != "decompose" for call in calls)
    if unread:
        return f"{unread} of {len(calls)} LLM answers could not be parsed"
    return None


def _scored(claim: Claim, raw: int, mode: ScoringMode) -> JudgedClaim:
    """Accept or reject ``claim`` according to the LLM's own score. An LLM that returns scores doesn't say whether a
    source contradicts the claim."""
    share = normalized(raw, mode)
    return JudgedClaim(
        text=claim.text,
        context=claim.context,
        sentence=claim.sentence_index,
        start=claim.span.start,
        end=claim.span.end,
        tokens=estimate_tokens(claim.text),
        label=Label.SUPPORTED if share >= PASS_MARK else Label.UNVERIFIABLE,
        entailed=share,
        contradicted=0.0,
        confidence=None,
        escalated=True,
        own_score=raw,
    )


def _cost(calls: Sequence[LlmCall]) -> Cost:
    if not calls:
        return Cost()
    usage = llm_usage(calls)
    return Cost(usd=usage["cost_usd"], input_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"])


class _WithoutReadAhead(ScorerWrapper):
    """Disables reading ahead. Latency doesn't matter here, and this way, passages that no claim needs are never
    read."""

    async def read(self, texts: Sequence[str]) -> None:
        pass
