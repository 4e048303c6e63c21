"""Judges one claim against the evidence: selects windows, scores them, and derives a verdict from all scores."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from judges.concurrency import MAX_INLINE_CHARS, MAX_INLINE_COMPARISONS, run
from judges.evidence.index import EvidenceIndex, FeatureCache
from judges.evidence.windowing import split_long
from judges.features import ClaimComparison, FeatureExtractor, Prepared
from judges.label_thresholds import (
    CONTRADICTED_BY_CONTEXT,
    CONTRADICTION_MIN_AFFINITY,
    CONTRADICTION_RELATIVE_AFFINITY,
    Thresholds,
)
from judges.protocols import PairScorer
from judges.text.span_alignment import move_spans
from judges.types import Claim, ClaimVerdict, Evidence, EvidenceWindows, Label, Probabilities, UnsupportedSpan


class _Scored(Struct, frozen=True):
    """A claim, or a part of one, with the model's scores: one per window, or a single one for all windows if
    ``fused``."""

    claim: str
    windows: Sequence[Evidence]
    scores: Sequence[Probabilities]
    fused: bool


class _WindowScore(Struct, frozen=True):
    """The scores of a claim against one window or against several windows together. In the latter case, ``window`` is
    the most informative one."""

    window: Evidence
    entailed: float
    contradicted: float
    explanation: str | None
    spans: tuple[UnsupportedSpan, ...] = ()
    """The unsupported parts of the scored text, or of the claim once they have been mapped to it."""


class _Finding(Struct, frozen=True):
    """The strongest scores for and against a claim, and the best P(entailed) of each document."""

    support: _WindowScore
    opposition: _WindowScore
    documents: Mapping[int, float]


class ClaimJudge:
    """Judges the claims of one reply against one index. Safe to use from many tasks at once.

    Args:
        scorer: the cross-encoder, loaded.
        evidence: the index to judge against.
        features: corrects the scorer's probabilities.
        thresholds: decide the label, and whether the claim must also be judged against two windows together.
        max_sources: maximum number of windows read for a claim.
        fuses: whether the scorer reads a claim against several windows for barely more than the cost of one, and also
            scores each of them (``Probabilities.parts``). If so, all windows of a claim are judged together. Otherwise
            two windows are judged together if no single one supports the claim.
        feature_cache: caches the results of ``features.prepare`` for windows. Replies that use the same cache share
            them.
    """

    def __init__(
        self,
        scorer: PairScorer,
        evidence: EvidenceIndex,
        features: FeatureExtractor,
        *,
        thresholds: Thresholds,
        max_sources: int,
        fuses: bool = False,
        feature_cache: FeatureCache | None = None,
    ) -> None:
        self._scorer = scorer
        self._evidence = evidence
        self._features = features
        self._thresholds = thresholds
        self._max_sources = max_sources
        self._fuses = fuses
        self._feature_cache = feature_cache or FeatureCache(features.prepare)
        self._max_claim_tokens = scorer.max_tokens - evidence.window_tokens

    async def judge(self, claim: Claim) -> ClaimVerdict:
        """Judge ``claim``. A claim that is too long for the model is judged in parts and gets the verdict of its
        weakest part.

        Raises JudgeError.
        """
        count = self._scorer.count_tokens
        parts: Sequence[str] = (claim.text,)
        if count(claim.text) > self._max_claim_tokens:
            parts = await run(False, split_long, claim.text, self._max_claim_tokens, count)
        if len(parts) == 1:
            finding = await self._judge_part(claim)
            return self._verdict(claim, await self._judge_alone(claim, finding) if claim.stands_alone else finding)
        findings = [await self._judge_part(dataclasses.replace(claim, text=part)) for part in parts]
        weakest = min(findings, key=lambda finding: finding.support.entailed)
        opposition = max((finding.opposition for finding in findings), key=lambda score: score.contradicted)
        spans = [
            span
            for part, finding in zip(parts, findings, strict=True)
            for span in move_spans(finding.support.spans, part, claim.text)
        ]
        support = replace(weakest.support, spans=tuple(sorted(spans, key=lambda span: span.start)))
        return self._verdict(claim, replace(weakest, support=support, opposition=opposition))

    async def _judge_alone(self, claim: Claim, finding: _Finding) -> _Finding:
        """Judge a claim again without its context, if the documents neither support nor contradict it in its context.

        A heading or lead-in tells the judge which of several things a claim is about, so it may reveal a contradiction.
        But documents rarely repeat it in the sentence that supports the claim ("Here are the key facts about the
        hotel:"), so the judge often finds less support with it.
        """
        opposition = finding.opposition.contradicted
        label = self._thresholds.label(finding.support.entailed, opposition)
        if label is not Label.UNVERIFIABLE or opposition >= CONTRADICTED_BY_CONTEXT:
            return finding
        alone = await self._judge_part(dataclasses.replace(claim, context=""))
        label = self._thresholds.label(alone.support.entailed, alone.opposition.contradicted)
        return alone if label is Label.SUPPORTED else finding

    async def _judge_part(self, part: Claim) -> _Finding:
        text, context = part.text, part.context
        full = f"{context} {text}" if context else text
        fitting = full if self._scorer.count_tokens(full) <= self._max_claim_tokens else text
        windows = self._evidence.select(f"{part.question} {fitting}".lstrip(), self._max_sources)
        texts = [window.judged_text for window in windows]
        short = len(full) <= MAX_INLINE_CHARS
        claim, evidence = await run(short and self._feature_cache.has(texts), self._prepare, part, texts)
        comparisons = len(claim.quantities) * sum(len(window.quantities) for window in evidence)
        inline = short and comparisons <= MAX_INLINE_COMPARISONS
        scored_text = await run(inline, self._features.as_written, fitting, claim, evidence)
        fused = self._fuses and len(windows) > 1
        pairs = [(EvidenceWindows(texts), scored_text)] if fused else [(one, scored_text) for one in texts]
        scored = _Scored(fitting, windows, await self._scorer.score(pairs), fused)
        finding = await run(inline, self._compare, claim, evidence, scored)
        label = self._thresholds.label(finding.support.entailed, finding.opposition.contradicted)
        if label is Label.UNVERIFIABLE and not self._fuses:
            finding = await self._judge_best_pair(claim, scored_text, windows, finding)
        if not finding.support.spans:
            return finding
        spans = await run(short, move_spans, finding.support.spans, scored_text, text)
        return replace(finding, support=replace(finding.support, spans=spans))

    def _prepare(self, part: Claim, texts: Sequence[str]) -> tuple[Prepared, Sequence[Prepared]]:
        return self._features.prepare(part.text, part.context, part.question), self._feature_cache.get(texts)

    def _compare(self, claim: Prepared, evidence: Sequence[Prepared], scored: _Scored) -> _Finding:
        """Compare the claim with the windows. If the windows were judged together, the joint score counts, and the
        separate scores only determine which window is the source."""
        comparison = self._features.comparison(claim)
        if not scored.fused:
            return _finding(self._window_scores(comparison, evidence, scored, scored.scores)[0])
        (together,) = scored.scores
        singles = together.parts
        window_scores, near = self._window_scores(comparison, evidence, scored, singles)
        best = (max(score.entailed for score in singles), max(singles[place].contradicted for place in near))
        combined = self._features.combine(self._features.together(evidence), comparison, together, best)
        finding = _finding(window_scores)
        entailed, contradicted = combined.probabilities.entailed, combined.probabilities.contradicted
        return replace(
            finding,
            support=replace(
                finding.support,
                entailed=entailed,
                explanation=combined.explanation,
                spans=together.spans or finding.support.spans,
            ),
            opposition=replace(finding.opposition, contradicted=contradicted, explanation=combined.explanation),
        )

    def _window_scores(
        self,
        claim: ClaimComparison,
        evidence: Sequence[Prepared],
        scored: _Scored,
        scores: Sequence[Probabilities],
    ) -> tuple[list[_WindowScore], list[int]]:
        """Return each window's own score, and the positions of the windows that are about the same thing as the claim
        and so may contradict it."""
        affinities = self._evidence.affinities(scored.windows, scored.claim)
        least = max(CONTRADICTION_MIN_AFFINITY, CONTRADICTION_RELATIVE_AFFINITY * max(affinities))
        near = [place for place, affinity in enumerate(affinities) if affinity >= least]
        found: list[_WindowScore] = []
        for place, (window, text, score) in enumerate(zip(scored.windows, evidence, scores, strict=True)):
            combined = self._features.combine(text, claim, score)
            against = combined.probabilities.contradicted if place in near else 0.0
            entailed = combined.probabilities.entailed
            found.append(_WindowScore(window, entailed, against, combined.explanation, score.spans))
        return found, near or list(range(len(found)))

    async def _judge_best_pair(
        self, claim: Prepared, text: str, windows: Sequence[Evidence], finding: _Finding
    ) -> _Finding:
        """Judge the claim against the two best windows of different chunks together."""
        pair = self._evidence.best_pair(windows, text)
        if pair is None:
            return finding
        count = self._scorer.count_tokens
        joined = self._evidence.join(pair, text, tokens=self._scorer.max_tokens - count(text), count=count)
        (score,) = await self._scorer.score([(joined, text)])
        combined = await run(False, self._features.combine, joined, claim, score)
        if combined.probabilities.entailed <= finding.support.entailed:
            return finding
        entailed = combined.probabilities.entailed
        together = " and ".join(repr(window.document_id) for window in pair)
        support = _WindowScore(pair[0], entailed, 0.0, f"from {together} together", score.spans)
        shared = [(window.chunk_index, entailed) for window in pair]
        return replace(finding, support=support, documents=_by_document([*finding.documents.items(), *shared]))

    def _verdict(self, claim: Claim, finding: _Finding) -> ClaimVerdict:
        entailed, contradicted = finding.support.entailed, finding.opposition.contradicted
        label = self._thresholds.label(entailed, contradicted)
        support = finding.support.window.as_source(entailed)
        opposition = finding.opposition.window.as_source(contradicted) if contradicted > entailed else None
        is_contradicted = label is Label.CONTRADICTED
        return ClaimVerdict(
            claim=claim,
            label=label,
            entailed=entailed,
            contradicted=contradicted,
            best_source=opposition if is_contradicted else support,
            contradicting_source=opposition,
            explanation=(finding.opposition if is_contradicted else finding.support).explanation,
            support=finding.documents,
            spans=() if label is Label.SUPPORTED else finding.support.spans,
        )


def _finding(scores: Sequence[_WindowScore]) -> _Finding:
    return _Finding(
        support=max(scores, key=lambda score: score.entailed),
        opposition=max(scores, key=lambda score: score.contradicted),
        documents=_by_document((score.window.chunk_index, score.entailed) for score in scores),
    )


def _by_document(scores: Iterable[tuple[int, float]]) -> dict[int, float]:
    best: dict[int, float] = {}
    for document, score in scores:
        best[document] = max(score, best.get(document, 0.0))
    return best
