"""Caches scores by model, evidence and claim."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from judges.cross_encoder.scorer_wrapper import ScorerWrapper
from judges.protocols import PairScorer
from judges.types import EvidenceWindows, Probabilities

_ENTRY_BYTES = 400
"""Maximum memory per entry: a 16-byte key, three floats in an object, and a slot in the ordered dictionary."""
_PART_BYTES = 160
"""Maximum additional memory for each part of the evidence, each unsupported span of the claim, and the probabilities
of a second encoder."""


class CachingScorer(ScorerWrapper):
    """Caches the most recently used scores, keyed by a hash of model, evidence and claim. No text is kept.

    While a pair is being scored for one caller, other callers wait for the result instead of scoring it again. If that
    caller is cancelled or fails, the next one scores the pair.

    Args:
        scorer: scores the pairs that are not cached.
        max_bytes: memory limit of the cache.
    """

    def __init__(self, scorer: PairScorer, *, max_bytes: int) -> None:
        super().__init__(scorer)
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, Probabilities] = OrderedDict()
        self._running: dict[bytes, asyncio.Future[Mapping[bytes, Probabilities]]] = {}
        """The call that is scoring a pair. Its result has the scores of all pairs of the call."""
        self._asked = 0
        self.nbytes = 0
        """Upper bound on the memory used by the cached scores."""
        self.misses = 0
        """Number of pairs that were not cached."""
        self.evictions = 0
        """Number of scores removed to make room."""

    @property
    def hits(self) -> int:
        """Number of pairs that were cached or already being scored."""
        return self._asked - self.misses

    def __len__(self) -> int:
        return len(self._entries)

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        keys = _keys(self.name, pairs)
        known: dict[bytes, Probabilities] = {}
        wanted = dict(zip(keys, pairs, strict=True))
        self._asked += len(pairs)
        while wanted:
            self._look_up(wanted, known)
            theirs = {key: self._running[key] for key in wanted if key in self._running}
            mine = {key: pair for key, pair in wanted.items() if key not in theirs}
            if mine:
                self.misses += len(mine)
                known |= await self._score(mine)
            if theirs:
                await asyncio.wait(set(theirs.values()))
                known |= {key: done.result()[key] for key, done in theirs.items() if not done.cancelled()}
            wanted = {key: pair for key, pair in wanted.items() if key not in known}
        return [known[key] for key in keys]

    def _look_up(self, wanted: dict[bytes, tuple[str, str]], known: dict[bytes, Probabilities]) -> None:
        for key in list(wanted):
            if (entry := self._entries.get(key)) is not None:
                self._entries.move_to_end(key)
                known[key] = entry
                del wanted[key]

    async def _score(self, pairs: dict[bytes, tuple[str, str]]) -> dict[bytes, Probabilities]:
        done: asyncio.Future[Mapping[bytes, Probabilities]] = asyncio.get_running_loop().create_future()
        self._running |= dict.fromkeys(pairs, done)
        try:
            scores = dict(zip(pairs, await super().score(list(pairs.values())), strict=True))
            done.set_result(scores)
        finally:
            for key in pairs:
                del self._running[key]
            done.cancel()  # Has no effect if the future already has a result.
        self._store(scores)
        return scores

    def _store(self, scores: dict[bytes, Probabilities]) -> None:
        for key, score in scores.items():
            if score.provisional:
                continue
            if key not in self._entries:
                self.nbytes += _bytes_of(score)
            self._entries[key] = score
        while self.nbytes > self._max_bytes:
            self.nbytes -= _bytes_of(self._entries.popitem(last=False)[1])
            self.evictions += 1


def _bytes_of(score: Probabilities) -> int:
    return _ENTRY_BYTES + _PART_BYTES * (len(score.parts) + len(score.spans) + (score.second is not None))


def _keys(name: str, pairs: Sequence[tuple[str, str]]) -> list[bytes]:
    claims = {claim: _hashed(blake2b(digest_size=16), name, claim) for _, claim in pairs}
    # Windows that are judged together get a different score from a single text with the same words.
    return [
        _hashed(
            claims[claim].copy(), *(evidence.parts if isinstance(evidence, EvidenceWindows) else (evidence,))
        ).digest()
        for evidence, claim in pairs
    ]


def _hashed(digest: blake2b, *texts: str) -> blake2b:
    for text in texts:
        encoded = text.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest
