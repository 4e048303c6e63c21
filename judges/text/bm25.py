"""BM25 over short texts, in memory: ranks texts by the words they share with a query."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import log

_RUN = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han."""

_STEM = 7
_PLURAL_FROM = 4
_MAX_CACHED = 64
"""The maximum length of a cached word. Text without spaces may be arbitrarily long."""
_FUNCTION_WORD = 3
_K1 = 1.2
_B = 0.75


def terms(text: str) -> list[str]:
    """Return the words of ``text``, normalised so that forms of the same word are equal: in lower case, without a
    plural ``s``, and cut to seven letters. Text in scripts without spaces is split into bigrams of characters."""
    folded = text.casefold()
    runs: list[str] = _RUN.findall(folded)
    if folded.isascii() or not _UNSPACED.search(folded):
        return list(map(_stem, runs))
    found: list[str] = []
    for run in runs:
        if _UNSPACED.search(run):
            found.extend(run[i : i + 2] for i in range(max(1, len(run) - 1)))
        else:
            found.append(_stem(run))
    return found


def _stem(run: str) -> str:
    return _cached_stem(run) if len(run) <= _MAX_CACHED else _cut_stem(run)


def _cut_stem(run: str) -> str:
    return run[:-1][:_STEM] if len(run) >= _PLURAL_FROM and run[-1] == "s" else run[:_STEM]


_cached_stem = lru_cache(maxsize=8_192)(_cut_stem)


@lru_cache(maxsize=8_192)
def substance(term: str) -> float:
    """Return how specific ``term`` is to the subject of the text that contains it (0–1), regardless of other texts. It
    is low for short words."""
    return 1.0 if len(term) > _FUNCTION_WORD or not (term.isascii() and term.isalpha()) else 0.2


class Bm25:
    """Okapi BM25 (Robertson and Zaragoza, 2009) with k1 = 1.2 and b = 0.75. ``texts`` are lists of terms."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._size = len(texts)
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        average = sum(map(len, texts)) / max(1, len(texts)) or 1.0
        for index, words in enumerate(texts):
            norm = _K1 * (1.0 - _B + _B * len(words) / average)
            for term, count in Counter(words).items():
                self._postings[term].append((index, count * (_K1 + 1.0) / (count + norm)))
        self._weights = [log(1.0 + (self._size - count + 0.5) / (count + 0.5)) for count in range(self._size + 1)]
        """The weight of a term, by the number of texts that contain it."""

    def weight(self, term: str) -> float:
        """Return the inverse document frequency of ``term``: positive, and highest for a term in none of the texts."""
        return self._weights[len(self._postings.get(term, ()))]

    def scores(self, query: Iterable[str]) -> list[float]:
        """Return the score of each text; 0 for a text that shares no term with ``query``."""
        scores = [0.0] * self._size
        for term in filter(self._postings.__contains__, dict.fromkeys(query)):
            postings = self._postings[term]
            weight = self._weights[len(postings)]
            for index, part in postings:
                scores[index] += weight * part
        return scores
