"""A reply and its chunks to a report, sentence by sentence; the same for a stream and for a whole reply.

``GroundingChecker`` lives as long as the process and is shared by all requests. ``prepare`` cuts a request's chunks
into evidence, ``reply`` opens the check of one reply against it (``judges.reply_check``).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from math import inf

from judges import features as default_signals
from judges.claims.extraction import HeuristicExtractor
from judges.claims.json_reply import JsonText
from judges.claims.llm_decomposition import DecomposingExtractor
from judges.evidence.feature_cache import ReadyTexts
from judges.evidence.windows import EvidenceIndex, Windowing, build_index
from judges.protocols import (
    ClaimExtractor,
    ClaimJudge,
    JudgeError,
    JudgeUnreachableError,
    PairScorer,
    SentenceSplitter,
    read_ahead,
)
from judges.reply_check import ReplyCheck
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Chunk, Thresholds
from judges.verdicts.citation_support import Attribution
from judges.verdicts.claim_judge import Adjudicator, Signals
from judges.verdicts.language_gate import KnownLanguages
from judges.verdicts.llm_escalation import Escalation
from judges.verdicts.self_consistency import ConsistencyChecker

__all__ = ["GroundingChecker", "ReplyCheck"]

log = logging.getLogger(__name__)

_UNLOADED_MAX_TOKENS = 512
_READ_AHEAD = 16
"""Windows read, and made ready for comparison, before a claim asks for them; the most relevant ones."""
_BUILDING = 2
"""Threads that cut documents at a time: they hold the interpreter by turns, and with each more the event loop waits
longer for its own. Two, so that a large set of documents does not hold up all others."""
_AGAIN_S = 5.0
"""Pause before a judge that is served elsewhere and did not answer is asked again."""
_DECOMPOSING = 0.4
"""The share of a sentence's time that may go into taking it apart."""


