"""Indexes the evidence in one request, ranks its windows for a claim, and caches parsed evidence between replies."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import combinations

from judges.features import Prepared
from judges.features.words.document_text import DocumentText
from judges.text.bm25 import Bm25, substance, terms
from judges.types import Chunk, Evidence


class FeatureCache:
    """Caches the results of ``prepare`` for the ``max_texts`` most recently used texts; each takes about 17 KiB. The
    same documents recur, and parsing a document takes longer than comparing a claim with it. Thread-safe."""

    def __init__(self, prepare: Callable[[str], Prepared], *, max_texts: int = 512) -> None:
        self._prepare = prepare
        self._max_texts = max_texts
        self._entries: OrderedDict[str, Prepared] = OrderedDict()

    def has(self, texts: Sequence[str]) -> bool:
        """Return whether all ``texts`` are cached, so that ``get`` returns immediately."""
        return all(text in self._entries for text in texts)

    def get(self, texts: Sequence[str]) -> Sequence[Prepared]:
        """Return the parsed ``texts`` in order, parsing those that aren't cached."""
        found = []
        for text in texts:
            prepared = self._entries.pop(text, None) or self._prepare(text)
            self._entries[text] = prepared
            found.append(prepared)
        while len(self._entries) > self._max_texts:
            with suppress(KeyError):
                self._entries.popitem(last=False)
        return found


CountTokens = Callable[[str], int]


class EvidenceIndex:
    """The windows of a request's chunks, most relevant chunk first. ``judges.evidence.windowing.build_index`` creates
    it.

    Args:
        windows: the evidence.
        sentences: the sentences of each window.
        window_tokens: maximum number of tokens in a window.
        chunks: the chunks that the windows come from, in request order.
    """

    def __init__(
        self,
        windows: Sequence[Evidence],
        sentences: Sequence[Sequence[str]],
        *,
        window_tokens: int,
        chunks: Sequence[Chunk] = (),
    ) -> None:
        self.windows = windows
        self.chunks = chunks
        self.window_tokens = window_tokens
        """Maximum number of tokens in a window."""
        # Keyed by identity, because hashing a window would hash its texts, which takes as long as searching them.
        self._place = {id(window): place for place, window in enumerate(windows)}
        self._sentences = sentences
        self._postings: dict[int, Mapping[str, Sequence[int]]] = {}
        self._bm25 = Bm25([_terms_of(window.judged_text) for window in windows])
        names = [name for chunk in chunks for name in (chunk.id, chunk.source, chunk.title, chunk.url) if name]
        self.documents = DocumentText([chunk.text for chunk in chunks], names)

    def select(self, claim: str, k: int) -> Sequence[Evidence]:
        """Return the ``k`` windows (or all, if there are fewer) with the highest BM25 scores for ``claim``, best first.
        Ties go to the more relevant chunk."""
        scores = self._bm25.scores(_terms_of(claim))
        ranked = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
        return [self.windows[place] for place in ranked[:k]]

    def affinities(self, windows: Sequence[Evidence], claim: str) -> list[float]:
        """Return, for each window, how closely its best sentence matches the topic of ``claim``: the weighted share (0
        to 1) of the claim's words that the sentence contains. Short words have a low weight."""
        weights = {term: substance(term) for term in _terms_of(claim)}
        total = sum(weights.values()) or 1.0
        return [self._best_sentence(weights, window) / total for window in windows]

    def best_pair(self, windows: Sequence[Evidence], claim: str) -> tuple[Evidence, Evidence] | None:
        """Return the two ``windows`` from different chunks that together cover the most words of the claim, or None if
        all windows come from one chunk."""
        weights = self._weights(claim)
        pairs = [(a, b) for a, b in combinations(windows, 2) if a.chunk_index != b.chunk_index]
        present = {window: frozenset(_terms_of(window.judged_text)) for window in windows}
        return max(pairs, key=lambda pair: _share(weights, present[pair[0]] | present[pair[1]]), default=None)

    def join(self, pair: tuple[Evidence, Evidence], claim: str, *, tokens: int, count: CountTokens) -> str:
        """Join two windows into one text of at most ``tokens`` tokens. If they don't fit in full, use only the
        sentences closest to ``claim``."""
        whole = "\n".join(window.judged_text for window in pair)
        if count(whole) <= tokens:
            return whole
        weights = self._weights(claim)
        sentences = [sentence for window in pair for sentence in self._sentences[self._place[id(window)]]]
        chosen: set[int] = set()
        left = tokens
        shares = [_share(weights, frozenset(_terms_of(sentence))) for sentence in sentences]
        for place in sorted(range(len(sentences)), key=lambda place: -shares[place]):
            if (length := count(sentences[place])) <= left:
                chosen.add(place)
                left -= length
        return "\n".join(sentences[place] for place in sorted(chosen))

    def _best_sentence(self, weights: Mapping[str, float], window: Evidence) -> float:
        """Return the highest total of ``weights`` in a single sentence of ``window``."""
        place = self._place[id(window)]
        postings = self._postings_of(place)
        if postings.keys().isdisjoint(weights):
            return 0.0
        shares = [0.0] * len(self._sentences[place])
        for term in filter(postings.__contains__, weights):
            for sentence in postings[term]:
                shares[sentence] += weights[term]
        return max(shares, default=0.0)

    def _postings_of(self, place: int) -> Mapping[str, Sequence[int]]:
        """Return, for each term, the sentences of the window at ``place`` that contain it. Two threads may build the
        map concurrently."""
        if (known := self._postings.get(place)) is not None:
            return known
        postings: defaultdict[str, list[int]] = defaultdict(list)
        for number, sentence in enumerate(self._sentences[place]):
            for term in dict.fromkeys(_terms_of(sentence)):
                postings[term].append(number)
        return self._postings.setdefault(place, postings)

    def _weights(self, claim: str) -> Mapping[str, float]:
        return {term: self._bm25.weight(term) for term in _terms_of(claim)}


@lru_cache(maxsize=2_048)
def _terms_of(text: str) -> tuple[str, ...]:
    """Extract the terms of a claim, window or sentence. The result (about 2 KiB) is cached, because a claim is looked
    up more than once and documents recur."""
    return tuple(terms(text))


def _share(weights: Mapping[str, float], present: frozenset[str]) -> float:
    total = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in present) / total if total else 0.0
