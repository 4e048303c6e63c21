"""One claim against the evidence: which windows, what each says of it, and what follows from all of them."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from judges.evidence.feature_cache import ReadyTexts
from judges.evidence.windows import EvidenceIndex, split_long
from judges.features import Combined, Comparison, Prepared
from judges.protocols import PairScorer
from judges.types import Claim, ClaimVerdict, Evidence, Label, Probabilities, Source, Thresholds, Windows

P = ParamSpec("P")
T = TypeVar("T")

MIN_AFFINITY = 0.1
"""A window contradicts a claim only if one of its sentences has this share of the claim's words: a model that reads two
statements about different things often calls the one a contradiction of the other."""

NEARNESS = 0.8
"""And only if that share comes this close to the largest found. The two together halve the entailed claims called
contradicted (from 34 to 12 of 122) on development rows of eight data sets, each among distractors."""


_SHORT = 600
"""Characters of a claim, and"""

_FEW = 400
"""pairs of a quantity in it and one in its evidence, with which it is compared in well under a millisecond."""


class Signals(Protocol):
    """Compares numbers, dates, units and names, and weighs them with the model's score, as ``judges.features`` does."""

    def prepare(self, text: str, context: str = "", asked: str = "", /) -> Prepared: ...

    def together(self, parts: Sequence[Prepared], /) -> Prepared: ...

    def as_written(self, text: str, claim: Prepared, evidence: Sequence[Prepared], /) -> str: ...

    def comparison(self, claim: Prepared, /) -> Comparison: ...

    def combine(
        self,
        evidence: Prepared | str,
        claim: Comparison | Prepared | str,
        model: Probabilities,
        best: tuple[float, float] | None = None,
        /,
    ) -> Combined: ...


class _Scored(Struct, frozen=True):
    """A claim, or a part of it, and what the model says of its windows: of each, or of all together where ``fused``."""

    hypothesis: str
    windows: Sequence[Evidence]
    scores: Sequence[Probabilities]
    fused: bool


class _Opinion(Struct, frozen=True):
    """What one window says of a claim, or several together (then ``window`` is the one that says most)."""

    window: Evidence
    entailed: float
    contradicted: float
    explanation: str | None


class _Finding(Struct, frozen=True):
    """The opinions for and against that count, and the best entailment of each document."""

    support: _Opinion
    opposition: _Opinion
    documents: Mapping[int, float]

    @property
    def entailed(self) -> float:
        return self.support.entailed

    @property
    def contradicted(self) -> float:
        return self.opposition.contradicted


