"""Checks whether the documents that a sentence cites support its claims."""

from collections.abc import Mapping, Sequence
from typing import Final

from judges.evidence.index import EvidenceIndex
from judges.features import FeatureExtractor
from judges.protocols import PairScorer
from judges.types import Claim, Evidence

_WINDOWS: Final = 2
"""Number of windows (those closest to the claim) read in each document."""
_MAX_JOINED: Final = 4
"""Maximum number of documents that are read together."""


class CitationChecker:
    """Judges claims against the documents that they cite, regardless of the evidence that decided their verdicts."""

    def __init__(self, scorer: PairScorer, evidence: EvidenceIndex, features: FeatureExtractor) -> None:
        self._scorer = scorer
        self._evidence = evidence
        self._features = features
        self._windows: dict[int, list[Evidence]] = {}
        for window in evidence.windows:
            self._windows.setdefault(window.chunk_index, []).append(window)

    async def support(self, claim: Claim, documents: Sequence[int]) -> Mapping[int, float]:
        """Return, for each of ``documents`` (given by index), the probability (0 to 1) that it entails ``claim``. Each
        document is judged both alone and together with the others, because a sentence may draw on several documents.
        Raises JudgeError."""
        full = f"{claim.context} {claim.text}" if claim.context else claim.text
        nearest = {document: self._nearest(document, full) for document in documents}
        texts: list[tuple[int | None, str]] = [
            (document, window.judged_text) for document, windows in nearest.items() for window in windows
        ]
        if joined := self._joined([windows[0] for windows in nearest.values() if windows], full):
            texts.append((None, joined))
        prepared = self._features.prepare(claim.text, claim.context)
        parsed = [(document, text, self._features.prepare(text)) for document, text in texts]
        scores = await self._scorer.score(
            [(text, self._features.as_written(full, prepared, [evidence])) for _, text, evidence in parsed]
        )
        support = dict.fromkeys(documents, 0.0)
        for (document, _, evidence), score in zip(parsed, scores, strict=True):
            entailed = self._features.combine(evidence, prepared, score).probabilities.entailed
            for one in documents if document is None else (document,):
                support[one] = max(support[one], entailed)
        return support

    def _nearest(self, document: int, claim: str) -> list[Evidence]:
        windows = self._windows.get(document, [])
        affinities = dict(zip(windows, self._evidence.affinities(windows, claim), strict=True))
        return sorted(windows, key=lambda window: -affinities[window])[:_WINDOWS]

    def _joined(self, windows: Sequence[Evidence], claim: str) -> str | None:
        """Join the best windows of all documents into one text. Return None if there is only one document or the
        windows don't fit.
        """
        if not 1 < len(windows) <= _MAX_JOINED:
            return None
        joined = "\n".join(window.judged_text for window in windows)
        count = self._scorer.count_tokens
        return joined if count(joined) + count(claim) <= self._scorer.max_tokens else None
