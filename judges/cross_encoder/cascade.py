"""A cascade: a judge that passes the pairs it is uncertain about to another judge. Its spec is ``<judge> then <judge>
if uncertain <low>..<high>``. The band is optional, and more judges may follow: ``A then B if uncertain then C if
uncertain 0.4..0.6``.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from judges.features import CascadeFeatures
from judges.protocols import EvidenceCache, JudgeError, JudgeUnavailableError, JudgeUnreachableError, PairScorer
from judges.types import EvidenceWindows, Probabilities, Windowing

log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
"""Seconds to wait before retrying a judge that could not be started."""
_QUIET_S: Final = 10.0
"""Minimum number of seconds between two warnings that the second judge has failed."""

_DIGITS: Final = 6
_PREPARED: Final = 128
"""Maximum number of texts whose parsed form is cached."""

Pair = tuple[str, str]


class _NotStarted(JudgeUnreachableError):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not started")


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A score is uncertain if P(entailed) is in the band (limits included) and P(contradicted) is below the band's
    upper limit. The default band surrounds the default threshold of policies, where the embedded judge makes most of
    its mistakes.
    """

    low: float = 0.4
    high: float = 0.8

    def contains(self, score: Probabilities) -> bool:
        return self.low <= round(score.entailed, _DIGITS) <= self.high and score.contradicted < self.high