class Adjudicator:
    """Judges the claims of one reply against one index; safe to use from many tasks at once.

    ``fuses``: the scorer reads a claim against several windows at little more than the cost of one, and says what each
    of them holds besides (``Probabilities.parts``), so that all of a claim's windows are judged together, always. Else
    two are, where none supports the claim by itself. ``ready`` keeps what ``signals.prepare`` makes of windows, from
    one reply to the next where the caller has it.
    """

    def __init__(
        self,
        scorer: PairScorer,
        evidence: EvidenceIndex,
        signals: Signals,
        *,
        thresholds: Thresholds,
        max_sources: int,
        fuses: bool = False,
        ready: ReadyTexts | None = None,
    ) -> None:
        self._scorer = scorer
        self._evidence = evidence
        self._signals = signals
        self._thresholds = thresholds
        self._max_sources = max_sources
        self._fuses = fuses
        self._ready = ready or ReadyTexts(signals.prepare)
        self._room = scorer.max_tokens - evidence.window_tokens

    async def judge(self, claim: Claim) -> ClaimVerdict:
        """Judge ``claim``. One too long for the model is judged in parts, and is what its weakest part is.

        Raises JudgeError.
        """
        count = self._scorer.count_tokens
        parts: Sequence[str] = (claim.text,)
        if count(claim.text) > self._room:
            parts = await asyncio.to_thread(split_long, claim.text, self._room, count)
        findings = [await self._judge_part(dataclasses.replace(claim, text=part)) for part in parts]
        if len(findings) == 1:
            return self._verdict(claim, findings[0])
        weakest = min(findings, key=lambda finding: finding.entailed)
        opposition = max((finding.opposition for finding in findings), key=lambda opinion: opinion.contradicted)
        return self._verdict(claim, replace(weakest, opposition=opposition))

    async def _judge_part(self, part: Claim) -> _Finding:
        text, context = part.text, part.context
        full = f"{context} {text}" if context else text
        hypothesis = full if self._scorer.count_tokens(full) <= self._room else text
        windows = self._evidence.select(f"{part.asked} {hypothesis}".lstrip(), self._max_sources)
        texts = [window.read for window in windows]
        short = len(full) <= _SHORT
        claim, ready = await _here(short and self._ready.has(texts), self._read, part, texts)
        few = len(claim.quantities) * sum(len(window.quantities) for window in ready) <= _FEW
        asked = await _here(short and few, self._signals.as_written, hypothesis, claim, ready)
        fused = self._fuses and len(windows) > 1
        pairs = [(Windows(texts), asked)] if fused else [(one, asked) for one in texts]
        scored = _Scored(hypothesis, windows, await self._scorer.score(pairs), fused)
        finding = await _here(short and few, self._compare, claim, ready, scored)
        if self._fuses or self._thresholds.label(finding.entailed, finding.contradicted) is not Label.UNVERIFIABLE:
            return finding
        return await self._join(claim, asked, windows, finding)

    def _read(self, part: Claim, texts: Sequence[str]) -> tuple[Prepared, Sequence[Prepared]]:
        return self._signals.prepare(part.text, part.context, part.asked), self._ready.of(texts)

    def _compare(self, claim: Prepared, ready: Sequence[Prepared], scored: _Scored) -> _Finding:
        """Where the windows were judged together, what that says is what counts; each by itself says where it
        stands."""
        held = self._signals.comparison(claim)
        if not scored.fused:
            return _finding(self._opinions(held, ready, scored, scored.scores)[0])
        (together,) = scored.scores
        singles = together.parts
        opinions, near = self._opinions(held, ready, scored, singles)
        best = (max(score.entailed for score in singles), max(singles[place].contradicted for place in near))
        combined = self._signals.combine(self._signals.together(ready), held, together, best)
        finding = _finding(opinions)
        entailed, contradicted = combined.probabilities.entailed, combined.probabilities.contradicted
        return replace(
            finding,
            support=replace(finding.support, entailed=entailed, explanation=combined.explanation),
            opposition=replace(finding.opposition, contradicted=contradicted, explanation=combined.explanation),
        )

    def _opinions(
        self, claim: Comparison, ready: Sequence[Prepared], scored: _Scored, scores: Sequence[Probabilities]
    ) -> tuple[list[_Opinion], list[int]]:
        """What each window says by itself, and the places of those that are about what the claim is about."""
        affinities = self._evidence.affinities(scored.windows, scored.hypothesis)
        least = max(MIN_AFFINITY, NEARNESS * max(affinities))
        near = [place for place, affinity in enumerate(affinities) if affinity >= least]
        opinions: list[_Opinion] = []
        for place, (window, text, score) in enumerate(zip(scored.windows, ready, scores, strict=True)):
            combined = self._signals.combine(text, claim, score)
            against = combined.probabilities.contradicted if place in near else 0.0
            opinions.append(_Opinion(window, combined.probabilities.entailed, against, combined.explanation))
        return opinions, near or list(range(len(opinions)))

    async def _join(self, claim: Prepared, hypothesis: str, windows: Sequence[Evidence], finding: _Finding) -> _Finding:
        """Judge once more against the two best windows of different chunks together."""
        pair = self._evidence.best_pair(windows, hypothesis)
        if pair is None:
            return finding
        count = self._scorer.count_tokens
        joined = self._evidence.join(pair, hypothesis, tokens=self._scorer.max_tokens - count(hypothesis), count=count)
        (score,) = await self._scorer.score([(joined, hypothesis)])
        combined = await asyncio.to_thread(self._signals.combine, joined, claim, score)
        if combined.probabilities.entailed <= finding.entailed:
            return finding
        entailed = combined.probabilities.entailed
        together = " and ".join(repr(window.document_id) for window in pair)
        support = _Opinion(pair[0], entailed, 0.0, f"from {together} together")
        shared = [(window.chunk_index, entailed) for window in pair]
        return replace(finding, support=support, documents=_by_document([*finding.documents.items(), *shared]))

    def _verdict(self, claim: Claim, finding: _Finding) -> ClaimVerdict:
        label = self._thresholds.label(finding.entailed, finding.contradicted)
        support = _source(finding.support.window, finding.entailed)
        opposition = (
            _source(finding.opposition.window, finding.contradicted)
            if finding.contradicted > finding.entailed
            else None
        )
        contradicted = label is Label.CONTRADICTED
        return ClaimVerdict(
            claim=claim,
            label=label,
            entailed=finding.entailed,
            contradicted=finding.contradicted,
            best_source=opposition if contradicted else support,
            contradicting_source=opposition,
            explanation=(finding.opposition if contradicted else finding.support).explanation,
            support=finding.documents,
        )


async def _here(quick: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do it at once, where it takes little longer than to wake a thread; else on one."""
    return work(*args, **kwargs) if quick else await asyncio.to_thread(work, *args, **kwargs)


def _finding(opinions: Sequence[_Opinion]) -> _Finding:
    return _Finding(
        support=max(opinions, key=lambda opinion: opinion.entailed),
        opposition=max(opinions, key=lambda opinion: opinion.contradicted),
        documents=_by_document((opinion.window.chunk_index, opinion.entailed) for opinion in opinions),
    )


def _by_document(scores: Iterable[tuple[int, float]]) -> dict[int, float]:
    best: dict[int, float] = {}
    for document, score in scores:
        best[document] = max(score, best.get(document, 0.0))
    return best


def _source(window: Evidence, score: float) -> Source:
    return Source(
        document_id=window.document_id,
        document_index=window.chunk_index,
        source=window.source,
        content=window.text,
        score=score,
        span=window.span,
    )
