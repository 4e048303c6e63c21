"""What the documents of a request are called, and where a text calls them so."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from judges.types import Chunk, Span

_WORD = re.compile(r"\w+")
_LONGEST_NAME = 500
_SHORTEST_NAME = 3
_JOINERS = "-/\\@._~%"


@dataclass(slots=True)
class _Node:
    """A node of the trie of names, word by word. ``names``: those that end here, with the document and the length of
    what stands before the first word (the slash of ``/kb/faq.md``)."""

    after: dict[str, "_Node"] = field(default_factory=dict)
    names: list[tuple[str, int, int]] = field(default_factory=list)


class DocumentNames:
    """Finds documents by id, source, title or URL. Of several with one name the first is meant."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.count = len(chunks)
        self._ids: dict[str, int] = {}
        self._folded: dict[str, int] = {}
        self._root = _Node()
        for index, chunk in enumerate(chunks):
            self._ids.setdefault(chunk.id, index)
        for index, chunk in enumerate(chunks):
            for name in (chunk.id, chunk.source, chunk.url, chunk.title):
                if name:
                    self._folded.setdefault(_fold(name), index)
        # A source of many documents is added once, for the first of them.
        spoken = {name.strip().rstrip("/"): index for name, index in reversed(list(_spoken(chunks)))}
        for name, index in spoken.items():
            if _telling(name):
                self._add(name, index)

    def get(self, name: str) -> int | None:
        """The index of the document called ``name``, exactly or but for case, a trailing slash or a URL's fragment."""
        if (index := self._ids.get(name)) is not None:
            return index
        folded = _fold(name)
        if (index := self._folded.get(folded)) is not None:
            return index
        return self._folded.get(_fold(folded.partition("#")[0])) if "://" in folded else None

    def numbered(self, number: int) -> int | None:
        """The index of the document that a prompt numbers ``number``, the first being 1."""
        return number - 1 if 1 <= number <= self.count else None

    def mentions(self, text: str) -> Iterator[tuple[int, Span]]:
        """Where ``text`` names a source or URL in full, the longest name first and none within another."""
        words = [match.span() for match in _WORD.finditer(text)] if self._root.after else []
        at = 0
        while at < len(words):
            found = self._longest(text, words, at)
            if found is None:
                at += 1
                continue
            yield found
            while at < len(words) and words[at][0] < found[1].end:
                at += 1

    def _add(self, name: str, index: int) -> None:
        words = list(_WORD.finditer(name))
        node = self._root
        for word in words:
            node = node.after.setdefault(word[0].casefold(), _Node())
        node.names.append((name, index, words[0].start()))

    def _longest(self, text: str, words: Sequence[tuple[int, int]], at: int) -> tuple[int, Span] | None:
        best: tuple[int, Span] | None = None
        node = self._root
        for place in range(at, len(words)):
            start, end = words[place]
            following = node.after.get(text[start:end].casefold())
            if following is None:
                break
            node = following
            for name, index, lead in node.names:
                span = Span(words[at][0] - lead, words[at][0] - lead + len(name))
                if _stands_at(text, name, span) and (best is None or span.end > best[1].end):
                    best = (index, span)
        return best


def _spoken(chunks: Sequence[Chunk]) -> Iterator[tuple[str, int]]:
    for index, chunk in enumerate(chunks):
        for name in (chunk.source, chunk.url):
            if name:
                yield name, index


def _fold(name: str) -> str:
    return name.strip().rstrip("/").casefold()


def _telling(name: str) -> bool:
    """Whether ``name`` in plain text must be meant as a name: ``faq.pdf`` or ``Legal Review``, but not ``web``."""
    if not _SHORTEST_NAME <= len(name) <= _LONGEST_NAME or _WORD.search(name) is None:
        return False
    return not name.isalpha() or not name.islower()


def _stands_at(text: str, name: str, span: Span) -> bool:
    if span.start < 0:
        return False
    written = text[span.start : span.end]
    same = written == name if name.isalpha() else written.casefold() == name.casefold()
    return same and not _joined_before(text, span.start) and not _joined_after(text, span.end)


def _joined_before(text: str, start: int) -> bool:
    if start == 0:
        return False
    before = text[start - 1]
    return before.isalnum() or (before in _JOINERS and not text.endswith("://", 0, start))


def _joined_after(text: str, end: int) -> bool:
    after = text[end : end + 2]
    return after[:1].isalnum() or (after[:1] in _JOINERS and after[1:].isalnum()) if after else False