class GroundingChecker:
    """Checks replies with ``scorer``, which it starts and closes; None for no cross-encoder.

    ``llm`` takes the claims that ``scorer`` leaves open, and all of them where there is no scorer or it fails to load;
    it also takes long sentences apart. Whoever made it closes it.

    ``languages``: two-letter codes of those that ``scorer`` knows; default what it says itself, else all. A claim in
    another is not put to it.

    ``timeout_s`` bounds the check of one sentence. ``max_sentence_chars``: a longer sentence is checked in parts.
    ``extractor``, ``signals``, ``splitter`` and ``windowing`` replace the parts that ship with the package.
    """

    def __init__(
        self,
        scorer: PairScorer | None,
        *,
        llm: ClaimJudge | None = None,
        languages: Collection[str] | None = None,
        extractor: ClaimExtractor | None = None,
        timeout_s: float = 5.0,
        max_sentence_chars: int = 4000,
        signals: Signals | None = None,
        splitter: Callable[[], SentenceSplitter] | None = None,
        windowing: Windowing | None = None,
    ) -> None:
        self._scorer = scorer
        self._llm = llm
        self._languages = languages
        self._timeout_s = timeout_s
        self._extractor = extractor or HeuristicExtractor()
        self._signals: Signals = signals or default_signals
        self._ready = ReadyTexts(self._signals.prepare)
        self._splitter = splitter or (lambda: IncrementalSplitter(max_chars=max_sentence_chars))
        self._windowing = windowing
        self._starting = asyncio.Lock()
        self._building = asyncio.Semaphore(_BUILDING)
        self._loaded = False
        self._again_at = 0.0
        self.fault: str | None = None
        """Why the cross-encoder cannot be loaded, once that is known; an LLM may stand in for it."""

    @property
    def available(self) -> bool:
        """The cross-encoder is loaded, or there is an LLM to judge alone."""
        return self._loaded or self._has_llm

    def can_judge(self, *, llm: bool = True) -> bool:
        """Whether there is anything to judge with. ``llm``: an LLM counts."""
        return self._loaded or (llm and self._has_llm)

    @property
    def error(self) -> str | None:
        """Why no judge is available, once that is known."""
        if self.available:
            return None
        return "no judge is configured" if self._scorer is None else self.fault

    @property
    def silent_s(self) -> float:
        """For how long the cross-encoder has owed an answer."""
        return float(getattr(self._scorer, "silent_s", 0.0))

    @property
    def name(self) -> str:
        """Name and version of what judges, joined by ``+`` where there are two; ``none`` if there is nothing."""
        return self.named()

    def named(self, *, llm: bool = True) -> str:
        """The same, of the cross-encoder alone where ``llm`` is False."""
        has_llm = llm and self._has_llm
        scorer = self._scorer.name if self._scorer is not None and (self._loaded or not has_llm) else None
        asked = self._llm.name if has_llm and self._llm is not None else None
        return " + ".join(name for name in (scorer, asked) if name is not None) or "none"

    @property
    def _has_llm(self) -> bool:
        return self._llm is not None and self._llm.ready

    async def start(self) -> None:
        """Load the cross-encoder. Idempotent and never raises: ``fault`` says why it failed. It is not tried again, but
        for one that is served elsewhere and did not answer: that is, at the next call some seconds later."""
        if self._scorer is None or (self.fault is not None and self._starting.locked()):
            return
        clock = asyncio.get_running_loop().time
        async with self._starting:
            if self._loaded or (self.fault is not None and clock() < self._again_at):
                return
            self._again_at = inf
            try:
                await self._scorer.start()
            except JudgeUnreachableError as error:
                self.fault = str(error)
                self._again_at = clock() + _AGAIN_S
            except JudgeError as error:
                self.fault = str(error)
            except Exception as error:
                log.exception("the judge failed to load")
                self.fault = f"{type(error).__name__}: {error}"
            else:
                self._loaded = True
                self.fault = None

    async def aclose(self) -> None:
        self._loaded = False
        if self._scorer is not None:
            await self._scorer.aclose()

    async def prepare(self, chunks: Sequence[Chunk]) -> EvidenceIndex:
        """Cut ``chunks`` into evidence, off the event loop. Loads the judge if that has not been tried yet."""
        await self.start()
        async with self._building:
            index = await asyncio.to_thread(self._build, chunks)
        if self._loaded:
            await self._read_ahead(index)
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
        asked: str = "",
    ) -> ReplyCheck:
        """Open the check of one reply. ``max_claims``: judge only so many, the first ones; the rest is reported.
        ``correct``: ask the LLM, if there is one, what should stand in place of a contradicted claim. ``llm``: False
        leaves it out altogether. ``is_json``: the reply is to be JSON, of which the string values are judged.
        ``asked``: the question that it answers; what begins it short or with a pronoun is read together with that."""
        adjudicator = (
            Adjudicator(
                self._scorer,
                evidence,
                self._signals,
                thresholds=thresholds,
                max_sources=max_sources_per_claim,
                fuses=getattr(self._scorer, "fuses", False),
                ready=self._ready,
            )
            if self._scorer is not None and self._loaded
            else None
        )
        extractor, escalation = self._extractor, None
        if llm and self._llm is not None and self._llm.ready:
            escalation = Escalation(self._llm, evidence, max_sources=max_sources_per_claim, correct=correct)
            extractor = DecomposingExtractor(
                extractor, self._llm, timeout_s=self._timeout_s * _DECOMPOSING, record=escalation.calls.append
            )
        json_text = JsonText(self._splitter, extractor) if is_json else None
        return ReplyCheck(
            splitter=json_text or self._splitter(),
            extractor=json_text or extractor,
            adjudicator=adjudicator,
            has_sources=len(evidence) > 0,
            timeout_s=self._timeout_s,
            max_claims=max_claims,
            escalation=escalation,
            languages=self._known_languages(evidence) if adjudicator is not None else None,
            asked="" if is_json else asked,
        )

    @property
    def consistency(self) -> ConsistencyChecker | None:
        """What holds statements against each other; None while no cross-encoder is loaded."""
        if self._scorer is None or not self._loaded:
            return None
        return ConsistencyChecker(self._scorer, self._signals, self._extractor, self._splitter)

    def attribution(self, evidence: EvidenceIndex) -> Attribution | None:
        """What reads claims against the documents they cite; None while no cross-encoder is loaded."""
        if self._scorer is None or not self._loaded:
            return None
        return Attribution(self._scorer, evidence, self._signals)

    def _known_languages(self, evidence: EvidenceIndex) -> KnownLanguages | None:
        codes = self._languages or getattr(self._scorer, "languages", None)
        return KnownLanguages(codes, evidence) if codes else None

    async def _read_ahead(self, index: EvidenceIndex) -> None:
        """While the upstream still thinks, so that the first sentence does not wait for it."""
        try:
            await read_ahead(self._scorer, [window.read for window in index.windows[:_READ_AHEAD]])
        except JudgeError as error:
            log.warning("evidence could not be read ahead: %s", error)

    def _build(self, chunks: Sequence[Chunk]) -> EvidenceIndex:
        scorer = self._scorer if self._loaded else None
        index = build_index(
            chunks,
            splitter=self._splitter,
            count=_count_words if scorer is None else scorer.count_tokens,
            max_tokens=_UNLOADED_MAX_TOKENS if scorer is None else scorer.max_tokens,
            windowing=self._windowing,
        )
        if scorer is not None:
            self._ready.of([window.read for window in index.windows[:_READ_AHEAD]])
        return index


def _count_words(text: str) -> int:
    return len(text.split())