class CascadeScorer:
    """Scores all pairs with ``first``. If a score is in ``band``, ``second`` scores the pair too, and the second score
    counts. The band applies to probabilities as policies see them: on the scale of the policies' thresholds, and
    corrected by the exact features of the evidence and the claim. If ``first`` is unavailable or fails, ``second``
    scores the pair. If ``second`` is unavailable or fails, the score of ``first`` counts.

    If ``first`` judges a claim against several windows at once, ``second`` reads the same windows together, but the
    scores of ``first`` still determine which windows support the claim.

    Args:
        first: scores every pair.
        second: scores the pairs whose score is in the band.
        band: the range of uncertain probabilities.
        patience_s: maximum time, in seconds, to wait for ``second`` to score a pair that ``first`` has already scored;
            None means no limit. It must be shorter than the caller's time limit; otherwise a slow ``second`` would
            leave the caller without any score.
    """

    def __init__(self, first: PairScorer, second: PairScorer, band: Band, *, patience_s: float | None = None) -> None:
        self._first = first
        self._second = second
        self._band = band
        self._patience_s = patience_s
        self._features = CascadeFeatures(_thresholds(first))
        self._prepare = lru_cache(maxsize=_PREPARED)(self._features.prepare)
        self._faults: dict[PairScorer, JudgeError] = {one: _NotStarted(one.name) for one in (first, second)}
        self._retry_at = 0.0
        self._quiet_until = 0.0
        self._starting = asyncio.Lock()
        self._closed = False

    def with_stages(self, wrap: Callable[[PairScorer], PairScorer]) -> "CascadeScorer":
        """Return the same cascade with each of its two judges wrapped, for example in a cache. The cascade must not be
        started yet."""
        return CascadeScorer(wrap(self._first), wrap(self._second), self._band, patience_s=self._patience_s)

    @property
    def name(self) -> str:
        """The judges that are available, and the band."""
        names = [one.name for one in (self._first, self._second) if one not in self._faults]
        if len(names) == 1:
            return names[0]
        return f"{self._first.name} then {self._second.name} if {self._band.low:g}..{self._band.high:g}"

    @property
    def fault(self) -> str | None:
        """Why a judge in the cascade is currently unavailable; None if all are available."""
        faults = [
            str(self._faults[one]) if one in self._faults else getattr(one, "fault", None)
            for one in (self._first, self._second)
        ]
        return "; ".join(fault for fault in faults if fault is not None) or None

    @property
    def max_tokens(self) -> int:
        return self._counting.max_tokens

    @property
    def fuses(self) -> bool:
        """Whether the first judge takes barely longer for a claim with several windows than for a claim with one."""
        return bool(getattr(self._counting, "fuses", False))

    @property
    def languages(self) -> frozenset[str] | None:
        """Codes of the languages that both judges support; None means all, or unknown."""
        known = [
            set(languages)
            for one in (self._first, self._second)
            if (languages := getattr(one, "languages", None)) is not None
        ]
        return frozenset(set.intersection(*known)) if known else None

    @property
    def stage_thresholds(self) -> tuple[float | None, ...]:
        """For each judge, in order: the P(entailed) at which its authors call a claim supported, or None if they give
        none."""
        return (*_thresholds(self._first), *_thresholds(self._second))

    @property
    def paid(self) -> bool:
        """Whether a judge records its calls in ``judges.call_recording``."""
        return any(bool(getattr(one, "paid", False)) for one in (self._first, self._second))

    @property
    def tokenizer_json(self) -> bytes | None:
        """The tokenizer that counts tokens: the first judge's, unless only the second judge is available."""
        content: bytes | None = getattr(self._counting, "tokenizer_json", None)
        return content

    @property
    def windowing(self) -> Windowing | None:
        """How evidence is cut for the first judge; None means the checker's default."""
        value: Windowing | None = getattr(self._first, "windowing", None)
        return value

    @property
    def concurrency(self) -> int:
        """Number of ``score`` calls that run in parallel; each judge has its own queue."""
        return max(int(getattr(one, "concurrency", 1)) for one in (self._first, self._second))

    @property
    def stalled_s(self) -> float:
        """Age in seconds of the oldest pending request to either judge; 0 if none is pending."""
        return max(float(getattr(one, "stalled_s", 0.0)) for one in (self._first, self._second))

    def count_tokens(self, text: str) -> int:
        return self._counting.count_tokens(text)

    async def prefill(self, texts: Sequence[str]) -> None:
        """Have the first judge process evidence before the claims arrive, if it caches evidence."""
        if self._first not in self._faults and isinstance(self._first, EvidenceCache):
            await self._first.prefill(texts)

    async def start(self) -> None:
        """Start both judges. Idempotent. A judge that cannot be started is logged, and retried later if the failure may
        be temporary. Raises JudgeUnreachableError or JudgeUnavailableError if neither can be started."""
        async with self._starting:
            if self._closed:
                raise JudgeUnavailableError(f"{self.name} is closed")
            for one, fault in list(self._faults.items()):
                if isinstance(fault, JudgeUnreachableError):
                    await self._start(one, fault)
            self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
            if len(self._faults) == 2:
                faults = list(self._faults.values())
                message = "; ".join(map(str, faults))
                recovers = any(isinstance(fault, JudgeUnreachableError) for fault in faults)
                raise JudgeUnreachableError(message) if recovers else JudgeUnavailableError(message)

    async def _start(self, scorer: PairScorer, last: JudgeError) -> None:
        try:
            await scorer.start()
        except JudgeError as error:
            self._faults[scorer] = error
            if str(error) != str(last):
                log.warning("a judge of the cascade is unavailable: %s", error)
        else:
            del self._faults[scorer]

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.gather(self._first.aclose(), self._second.aclose())

    async def score(self, pairs: Sequence[Pair]) -> Sequence[Probabilities]:
        if self._faults and asyncio.get_running_loop().time() >= self._retry_at:
            await self.start()
        scores: list[Probabilities | JudgeError]
        try:
            scores = [*await self._score(self._first, pairs)]
        except JudgeError as error:
            if self._second in self._faults:
                raise
            scores = [error] * len(pairs)
        open_places = await asyncio.to_thread(self._open_places, pairs, scores)
        if self._second in self._faults:
            for place in open_places:
                scores[place] = _provisional(scores[place])
        elif open_places:
            answers = await asyncio.gather(*(self._second_look(pairs[place], scores[place]) for place in open_places))
            for place, answer in zip(open_places, answers, strict=True):
                scores[place] = answer
        return [_known(score) for score in scores]

    def _open_places(self, pairs: Sequence[Pair], scores: Sequence[Probabilities | JudgeError]) -> Sequence[int]:
        """Return the positions of the pairs that the first judge did not score or is uncertain about."""
        return [
            place
            for place, (pair, score) in enumerate(zip(pairs, scores, strict=True))
            if isinstance(score, JudgeError) or self._band.contains(self._corrected(*pair, score))
        ]

    def _corrected(self, evidence: str, claim: str, score: Probabilities) -> Probabilities:
        features = self._features
        if not score.parts or not isinstance(evidence, EvidenceWindows):
            return features.combine(self._prepare(evidence), claim, score).probabilities
        whole = features.together([self._prepare(part) for part in evidence.parts])
        best = max(part.entailed for part in score.parts), max(part.contradicted for part in score.parts)
        return features.combine(whole, claim, score, best).probabilities

    async def _score(self, scorer: PairScorer, pairs: Sequence[Pair]) -> Sequence[Probabilities]:
        if (fault := self._faults.get(scorer)) is not None:
            raise fault
        return await scorer.score(pairs)

    async def _second_look(self, pair: Pair, first: Probabilities | JudgeError) -> Probabilities:
        if isinstance(first, JudgeError):
            return replace(await self._read_by_second(*pair), provisional=True)
        try:
            async with asyncio.timeout(self._patience_s):
                return await self._read_by_second(*pair, first.parts)
        except TimeoutError:
            self._warn(f"{self._second.name}: no response within {self._patience_s:g} s")
        except JudgeError as error:
            self._warn(str(error))
        return replace(first, provisional=True)

    def _warn(self, error: str) -> None:
        """Log that the second judge failed, at most once per ``_QUIET_S``, because it may fail for every claim."""
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            log.warning("the second judge of the cascade failed, so the first one decides: %s", error)

    async def _read_by_second(self, evidence: str, claim: str, known: Sequence[Probabilities] = ()) -> Probabilities:
        """Score a pair with the second judge. The windows are read together if the judge scores each of them as well,
        or if their scores are already ``known``. Otherwise each window is read separately, and the one with the highest
        P(entailed) counts.
        """
        second = self._second
        if not isinstance(evidence, EvidenceWindows) or getattr(second, "fuses", False):
            (score,) = await self._scored_by_second([(evidence, claim)])
            return score
        if known and second.count_tokens(str(evidence)) + second.count_tokens(claim) <= second.max_tokens:
            (score,) = await self._scored_by_second([(str(evidence), claim)])
            return replace(score, parts=tuple(known))
        parts = await self._scored_by_second([(part, claim) for part in evidence.parts])
        return replace(max(parts, key=lambda score: score.entailed), parts=tuple(parts))

    async def _scored_by_second(self, pairs: Sequence[Pair]) -> Sequence[Probabilities]:
        stage = len(_thresholds(self._first))
        return [
            replace(
                score,
                stage=stage + score.stage,
                parts=tuple(replace(part, stage=stage + part.stage) for part in score.parts),
            )
            for score in await self._second.score(pairs)
        ]

    @property
    def _counting(self) -> PairScorer:
        """The judge whose tokenizer determines how evidence is cut: the first one, unless only the second is
        available."""
        return self._second if self._first in self._faults and self._second not in self._faults else self._first


