"""Checks replies against documents, sentence by sentence, whether streamed or whole.

``GroundingChecker`` lives as long as the process and is shared by all requests. ``prepare`` cuts a request's chunks
into evidence; ``reply`` opens the check of one reply against it (``judges.reply_check``).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import inf

from judges import features as default_features
from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.harmless import HarmlessText
from judges.claims.json_reply import JsonReply
from judges.claims.known_text import KnownText
from judges.claims.llm_decomposition import DecomposingClaimExtractor
from judges.coverage import partition
from judges.evidence.feature_cache import FeatureCache
from judges.evidence.index import EvidenceIndex
from judges.evidence.windowing import Windowing, build_index
from judges.features import FeatureExtractor
from judges.protocols import (
    ClaimExtractor,
    JudgeError,
    JudgeUnreachableError,
    LlmClaimJudge,
    PairScorer,
    SentenceSplitter,
    prefill,
)
from judges.reply_check import ReplyCheck
from judges.sentences.splitter import IncrementalSplitter
from judges.text.fragments import Resolves
from judges.thresholds import Thresholds
from judges.types import Chunk
from judges.verdicts.citation_support import CitationChecker
from judges.verdicts.claim_judge import ClaimJudge
from judges.verdicts.language_gate import LanguageGate
from judges.verdicts.llm_escalation import LlmEscalation
from judges.verdicts.self_consistency import ConsistencyChecker

__all__ = ["GroundingChecker", "ReplyCheck"]

log = logging.getLogger(__name__)

_UNLOADED_MAX_TOKENS = 512
_PREFILLED_WINDOWS = 16
"""Windows that are processed before a claim asks for them, the most relevant ones."""
_MAX_BUILDS = 2
"""Threads that cut documents at a time. They share the interpreter lock, so each one more delays the event loop; there
are two so that a large set of documents does not block all others."""
_RETRY_S = 5.0
"""Seconds before a remote judge that did not answer is asked again."""
_DECOMPOSITION_SHARE = 0.4
"""The share of a sentence's time that its decomposition may take."""


