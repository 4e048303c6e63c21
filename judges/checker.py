"""Checks replies against documents, sentence by sentence, whether streamed or whole.

``GroundingChecker`` lives as long as the process and is shared by all requests. ``prepare`` cuts a request's chunks
into evidence, and ``reply`` starts checking one reply against that evidence (see ``judges.reply_check``).
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import inf

from judges import features as default_features
from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.harmless import HarmlessText
from judges.claims.introductions.label_lookahead import LabelLookahead, LabelReader
from judges.claims.json_reply import JsonReply
from judges.claims.known_text import KnownText
from judges.claims.llm_decomposition import DecomposingClaimExtractor
from judges.claims.prefilled_reply import PrefilledReply, opens_json
from judges.evidence.index import EvidenceIndex, FeatureCache
from judges.evidence.windowing import DocumentCutter, build_index
from judges.features import CascadeFeatures, FeatureExtractor, PublishedThresholdFeatures
from judges.label_thresholds import Thresholds
from judges.protocols import (
    ClaimExtractor,
    EvidenceCache,
    JudgeError,
    JudgeUnreachableError,
    LlmClaimJudge,
    PairScorer,
    SentenceSplitter,
)
from judges.reply_check import ReplyCheck
from judges.sentences.splitter import IncrementalSplitter
from judges.text.fragments import Resolves
from judges.text_coverage import ReplyCoverage
from judges.types import Chunk, Windowing
from judges.verdicts.citation_support import CitationChecker
from judges.verdicts.claim_judge import ClaimJudge
from judges.verdicts.language_gate import LanguageGate
from judges.verdicts.llm_escalation import LlmEscalation
from judges.verdicts.self_consistency import ConsistencyChecker

__all__ = ["GroundingChecker", "ReplyCheck"]

log = logging.getLogger(__name__)

_UNLOADED_MAX_TOKENS = 512
_PREFILLED_WINDOWS = 16
"""Number of windows, most relevant first, that are processed before a claim needs them."""
_MAX_BUILDS = 2
"""Maximum number of threads that cut documents concurrently. They share the interpreter lock, so each additional thread
delays the event loop. Two threads are enough to keep one large set of documents from blocking all others."""
_RETRY_S = 5.0
"""Seconds to wait before retrying a remote judge that did not answer."""
_DECOMPOSITION_SHARE = 0.4
"""Maximum share of a sentence's time limit that may be spent on decomposing the sentence."""
_CODE_OR_HTML = re.compile(r"```|~~~|^[ \t]*<", re.MULTILINE)


