"""Whether the documents that a sentence cites support what it claims, asked of those documents themselves."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from judges.evidence.windows import EvidenceIndex
from judges.features import Combined, Prepared
from judges.protocols import PairScorer
from judges.types import Claim, Evidence, Probabilities

_WINDOWS: Final = 2
"""Windows of a document that are read, those nearest to the claim."""
_TOGETHER: Final = 4
"""Documents that are read together at most."""


class Signals(Protocol):
    """Compares what can be seen in two texts. ``judges.features`` is one."""

    def prepare(self, text: str, context: str = "", /) -> Prepared: ...

    def as_written(self, text: str, claim: Prepared, evidence: Sequence[Prepared], /) -> str: ...

    def combine(self, evidence: Prepared | str, claim: Prepared | str, model: Probabilities, /) -> Combined: ...


class Attribution:
    """Reads claims against the documents they cite, whatever the evidence that they were judged by."""

    def __init__(self, scorer: PairScorer, evidence: EvidenceIndex, signals: Signals) -> None:
        self._scorer = scorer
        self._evidence = evidence
        self._signals = signals
        self._windows: dict[int, list[Evidence]] = {}
        for window in evidence.windows:
            self._windows.setdefault(window.chunk_index, []).append(window)

    async def support(self, claim: Claim, documents: Sequence[int]) -> Mapping[int, float]:
        """P(entailed) of ``claim`` by each of ``documents``, by index: by itself or together with the others, since one
        sentence may draw on several. Raises JudgeError."""
        hypothesis = f"{claim.context} {claim.text}" if claim.context else claim.text
        nearest = {document: self._nearest(document, hypothesis) for document in documents}
        texts: list[tuple[int | None, str]] = [
            (document, window.read) for document, windows in nearest.items() for window in windows
        ]
        if together := self._together([windows[0] for windows in nearest.values() if windows], hypothesis):
            texts.append((None, together))
        prepared = self._signals.prepare(claim.text, claim.context)
        read = [(document, text, self._signals.prepare(text)) for document, text in texts]
        scores = await self._scorer.score(
            [(text, self._signals.as_written(hypothesis, prepared, [seen])) for _, text, seen in read]
        )
        support = dict.fromkeys(documents, 0.0)
        for (document, _, seen), score in zip(read, scores, strict=True):
            entailed = self._signals.combine(seen, prepared, score).probabilities.entailed
            for one in documents if document is None else (document,):
                support[one] = max(support[one], entailed)
        return support

    def _nearest(self, document: int, hypothesis: str) -> list[Evidence]:
        windows = self._windows.get(document, [])
        affinities = dict(zip(windows, self._evidence.affinities(windows, hypothesis), strict=True))
        return sorted(windows, key=lambda window: -affinities[window])[:_WINDOWS]

    def _together(self, windows: Sequence[Evidence], hypothesis: str) -> str | None:
        """One text of the best window of each document; None for one document, or where they do not fit."""
        if not 1 < len(windows) <= _TOGETHER:
            return None
        joined = "\n".join(window.read for window in windows)
        count = self._scorer.count_tokens
        return joined if count(joined) + count(hypothesis) <= self._scorer.max_tokens else None
