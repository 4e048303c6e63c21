"""The judge of cases: the gateway's own pipeline, without a reader who waits."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import orjson

import judges
from app.evaluation.cases.case import Case
from app.evaluation.cases.case_result import Cost, Judged, JudgedClaim, Passage
from app.events.llm_usage import llm_usage
from app.judge_runtime.offline import JudgeMissingError, open_cross_encoder, open_llm
from app.protocols.documents.question import question_of
from app.settings import Settings, SettingsError
from judges.checker import GroundingChecker, ReplyCheck
from judges.cross_encoder import spec_languages
from judges.cross_encoder.model_files import cores
from judges.cross_encoder.scorer_wrapper import ScorerWrapper
from judges.llm import LlmJudge
from judges.llm.context_window import estimate_tokens
from judges.protocols import PairScorer
from judges.thresholds import Thresholds
from judges.types import ClaimVerdict, GroundingReport, LlmCall

_TIMEOUT_S: Final = 600.0
"""Of a sentence. A verdict must not depend on how busy the machine is; calls to an LLM have deadlines of their own."""
_FAILURES: Final = frozenset({"timeout", "overloaded", "judge_error", "unavailable"})
"""Reasons of a claim that nobody came to a verdict on, and that another try may bring one for."""
_CASES_A_CORE: Final = 4
"""So many that the model finds claims to judge while others are read, weighed and written."""
_DIGITS: Final = 6
_NOT_JUDGING: Final = frozenset({"training", "embedded", "__pycache__"})
_SOURCES: Final = frozenset({".py", ".json", ".toml"})


class JudgeKind(StrEnum):
    """Who judges: the cross-encoder, the LLM, or the LLM where the cross-encoder comes to no verdict."""

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
class Ruling:
    """The verdicts on a case, and what kept them from being complete."""

    judged: Judged
    fault: str | None


class CaseJudge:
    """Judges cases with a cross-encoder, an LLM or both; ``open_judge`` makes the one of the settings.

    It closes what it was given. ``fingerprint`` says, with the judge's name, what a verdict follows from besides case
    and thresholds. ``llm_concurrency``: calls that the LLM takes at once.
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
        self.at_once = max(_CASES_A_CORE * cores(), llm_concurrency if kind.asks_llm else 0)
        """How many cases to judge side by side."""
        self._scorer = None if scorer is None else _Unhurried(scorer)
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
        """Name and version, once it is loaded."""
        return " + ".join(one.name for one in (self._scorer, self._llm) if one is not None)

    async def start(self, *, ask_llm: bool = True) -> None:
        """Load what judges. ``ask_llm``: an LLM that cannot be asked is an error. Raises JudgeMissingError."""
        await self.checker.start()
        if self._scorer is not None and self.checker.fault is not None:
            raise JudgeMissingError(f"the judge cannot be loaded: {self.checker.fault}")
        if ask_llm and self._llm is not None:
            if self._llm.fault is not None:
                raise JudgeMissingError(f"the LLM judge cannot be asked: {self._llm.fault}")
            await self._llm.start()

    async def aclose(self) -> None:
        await self.checker.aclose()
        if self._llm is not None:
            await self._llm.aclose()

    def key(self, case: Case) -> str:
        """A hash of everything that the verdicts on ``case`` follow from: texts, judge, thresholds and code. The judge
        must be loaded. How the case is scored is not part of it: that is done with the verdicts at hand."""
        parts = {
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

    async def judge(self, case: Case, *, llm: bool = True) -> Ruling:
        """The verdicts on ``case``; trouble with the judge is told as the ruling's fault, never raised. ``llm``: False
        leaves the LLM out."""
        unready = None if self._llm is None or not llm else self._llm.fault
        if unready is not None:
            return self.nothing(f"the LLM judge cannot be asked: {unready}")
        evidence = await self.checker.prepare(case.documents)
        reply = self.checker.reply(
            evidence, thresholds=self.thresholds, llm=llm, question=question_of(case.input or "")
        )
        sentences = [*reply.push(case.output), *reply.flush()]
        await asyncio.gather(*(reply.check(sentence) for sentence in sentences))
        report = reply.report()
        return Ruling(self._judged(report, reply), _fault(report, reply.llm_calls))

    def nothing(self, fault: str) -> Ruling:
        """No verdict, and why."""
        return Ruling(Judged(judge=self.name, summary="Not checked", support=self.thresholds.entailment), fault)

    def _judged(self, report: GroundingReport, reply: ReplyCheck) -> Judged:
        return Judged(
            judge=self.name,
            summary=report.summary,
            support=self.thresholds.entailment,
            claims=tuple(self._claim(verdict) for verdict in report.claims),
            cost=_cost(reply.llm_calls),
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
            confidence=round(verdict.confidence, _DIGITS),
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
    """The judge that ``settings`` describe, not loaded yet. Raises SettingsError where they name none of that kind."""
    if kind.reads_pairs and settings.judge == "none":
        raise SettingsError(f"GROUNDLANE_JUDGE: 'none' cannot judge as {kind.value}")
    if kind.asks_llm and settings.llm_judge_model is None:
        raise SettingsError(f"GROUNDLANE_LLM_JUDGE_MODEL: not set; the judge {kind.value!r} needs one")
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
    """A hash of the package that judges, code and weights of the combiner: another release may judge otherwise. The
    model has its own in its name."""
    root = Path(judges.__file__).parent
    digest = blake2b(digest_size=8)
    for file in sorted(root.rglob("*")):
        within = file.relative_to(root)
        if file.suffix in _SOURCES and not _NOT_JUDGING.intersection(within.parts):
            digest.update(str(within).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _fault(report: GroundingReport, calls: Sequence[LlmCall]) -> str | None:
    """Why the verdicts are not those of the judge at its best; None where they are."""
    reasons = Counter(claim.reason for claim in report.claims if claim.reason in _FAILURES)
    if reasons:
        why = ", ".join(sorted(str(reason) for reason in reasons))
        return f"{reasons.total()} of {report.total_claims} claims went unjudged: {why}"
    failed = [call.outcome for call in calls if call.outcome not in ("ok", "unreadable")]
    if failed:
        return f"{len(failed)} of {len(calls)} calls to the LLM failed: {', '.join(sorted(set(failed)))}"
    return None


def _cost(calls: Sequence[LlmCall]) -> Cost:
    if not calls:
        return Cost()
    usage = llm_usage(calls)
    return Cost(usd=usage["cost_usd"], input_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"])


class _Unhurried(ScorerWrapper):
    """Reads no passages ahead: nobody waits, and those that no claim asks for need not be read at all."""

    async def read(self, texts: Sequence[str]) -> None:
        pass