class GroundingChecker:
    """Checks replies with a cross-encoder, an LLM, or both.

    Args:
        scorer: the cross-encoder, which the checker starts and closes, or None.
        llm: judges the claims that the scorer leaves undecided, or all claims if there is no scorer or it fails to
            load. It also splits complex sentences. The caller must close the LLM.
        languages: two-letter codes of the languages that the scorer supports. Defaults to the scorer's ``languages``,
            or to all languages if it has none. Claims in other languages are not sent to the scorer.
        extractor, features, splitter, windowing: used instead of the built-in components and those that the scorer
            provides.
        timeout_s: time limit for checking one sentence.
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
        self._given_features = features
        self._feature_cache = FeatureCache((features or default_features).prepare)
        default_splitter = partial(IncrementalSplitter, max_chars=max_sentence_chars)
        self._splitter = splitter or default_splitter
        self._value_splitter = splitter or partial(default_splitter, markdown=False)
        self._rest_splitter = None if splitter else partial(_rest_splitter, default_splitter)
        self._cutter = DocumentCutter(self._splitter)
        self._windowing = windowing
        self._start_lock = asyncio.Lock()
        self._builds = asyncio.Semaphore(_MAX_BUILDS)
        self._loaded = False
        self._retry_at = 0.0
        self._retrying: asyncio.Task[None] | None = None
        self._fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the cross-encoder failed to load or is only partly available (such as a cascade with one judge missing);
        None if it is fully available."""
        partly: str | None = getattr(self._scorer, "fault", None) if self._loaded else None
        return self._fault or partly

    @property
    def available(self) -> bool:
        """Whether the cross-encoder is loaded or there is an LLM."""
        return self._loaded or self._has_llm

    def can_judge(self, *, llm: bool = True) -> bool:
        """Return whether there is a judge. With ``llm=False``, the LLM doesn't count."""
        return self._loaded or (llm and self._has_llm)

    @property
    def error(self) -> str | None:
        """Why no judge is available. None if a judge is available, or has yet to be loaded."""
        if self.available:
            return None
        return "no judge is configured" if self._scorer is None else self._fault

    @property
    def stalled_s(self) -> float:
        """Age in seconds of the oldest pending request to the cross-encoder; 0 if none is pending."""
        return float(getattr(self._scorer, "stalled_s", 0.0))

    @property
    def name(self) -> str:
        """Names and versions of the judges, joined with ``+``; ``none`` if there is no judge."""
        return self.named()

    def named(self, *, llm: bool = True) -> str:
        """Return ``name``, without the LLM if ``llm`` is False."""
        has_llm = llm and self._has_llm
        scorer = self._scorer.name if self._scorer is not None and (self._loaded or not has_llm) else None
        model = self._llm.name if has_llm and self._llm is not None else None
        return " + ".join(name for name in (scorer, model) if name is not None) or "none"

    @property
    def _has_llm(self) -> bool:
        return self._llm is not None and self._llm.ready

    async def start(self) -> None:
        """Load the cross-encoder. Idempotent. Never raises; if loading fails, ``fault`` says why. If a remote judge did
        not answer, the first call after the retry interval tries again; ``retry`` does so in the background. Other
        failures are final.
        """
        if self._scorer is None or (self._fault is not None and self._start_lock.locked()):
            return
        clock = asyncio.get_running_loop().time
        async with self._start_lock:
            if self._loaded or (self._fault is not None and clock() < self._retry_at):
                return
            self._retry_at = inf
            try:
                await self._scorer.start()
            except JudgeUnreachableError as error:
                self._fault = str(error)
                self._retry_at = clock() + _RETRY_S
            except JudgeError as error:
                self._fault = str(error)
            except Exception as error:
                log.exception("cannot load the judge")
                self._fault = f"{type(error).__name__}: {error}"
            else:
                self._loaded = True
                self._fault = None
                await asyncio.to_thread(HeuristicClaimExtractor)  # Compiles its rules before the first request.

    def retry(self) -> None:
        """If a remote judge did not answer and the retry interval has passed, retry it in the background."""
        due = self._fault is not None and asyncio.get_running_loop().time() >= self._retry_at
        if due and (self._retrying is None or self._retrying.done()):
            self._retrying = asyncio.get_running_loop().create_task(self.start())

    async def aclose(self) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.gather(self._retrying, return_exceptions=True)
        self._loaded = False
        if self._scorer is not None:
            await self._scorer.aclose()

    async def prepare(self, chunks: Sequence[Chunk]) -> EvidenceIndex:
        """Cut ``chunks`` into evidence, on a thread. Load the judge first if necessary."""
        await self.start()
        async with self._builds:
            index = await asyncio.to_thread(self._build, chunks)
        cache: object = self._scorer
        if self._loaded and isinstance(cache, EvidenceCache):
            await self._prefill(cache, index)
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
        message: str | None = None,
        unread: bool = False,
        conversation: str = "",
        prefill: str = "",
        may_instruct: bool = False,
        resolves: Resolves | None = None,
    ) -> ReplyCheck:
        """Start checking one reply.

        Args:
            evidence: the documents, as returned by ``prepare``.
            thresholds: the thresholds for labels.
            max_sources_per_claim: the maximum number of windows read for a claim.
            max_claims: the maximum number of claims to judge; the others are reported as skipped.
            correct: whether to ask the LLM, if there is one, for corrections of contradicted claims.
            llm: whether to use the LLM, if there is one.
            is_json: whether the reply is expected to be JSON, whose values are then judged.
            question: the question that the reply answers. A reply that begins with a pronoun or a fragment is read in
                the context of the question.
            message: the user's message that contains the question. A "yes" or a courtesy may answer any part of this
                message. None means that the message isn't fully known; "" means that there is none.
            unread: whether the request has other, unknown text that may ask something. If ``message`` asks nothing, a
                "yes" or a courtesy may answer that text.
            conversation: everything that the user wrote, including the question. Text can be harmless only if
                everything that it names occurs in the conversation or the documents.
            prefill: the text that the reply continues. Its last sentence may end in the reply.
            may_instruct: whether ``prefill`` may also be an instruction that the reply follows.
            resolves: returns whether a text in brackets (passed with its brackets) is a citation marker that names a
                document.
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
        heuristic = HeuristicClaimExtractor(known=known, resolves=resolves, message=message, unread=unread)
        label_reader = heuristic if self._extractor is None else None
        extractor: ClaimExtractor = self._extractor or heuristic
        escalation = None
        if llm and self._llm is not None and self._llm.ready:
            escalation = LlmEscalation(self._llm, evidence, max_sources=max_sources_per_claim, correct=correct)
            if claim_judge is not None:  # an LLM that judges every claim doesn't need short ones
                limit = self._timeout_s * _DECOMPOSITION_SHARE
                record = escalation.calls.append
                extractor = DecomposingClaimExtractor(extractor, self._llm, timeout_s=limit, record=record)
        asked = "" if is_json else question
        splitter, value_splitter = self._splitter, self._value_splitter
        if label_reader is not None:
            splitter = partial(_with_lookahead, splitter, label_reader, asked)
            value_splitter = partial(_with_lookahead, value_splitter, label_reader, asked)
        reader: JsonReply | PrefilledReply | None = None
        json_reply = None
        if prefill.strip():
            reader = PrefilledReply(
                prefill,
                self._splitter,
                extractor,
                may_instruct=may_instruct,
                label_reader=label_reader,
                question=asked,
                reply_splitter=partial(self._rest_splitter, prefill) if self._rest_splitter else None,
            )
        if is_json and not opens_json(prefill):  # the rest of a JSON value isn't JSON
            reader = json_reply = JsonReply(
                splitter, extractor, HarmlessText(known), prose_extractor=reader, value_splitter=value_splitter
            )
        return ReplyCheck(
            splitter=reader or splitter(),
            extractor=reader or extractor,
            claim_judge=claim_judge,
            has_sources=bool(evidence.windows),
            timeout_s=self._timeout_s,
            max_claims=max_claims,
            escalation=escalation,
            language_gate=self._language_gate(evidence) if claim_judge is not None else None,
            question=asked,
            partition=ReplyCoverage(known=known, resolves=resolves, json_reply=json_reply).parts,
        )

    @property
    def consistency_checker(self) -> ConsistencyChecker | None:
        """Return a checker that compares statements with each other, or None while no cross-encoder is loaded."""
        if self._scorer is None or not self._loaded:
            return None
        extractor = self._extractor or HeuristicClaimExtractor(message="")  # statements are compared, not answers
        return ConsistencyChecker(self._scorer, self._features, extractor, self._splitter)

    def citation_checker(self, evidence: EvidenceIndex) -> CitationChecker | None:
        """Return a checker that judges claims against the documents they cite, or None while no cross-encoder is
        loaded."""
        if self._scorer is None or not self._loaded:
            return None
        return CitationChecker(self._scorer, evidence, self._features)

    @property
    def _features(self) -> FeatureExtractor:
        """The features passed to the constructor, or else those that suit the scorer."""
        if self._given_features is not None:
            return self._given_features
        if stages := getattr(self._scorer, "stage_thresholds", ()):
            return CascadeFeatures(stages)
        threshold: float | None = getattr(self._scorer, "threshold", None)
        return default_features if threshold is None else PublishedThresholdFeatures(threshold)

    def _language_gate(self, evidence: EvidenceIndex) -> LanguageGate | None:
        codes = self._languages or getattr(self._scorer, "languages", None)
        return LanguageGate(codes, evidence) if codes else None

    async def _prefill(self, cache: EvidenceCache, index: EvidenceIndex) -> None:
        """Process evidence while the upstream prepares its reply, so that the first sentence doesn't have to wait."""
        try:
            await cache.prefill([window.judged_text for window in index.windows[:_PREFILLED_WINDOWS]])
        except JudgeError as error:
            log.warning("cannot process evidence in advance: %s", error)

    def _build(self, chunks: Sequence[Chunk]) -> EvidenceIndex:
        # Compiling the rules takes 100 ms. Without this line, the first reply would compile them on the event loop.
        HeuristicClaimExtractor()
        scorer = self._scorer if self._loaded else None
        index = build_index(
            chunks,
            cutter=self._cutter,
            count=_count_words if scorer is None else scorer.count_tokens,
            max_tokens=_UNLOADED_MAX_TOKENS if scorer is None else scorer.max_tokens,
            windowing=self._windowing or getattr(scorer, "windowing", None),
        )
        index.documents.read()
        if scorer is not None:
            self._feature_cache.get([window.judged_text for window in index.windows[:_PREFILLED_WINDOWS]])
        return index


def _rest_splitter(splitter: Callable[..., SentenceSplitter], prefill: str) -> SentenceSplitter:
    """Return a splitter for the text after ``prefill``. If code or HTML may be open there, nothing is a mark."""
    may_be_open = _CODE_OR_HTML.search(prefill) is not None
    return splitter(begins_line=prefill.endswith("\n"), markdown=not may_be_open)


def _with_lookahead(splitter: Callable[[], SentenceSplitter], reader: LabelReader, question: str) -> LabelLookahead:
    return LabelLookahead(splitter(), reader, question=question)


def _count_words(text: str) -> int:
    return len(text.split())
