"""Retrieved chunks to evidence: overlapping windows of whole sentences, and the best of them for a claim."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from judges.protocols import SentenceSplitter
from judges.text.bm25 import Bm25, substance, terms
from judges.text.markdown import ROW, cells, told_row
from judges.types import Chunk, Evidence, Span

CountTokens = Callable[[str], int]

_CLAIM_TOKENS = 94
"""Enough for nearly every claim."""

_BLANK_LINE = re.compile(r"\n\s*\n")
_OVERLAP_OF_PIECES = 8
"""Words that two neighbouring pieces of one over-long sentence share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """How chunks are cut. A window ends at ``sentences`` sentences or before ``tokens`` tokens are passed, whichever
    comes first, and takes up the last ``overlap`` sentences of the one before it.

    The defaults are what the embedded model was trained on. It reads a claim against several windows at once, so they
    need not overlap."""

    sentences: int = 12
    tokens: int = 128
    overlap: int = 0


@dataclass(frozen=True, slots=True)
class _Unit:
    """A stretch of text that is not cut further: a sentence, a piece of a long one, a word."""

    start: int
    end: int
    tokens: int
    told: str = ""
    """What is read in its place; "" for the text itself."""


class EvidenceIndex:
    """The windows of a request's chunks, most relevant chunk first. Made by ``build_index``."""

    def __init__(self, windows: Sequence[Evidence], sentences: Sequence[Sequence[str]], *, window_tokens: int) -> None:
        self.windows = windows
        self.window_tokens = window_tokens
        """No window has more tokens than this."""
        self._place = {id(window): place for place, window in enumerate(windows)}
        """Of the windows as they are in ``windows``: to hash one by its texts takes as long as to look through it."""
        self._sentences = sentences
        self._postings: dict[int, Mapping[str, Sequence[int]]] = {}
        self._bm25 = Bm25([terms(window.read) for window in windows])

    def __len__(self) -> int:
        return len(self.windows)

    def select(self, claim: str, k: int) -> Sequence[Evidence]:
        """The ``k`` windows nearest to ``claim`` in words, best first; of two alike that of the more relevant chunk.
        All windows if there are fewer."""
        scores = self._bm25.scores(_terms_of(claim))
        ranked = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
        return [self.windows[place] for place in ranked[:k]]

    def affinities(self, windows: Sequence[Evidence], claim: str) -> list[float]:
        """How far one sentence of each of ``windows`` is about what ``claim`` is about, 0–1: the share of the claim's
        words, short ones weighing little, that its best sentence has."""
        weights = {term: substance(term) for term in _terms_of(claim)}
        total = sum(weights.values()) or 1.0
        return [self._most(weights, window) / total for window in windows]

    def best_pair(self, windows: Sequence[Evidence], claim: str) -> tuple[Evidence, Evidence] | None:
        """The two of ``windows``, of different chunks, that have most of the claim's words between them; None if all
        are of one chunk."""
        weights = self._weights(claim)
        pairs = [(a, b) for a, b in combinations(windows, 2) if a.chunk_index != b.chunk_index]
        present = {window: frozenset(terms(window.read)) for window in windows}
        return max(pairs, key=lambda pair: _share(weights, present[pair[0]] | present[pair[1]]), default=None)

    def join(self, pair: tuple[Evidence, Evidence], claim: str, *, tokens: int, count: CountTokens) -> str:
        """One text of two windows that has at most ``tokens`` tokens: whole, or the sentences nearest to ``claim``."""
        whole = "\n".join(window.read for window in pair)
        if count(whole) <= tokens:
            return whole
        weights = self._weights(claim)
        sentences = [sentence for window in pair for sentence in self._sentences_of(window)]
        chosen: set[int] = set()
        left = tokens
        shares = [_share(weights, frozenset(terms(sentence))) for sentence in sentences]
        for place in sorted(range(len(sentences)), key=lambda place: -shares[place]):
            if (length := count(sentences[place])) <= left:
                chosen.add(place)
                left -= length
        return "\n".join(sentences[place] for place in sorted(chosen))

    def _sentences_of(self, window: Evidence) -> Sequence[str]:
        return self._sentences[self._place[id(window)]]

    def _most(self, weights: Mapping[str, float], window: Evidence) -> float:
        """How much of ``weights`` one sentence of ``window`` has."""
        sentences = self._sentences_of(window)
        postings = self._postings_of(window)
        shares = [0.0] * len(sentences)
        for term, weight in weights.items():
            for sentence in postings.get(term, ()):
                shares[sentence] += weight
        return max(shares, default=0.0)

    def _postings_of(self, window: Evidence) -> Mapping[str, Sequence[int]]:
        """The sentences of ``window`` that have a term. Claims that are weighed on two threads may both make it."""
        place = self._place[id(window)]
        if (known := self._postings.get(place)) is not None:
            return known
        postings: defaultdict[str, list[int]] = defaultdict(list)
        for number, sentence in enumerate(self._sentences[place]):
            for term in dict.fromkeys(terms(sentence)):
                postings[term].append(number)
        return self._postings.setdefault(place, postings)

    def _weights(self, claim: str) -> Mapping[str, float]:
        return {term: self._bm25.weight(term) for term in terms(claim)}


@lru_cache(maxsize=64)
def _terms_of(claim: str) -> tuple[str, ...]:
    """A claim is asked about more than once."""
    return tuple(terms(claim))


