"""Cuts chunks into windows of whole sentences."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from judges.evidence.index import CountTokens, EvidenceIndex
from judges.protocols import SentenceSplitter
from judges.text.markdown import ROW, cells, verbalise_row
from judges.types import Chunk, Evidence, Span, Windowing

_CLAIM_TOKENS = 94
"""Number of tokens reserved for the claim, which is enough for nearly every claim."""

_BLANK_LINE = re.compile(r"\n\s*\n")
_OVERLAP_OF_PIECES = 8
"""Number of words shared by two neighbouring pieces of an over-long sentence."""
_MAX_CACHED_CHARS = 20_000
"""Longer documents are cut again for each request, so that the cache stays small."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A stretch of text that is not cut further: a sentence, a piece of a long sentence, or a word."""

    start: int
    end: int
    tokens: int
    verbalised: str = ""
    """The text to judge instead of ``text``; "" to judge ``text`` itself."""


class DocumentCutter:
    """Cuts documents into sentences. The results for the ``max_texts`` most recently used documents are cached, because
    the same documents recur. Thread-safe.

    Args:
        splitter: creates the sentence splitter for one document.
    """

    def __init__(self, splitter: Callable[[], SentenceSplitter], *, max_texts: int = 512) -> None:
        self._splitter = splitter
        self._cached = lru_cache(max_texts)(self._cut)

    def sentences(self, text: str, limit: int, count: CountTokens) -> Sequence[_Unit]:
        """Return the sentences of ``text``, with those of more than ``limit`` tokens cut into pieces."""
        cut = self._cached if len(text) <= _MAX_CACHED_CHARS else self._cut
        return cut(text, limit, count)

    def _cut(self, text: str, limit: int, count: CountTokens) -> Sequence[_Unit]:
        return _sentences(text, self._splitter(), limit, count)


def build_index(
    chunks: Sequence[Chunk],
    *,
    cutter: DocumentCutter,
    count: CountTokens,
    max_tokens: int,
    windowing: Windowing | None = None,
) -> EvidenceIndex:
    """Cut ``chunks`` into windows.

    Every character other than whitespace is in at least one window. Chunks are sorted by relevance, highest first;
    those without a score come last, in the given order.

    Args:
        cutter: cuts each chunk into sentences.
        count: returns the length of its argument in tokens.
        max_tokens: the limit for evidence and claim together. A window leaves room for the claim, but at most half the
            limit.
        windowing: how chunks are cut.
    """
    windowing = windowing or Windowing()
    limit = max(1, min(windowing.tokens, max(max_tokens // 2, max_tokens - _CLAIM_TOKENS)))
    windows: list[Evidence] = []
    sentences: list[Sequence[str]] = []
    for index in sorted(range(len(chunks)), key=lambda place: _rank(chunks[place])):
        chunk = chunks[index]
        units = cutter.sentences(chunk.text, limit, count)
        for run in _tile(units, limit=limit, most=windowing.sentences, overlap=windowing.overlap):
            span = Span(run[0].start, run[-1].end)
            judged = [unit.verbalised or chunk.text[unit.start : unit.end] for unit in run]
            windows.append(
                Evidence(
                    chunk_index=index,
                    document_id=chunk.id,
                    source=chunk.source,
                    text=chunk.text[span.start : span.end],
                    span=span,
                    verbalised="\n".join(judged) if any(unit.verbalised for unit in run) else "",
                )
            )
            sentences.append(judged)
    return EvidenceIndex(windows, sentences, window_tokens=limit, chunks=chunks)


def split_long(text: str, limit: int, count: CountTokens) -> Sequence[str]:
    """Return ``text`` or, if it is longer than ``limit`` tokens, overlapping pieces of it within the limit."""
    return [text[unit.start : unit.end] for unit in _pieces(text, 0, limit, count)]


def _rank(chunk: Chunk) -> float:
    return 1.0 if chunk.relevance_score is None else -chunk.relevance_score


def _sentences(text: str, splitter: SentenceSplitter, limit: int, count: CountTokens) -> list[_Unit]:
    """Split ``text`` into sentences without surrounding whitespace, and split sentences longer than ``limit`` tokens
    into pieces. Table rows are verbalised."""
    units: list[_Unit] = []
    table = _Table()
    for sentence in [*splitter.push(text), *splitter.flush()]:
        raw = text[sentence.span.start : sentence.span.end]
        start = sentence.span.start + len(raw) - len(raw.lstrip())
        if not (stripped := raw.strip()):
            continue
        verbalised = table.verbalise(raw)
        if table.header_ended:  # The delimiter line has no text, and the header is not a row of the table above.
            last = units.pop()
            header = text[last.start : last.end]
            units.append(_Unit(last.start, start + len(stripped), count(header), header))
        elif verbalised and (tokens := count(verbalised)) <= limit:
            units.append(_Unit(start, start + len(stripped), tokens, verbalised))
        else:
            units.extend(_pieces(stripped, start, limit, count))
    return units


class _Table:
    """The Markdown table that is being read, if any."""

    def __init__(self) -> None:
        self._last: Sequence[str] = ()
        self._header: Sequence[str] = ()
        self.header_ended = False
        """Whether the last line read is the delimiter line below a header."""

    def verbalise(self, raw: str) -> str:
        """Return a table row in words. Return "" for the header, and for text that is not a row."""
        values = cells(raw) if ROW.match(raw) else []
        self.header_ended = bool(self._last) and not values and ROW.match(raw) is not None
        if self.header_ended:
            self._header = self._last
        verbalised = verbalise_row(self._header, values) if values and self._header else ""
        self._last = values
        if not ROW.match(raw) or _BLANK_LINE.search(raw):
            self._last = self._header = ()
        return verbalised


def _pieces(text: str, offset: int, limit: int, count: CountTokens) -> list[_Unit]:
    tokens = count(text)
    if tokens <= limit:
        return [_Unit(offset, offset + len(text), tokens)]
    words = list(_words(text, offset, limit, count))
    runs = _tile(words, limit=limit, most=len(words), overlap=min(_OVERLAP_OF_PIECES, limit // 4))
    return [_Unit(run[0].start, run[-1].end, sum(word.tokens for word in run)) for run in runs]


def _words(text: str, offset: int, limit: int, count: CountTokens) -> Iterator[_Unit]:
    """Split ``text`` into words. A word above the limit (such as a hash, or text in a script without spaces) is halved
    until it fits."""
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
    """Yield runs of neighbouring units that together cover all units. Each run has at most ``limit`` tokens and
    ``most`` units. It overlaps the previous run by ``overlap`` units, or by fewer if it would otherwise add no new
    unit."""
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