class GroundingChecker:
    """Checks replies with a cross-encoder, an LLM, or both.

    Args:
        scorer: the cross-encoder, which the checker starts and closes; None for none.
        llm: judges the claims that the scorer leaves open, and all claims if there is no scorer or it fails to load. It
            also splits complex sentences. The caller closes it.
        languages: two-letter codes of the languages that the scorer knows; default the scorer's own ``languages``, or
            else all. The scorer is not asked about claims in another language.
        extractor, features, splitter, windowing: replace the parts that ship with the package.
        timeout_s: seconds for the check of one sentence.
        max_sentence_chars: longer sentences are checked in parts.
    """

    def __init__(
        self,
        scorer: PairScorer | None,
        *,
        llm: LlmClaimJudge | None = None,
        languages: Collection[str] | None = None,
        extractor: ClaimExtractor | None = None,
        timeout_s: float = 5.0,
        max_sentence_chars: int = 4000,
        features: FeatureExtractor | None = None,
        splitter: Callable[[], SentenceSplitter] | None = None,
        windowing: Windowing | None = None,
    ) -> None:
        self._scorer = scorer
        self._llm = llm
        self._languages = languages
        self._timeout_s = timeout_s
        self._extractor = extractor
        self._features: FeatureExtractor = features or default_features
        self._feature_cache = FeatureCache(self._features.prepare)
        self._splitter = splitter or (lambda: IncrementalSplitter(max_chars=max_sentence_chars))
        self._windowing = windowing
        self._start_lock = asyncio.Lock()
        self._builds = asyncio.Semaphore(_MAX_BUILDS)
        self._loaded = False
        self._retry_at = 0.0
        self.fault: str | None = None
        """Why the cross-encoder failed to load; None if it has not failed."""

    @property
    def available(self) -> bool:
        """Whether the cross-encoder is loaded or there is an LLM."""
        return self._loaded or self._has_llm

    def can_judge(self, *, llm: bool = True) -> bool:
        """Whether there is a judge. ``llm``: False disregards the LLM."""
        return self._loaded or (llm and self._has_llm)

    @property
    def error(self) -> str | None:
        """Why no judge is available; None if one is, or if nothing has failed yet."""
        if self.available:
            return None
        return "no judge is configured" if self._scorer is None else self.fault

    @property
    def stalled_s(self) -> float:
        """Seconds since the oldest unanswered request to the cross-encoder; 0 if there is none."""
        return float(getattr(self._scorer, "stalled_s", 0.0))

    @property
    def name(self) -> str:
        """Names and versions of the judges, joined by ``+``; ``none`` if there is none."""
        return self.named()

    def named(self, *, llm: bool = True) -> str:
        """The same; without the LLM if ``llm`` is False."""
        has_llm = llm and self._has_llm
        scorer = self._scorer.name if self._scorer is not None and (self._loaded or not has_llm) else None
        model = self._llm.name if has_llm and self._llm is not None else None
        return " + ".join(name for name in (scorer, model) if name is not None) or "none"

    @property
    def _has_llm(self) -> bool:
        return self._llm is not None and self._llm.ready

    async def start(self) -> None:
        """Load the cross-encoder. Idempotent. Never raises: ``fault`` says why it failed. Only a remote judge that did
        not answer is tried again, at the first call after some seconds."""
        if self._scorer is None or (self.fault is not None and self._start_lock.locked()):
            return
        clock = asyncio.get_running_loop().time
        async with self._start_lock:
            if self._loaded or (self.fault is not None and clock() < self._retry_at):
                return
            self._retry_at = inf
            try:
                await self._scorer.start()
            except JudgeUnreachableError as error:
                self.fault = str(error)
                self._retry_at = clock() + _RETRY_S
            except JudgeError as error:
                self.fault = str(error)
            except Exception as error:
                log.exception("cannot load the judge")
                self.fault = f"{type(error).__name__}: {error}"
            else:
                self._loaded = True
                self.fault = None

    async def aclose(self) -> None:
        self._loaded = False
        if self._scorer is not None:
            await self._scorer.aclose()

    async def prepare(self, chunks: Sequence[Chunk]) -> EvidenceIndex:
        """Cut ``chunks`` into evidence, on a thread. Loads the judge if that has not been tried yet."""
        await self.start()
        async with self._builds:
            index = await asyncio.to_thread(self._build, chunks)
        if self._loaded:
            await self._prefill(index)
        return index

    def reply(
        self,
        evidence: EvidenceIndex,
        *,
        thresholds: Thresholds,
        max_sources_per_claim: int = 5,
        max_claims: int | None = None,
        correct: bool = False,
        llm: bool = True,
        is_json: bool = False,
        question: str = "",
        conversation: str = "",
        resolves: Resolves | None = None,
    ) -> ReplyCheck:
        """Open the check of one reply.

        Args:
            evidence: the documents, as returned by ``prepare``.
            thresholds: for the labels.
            max_sources_per_claim: windows that are read for one claim at most.
            max_claims: judge only the first so many claims; the others are reported as skipped.
            correct: ask the LLM, if there is one, for corrections of contradicted claims.
            llm: False disregards the LLM.
            is_json: the reply is expected to be JSON, of which the string values are judged.
            question: the question that the reply answers. A reply that begins with a pronoun or a fragment is read in
                its context.
            conversation: everything that the user wrote, including the question. Text that names nothing beyond it and
                the documents may be harmless.
            resolves: whether a bracketed text, including its brackets, is a citation marker that names a document.
        """
        claim_judge = (
            ClaimJudge(
                self._scorer,
                evidence,
                self._features,
                thresholds=thresholds,
                max_sources=max_sources_per_claim,
                fuses=getattr(self._scorer, "fuses", False),
                feature_cache=self._feature_cache,
            )
            if self._scorer is not None and self._loaded
            else None
        )
        known = KnownText(question=conversation or question, documents=evidence.documents)
        extractor: ClaimExtractor = self._extractor or HeuristicClaimExtractor(known=known, resolves=resolves)
        escalation = None
        if llm and self._llm is not None and self._llm.ready:
            escalation = LlmEscalation(self._llm, evidence, max_sources=max_sources_per_claim, correct=correct)
            extractor = DecomposingClaimExtractor(
                extractor, self._llm, timeout_s=self._timeout_s * _DECOMPOSITION_SHARE, record=escalation.calls.append
            )
        json_reply = JsonReply(self._splitter, extractor, HarmlessText(known)) if is_json else None
        return ReplyCheck(
            splitter=json_reply or self._splitter(),
            extractor=json_reply or extractor,
            claim_judge=claim_judge,
            has_sources=len(evidence) > 0,
            timeout_s=self._timeout_s,
            max_claims=max_claims,
            escalation=escalation,
            language_gate=self._language_gate(evidence) if claim_judge is not None else None,
            question="" if is_json else question,
            partition=partial(partition, known=known, resolves=resolves, json_reply=json_reply),
        )

    @property
    def consistency_checker(self) -> ConsistencyChecker | None:
        """Compares statements with each other; None while no cross-encoder is loaded."""
        if self._scorer is None or not self._loaded:
            return None
        return ConsistencyChecker(
            self._scorer, self._features, self._extractor or HeuristicClaimExtractor(), self._splitter
        )

    def citation_checker(self, evidence: EvidenceIndex) -> CitationChecker | None:
        """Judges claims against the documents they cite; None while no cross-encoder is loaded."""
        if self._scorer is None or not self._loaded:
            return None
        return CitationChecker(self._scorer, evidence, self._features)

    def _language_gate(self, evidence: EvidenceIndex) -> LanguageGate | None:
        codes = self._languages or getattr(self._scorer, "languages", None)
        return LanguageGate(codes, evidence) if codes else None

    async def _prefill(self, index: EvidenceIndex) -> None:
        """Process evidence while the upstream prepares its reply, so that the first sentence does not wait for it."""
        try:
            await prefill(self._scorer, [window.judged_text for window in index.windows[:_PREFILLED_WINDOWS]])
        except JudgeError as error:
            log.warning("cannot process evidence ahead of claims: %s", error)

    def _build(self, chunks: Sequence[Chunk]) -> EvidenceIndex:
        scorer = self._scorer if self._loaded else None
        index = build_index(
            chunks,
            splitter=self._splitter,
            count=_count_words if scorer is None else scorer.count_tokens,
            max_tokens=_UNLOADED_MAX_TOKENS if scorer is None else scorer.max_tokens,
            windowing=self._windowing,
        )
        index.documents.read()
        if scorer is not None:
            self._feature_cache.get([window.judged_text for window in index.windows[:_PREFILLED_WINDOWS]])
        return index


def _count_words(text: str) -> int:
    return len(text.split())