def _thresholds(scorer: PairScorer) -> tuple[float | None, ...]:
    return getattr(scorer, "stage_thresholds", ()) or (getattr(scorer, "threshold", None),)


def _provisional(score: Probabilities | JudgeError) -> Probabilities | JudgeError:
    return score if isinstance(score, JudgeError) else replace(score, provisional=True)


def _known(score: Probabilities | JudgeError) -> Probabilities:
    if isinstance(score, JudgeError):
        raise score
    return score


EXPECTED: Final = "expected '<judge> then <judge> if uncertain', or '... if uncertain <low>..<high>'"

_THEN: Final = re.compile(r"(?<!\s)\s++then\s+")
_STAGE: Final = re.compile(r"(?P<judge>\S.*?)\s+if\s+uncertain(?:\s+(?P<low>[\d.]+?)\.\.(?P<high>[\d.]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeStage:
    """A judge that scores a pair if the probability from the judges before it is in ``band``."""

    judge: str
    band: Band


def split_cascade(text: str) -> tuple[str, Sequence[CascadeStage]]:
    """Split a judge's spec into the spec of the first judge and the later stages (none if it isn't a cascade). Raises a
    ValueError that says what is expected.
    """
    first, *others = _THEN.split(text.strip())
    return first, [_stage(text, other) for other in others]


def _stage(whole: str, text: str) -> CascadeStage:
    found = _STAGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"judge {whole!r}: {EXPECTED}")
    band = Band()
    if found["low"] is not None:
        try:
            band = Band(low=float(found["low"]), high=float(found["high"]))
        except ValueError:
            raise ValueError(f"judge {whole!r}: {EXPECTED}") from None
    if not 0.0 <= band.low < band.high <= 1.0:
        raise ValueError(f"judge {whole!r}: the band must be within 0..1, lower limit first")
    return CascadeStage(judge=found["judge"], band=band)