def build_index(
    chunks: Sequence[Chunk],
    *,
    splitter: Callable[[], SentenceSplitter],
    count: CountTokens,
    max_tokens: int,
    windowing: Windowing | None = None,
) -> EvidenceIndex:
    """Cut ``chunks`` into windows.

    ``count`` gives the tokens of a text, ``max_tokens`` the most that evidence and claim may have together; a window
    leaves room for a claim beside it, half of it at most. Chunks are taken by falling relevance, those without a
    score after the others, each in the order given. Every character that is not white space lies in some window.
    """
    windowing = windowing or Windowing()
    limit = max(1, min(windowing.tokens, max(max_tokens // 2, max_tokens - _CLAIM_TOKENS)))
    windows: list[Evidence] = []
    sentences: list[Sequence[str]] = []
    for index in sorted(range(len(chunks)), key=lambda place: _rank(chunks[place])):
        chunk = chunks[index]
        units = _sentences(chunk.text, splitter(), limit, count)
        for run in _tile(units, limit=limit, most=windowing.sentences, overlap=windowing.overlap):
            span = Span(run[0].start, run[-1].end)
            read = [unit.told or chunk.text[unit.start : unit.end] for unit in run]
            windows.append(
                Evidence(
                    chunk_index=index,
                    document_id=chunk.id,
                    source=chunk.source,
                    text=chunk.text[span.start : span.end],
                    span=span,
                    told="\n".join(read) if any(unit.told for unit in run) else "",
                )
            )
            sentences.append(read)
    return EvidenceIndex(windows, sentences, window_tokens=limit)


def split_long(text: str, limit: int, count: CountTokens) -> Sequence[str]:
    """``text`` itself, or overlapping pieces of it that have at most ``limit`` tokens each."""
    return [text[unit.start : unit.end] for unit in _pieces(text, 0, limit, count)]


def _rank(chunk: Chunk) -> float:
    return 1.0 if chunk.relevance_score is None else -chunk.relevance_score


def _sentences(text: str, splitter: SentenceSplitter, limit: int, count: CountTokens) -> list[_Unit]:
    """The sentences of ``text`` without the white space around them; a longer one than ``limit`` in pieces. The rows of
    a table have what its header says of their cells."""
    units: list[_Unit] = []
    table = _Table()
    for sentence in [*splitter.push(text), *splitter.flush()]:
        raw = text[sentence.span.start : sentence.span.end]
        start = sentence.span.start + len(raw) - len(raw.lstrip())
        if not (stripped := raw.strip()):
            continue
        told = table.tell(raw)
        if table.is_headed:  # the line below a header is no text, and the header is none of the table above
            last = units.pop()
            header = text[last.start : last.end]
            units.append(_Unit(last.start, start + len(stripped), count(header), header))
        elif told and (tokens := count(told)) <= limit:
            units.append(_Unit(start, start + len(stripped), tokens, told))
        else:
            units.extend(_pieces(stripped, start, limit, count))
    return units


class _Table:
    """The table that is being read, if one is."""

    def __init__(self) -> None:
        self._last: Sequence[str] = ()
        self._header: Sequence[str] = ()
        self.is_headed = False
        """The line read last is the one below a header."""

    def tell(self, raw: str) -> str:
        """A row in words, "" for all else: a header too, which is one by the line of dashes below it."""
        values = cells(raw) if ROW.match(raw) else []
        self.is_headed = bool(self._last) and not values and ROW.match(raw) is not None
        if self.is_headed:
            self._header = self._last
        told = told_row(self._header, values) if values and self._header else ""
        self._last = values
        if not ROW.match(raw) or _BLANK_LINE.search(raw):
            self._last = self._header = ()
        return told


def _pieces(text: str, offset: int, limit: int, count: CountTokens) -> list[_Unit]:
    tokens = count(text)
    if tokens <= limit:
        return [_Unit(offset, offset + len(text), tokens)]
    words = list(_words(text, offset, limit, count))
    runs = _tile(words, limit=limit, most=len(words), overlap=min(_OVERLAP_OF_PIECES, limit // 4))
    return [_Unit(run[0].start, run[-1].end, sum(word.tokens for word in run)) for run in runs]


def _words(text: str, offset: int, limit: int, count: CountTokens) -> Iterator[_Unit]:
    """The words of ``text``; one too long by itself (a script without spaces, a hash) is halved until it fits."""
    place = 0
    for word in text.split():
        place = text.index(word, place)
        yield from _halves(word, offset + place, limit, count)
        place += len(word)


def _halves(word: str, offset: int, limit: int, count: CountTokens) -> Iterator[_Unit]:
    tokens = count(word)
    if tokens <= limit or len(word) == 1:
        yield _Unit(offset, offset + len(word), tokens)
        return
    middle = len(word) // 2
    yield from _halves(word[:middle], offset, limit, count)
    yield from _halves(word[middle:], offset + middle, limit, count)


def _tile(units: Sequence[_Unit], *, limit: int, most: int, overlap: int) -> Iterator[Sequence[_Unit]]:
    """Runs of neighbouring units that cover all of them, each within ``limit`` tokens and ``most`` units; a run begins
    ``overlap`` units before the end of the one before, or fewer where else it would get no further."""
    start = end = 0
    while end < len(units):
        covered = end
        tokens = units[start].tokens
        end = start + 1
        while end < len(units) and end - start < most and tokens + units[end].tokens <= limit:
            tokens += units[end].tokens
            end += 1
        if end > covered:
            yield units[start:end]
            start = max(start + 1, end - overlap)
        else:
            end = covered
            start += 1


def _share(weights: Mapping[str, float], present: frozenset[str]) -> float:
    total = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in present) / total if total else 0.0
