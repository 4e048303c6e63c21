"""Finds mentions of a request's documents by name."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from judges.types import Chunk, Span

_WORD = re.compile(r"\w+")
_WORDS = re.compile(r"[^\W_]+")
_LONGEST_NAME = 500
_SHORTEST_NAME = 3
_SHORTEST_ANCHOR = 4
_MOST_QUOTED = 256
_JOINERS = "-/\\@._~%"
_DIGITS = re.compile(r"[0-9]+")
_EXTENSION = re.compile(r"[^\s/\\].{0,120}(\.[A-Za-z][A-Za-z0-9]{1,4})")
Documents = tuple[int, ...]
"""The indices of the documents that share a name, in order; empty if no document has the name."""

_SET_OFF = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("»", "«"), ("‘", "’"), ("《", "》"), ("「", "」"))


_Mention = tuple[Documents, Span]


@dataclass(slots=True)
class _Node:
    """A node in the word-level trie of names. ``names`` are the names that end here."""

    after: dict[str, "_Node"] = field(default_factory=dict)
    names: list["_Name"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Name:
    """A name to search for. ``lead`` is the length of the text before its first word, such as the slash in
    ``/kb/faq.md``. ``quoted`` means that it consists of ordinary words, so it counts only in quotation marks."""

    text: str
    documents: Documents
    lead: int
    quoted: bool


class DocumentNames:
    """Finds documents by id, source, title or URL. A name refers to all documents that have it, such as all passages of
    a file."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.count = len(chunks)
        self._texts = tuple(chunk.text for chunk in chunks)
        self._quoted: dict[str, bool] = {}
        self._ids: Mapping[str, Documents] = {}
        self._folded: Mapping[str, Documents] = {}
        self._root = _Node()
        self._shapes: set[str] = set()
        self._extensions: set[str] = set()
        if not chunks:
            return
        self._ids = _grouped((chunk.id, place) for place, chunk in enumerate(chunks))
        self._folded = _grouped(
            (_fold(name), place)
            for place, chunk in enumerate(chunks)
            for name in (chunk.id, chunk.source, chunk.url, chunk.title)
            if name
        )
        # An id with a number and letters, such as ``doc-3`` or ``hr7``, may be one of a series.
        self._shapes = {_shape(name) for name in self._ids if _DIGITS.search(name) and any(map(str.isalpha, name))}
        self._extensions = {match[1].casefold() for name in self._folded if (match := _EXTENSION.fullmatch(name))}
        searched = _grouped(
            (name.strip().rstrip("/"), place)
            for place, chunk in enumerate(chunks)
            for name in (chunk.source, chunk.url)
            if name
        )
        for name, documents in searched.items():
            if _is_distinctive(name):
                self._add(name, documents)
        titles = _grouped(((chunk.title or "").strip(), place) for place, chunk in enumerate(chunks))
        for title, documents in titles.items():
            if title not in searched and _SHORTEST_NAME <= len(title) <= _LONGEST_NAME and _WORD.search(title):
                self._add(title, documents, quoted=True)

    def get(self, name: str) -> Documents:
        """Return the documents named ``name``. If no name matches exactly, case, a trailing slash and a URL fragment
        are ignored."""
        exact, folded, page = lookup_forms(name)
        return self._ids.get(exact) or self._folded.get(folded) or self._folded.get(page, ())

    def first_named(self, names: Iterable[str]) -> Documents:
        """Return the documents for the first of ``names`` that matches a document."""
        return next((documents for name in names if (documents := self.get(name))), ())

    def is_name(self, name: str) -> bool:
        """Return whether a document has exactly this name, ignoring case and a trailing slash."""
        return name in self._ids or _fold(name) in self._folded

    def has_anchor(self, text: str) -> bool:
        """Return whether ``text`` is written like an anchor ("#annual-leave"), and its words occur in this order in a
        document or a name. A single short word, such as "not", is not an anchor."""
        words = _WORDS.findall(text.casefold())
        if any(map(str.isspace, text)) or sum(map(len, words)) < _SHORTEST_ANCHOR:
            return False
        return any(f" {' '.join(words)} " in known for known in self._in_order)

    @cached_property
    def _in_order(self) -> Sequence[str]:
        return [f" {' '.join(_WORDS.findall(text.casefold()))} " for text in (*self._texts, *self._folded)]

    def at_number(self, number: int) -> Documents:
        """Return the document numbered ``number`` in the prompt. Numbers start at 1."""
        return (number - 1,) if 1 <= number <= self.count else ()

    def resembles_name(self, name: str) -> bool:
        """Return whether ``name``, which matches no document, looks like a document's name: a known id with a different
        number, or a file name with a known extension."""
        if self.is_in_documents(name):
            return False
        file = _EXTENSION.fullmatch(name)
        return _shape(name) in self._shapes or (file is not None and file[1].casefold() in self._extensions)

    def is_in_documents(self, text: str) -> bool:
        """Return whether a document contains ``text``. After many searches, return True without searching, to bound the
        time spent on unknown markers."""
        found = self._quoted.get(text)
        if found is None:
            found = len(self._quoted) >= _MOST_QUOTED or any(text in given for given in self._texts)
            if len(self._quoted) < _MOST_QUOTED:
                self._quoted[text] = found
        return found

    def mentions(self, text: str) -> Iterator[_Mention]:
        """Yield each place where ``text`` mentions a source or URL in full, or a title in quotation marks, with the
        documents. The longest name wins; matches do not overlap."""
        folded = text.casefold()
        if not any(first in folded for first in self._root.after):
            return  # most text mentions no document, and this check is five times as fast as finding the words
        words = [match.span() for match in _WORD.finditer(text)]
        at = 0
        while at < len(words):
            found = self._longest(text, words, at)
            if found is None:
                at += 1
                continue
            yield found
            while at < len(words) and words[at][0] < found[1].end:
                at += 1

    def _add(self, name: str, documents: Documents, *, quoted: bool = False) -> None:
        words = list(_WORD.finditer(name))
        node = self._root
        for word in words:
            node = node.after.setdefault(word[0].casefold(), _Node())
        node.names.append(_Name(name, documents, words[0].start(), quoted))

    def _longest(self, text: str, words: Sequence[tuple[int, int]], at: int) -> _Mention | None:
        best: _Mention | None = None
        node = self._root
        for place in range(at, len(words)):
            start, end = words[place]
            following = node.after.get(text[start:end].casefold())
            if following is None:
                break
            node = following
            for name in node.names:
                first = words[at][0] - name.lead
                span = Span(first, first + len(name.text))
                found = _is_set_off(text, span) if name.quoted else True
                if found and _matches_at(text, name.text, span):
                    best = _longer(best, (name.documents, span))
        return best


def lookup_forms(name: str) -> tuple[str, str, str]:
    """Return the forms in which a name is looked up, in this order: the name itself, which may be an id; the name with
    its case folded; and, for a URL, also without its fragment."""
    folded = _fold(name)
    return name, folded, _fold(folded.partition("#")[0]) if "://" in folded else folded


def _longer(first: _Mention | None, second: _Mention) -> _Mention:
    """Return the longer of two mentions. Mentions of equal length differ only in case, so the documents of both
    count."""
    if first is None or second[1].end > first[1].end:
        return second
    if second[1].end < first[1].end:
        return first
    return tuple(sorted({*first[0], *second[0]})), first[1]


def _grouped(named: Iterable[tuple[str, int]]) -> Mapping[str, Documents]:
    """Group documents by name. Each document is listed once per name."""
    found: dict[str, dict[int, None]] = {}
    for name, index in named:
        found.setdefault(name, {})[index] = None
    return {name: tuple(documents) for name, documents in found.items()}


def _fold(name: str) -> str:
    return name.strip().rstrip("/").casefold()


def _is_distinctive(name: str) -> bool:
    """Return whether ``name``, found in plain text, can only be a document's name. This is true of ``faq.pdf`` and
    ``Legal Review``, but not of ``web``."""
    if not _SHORTEST_NAME <= len(name) <= _LONGEST_NAME or _WORD.search(name) is None:
        return False
    return not name.isalpha() or not name.islower()


def _matches_at(text: str, name: str, span: Span) -> bool:
    if span.start < 0:
        return False
    written = text[span.start : span.end]
    same = written == name if name.isalpha() else written.casefold() == name.casefold()
    return same and not _joined_before(text, span.start) and not _joined_after(text, span.end)


def _is_set_off(text: str, span: Span) -> bool:
    """Return whether the span is in quotation marks. There may be a comma or full stop before the closing mark."""
    before, after = text[span.start - 1 : span.start], text[span.end : span.end + 2]
    return any(before == first and last in (after[:1], after[1:].strip()) for first, last in _SET_OFF)


def _shape(name: str) -> str:
    return _DIGITS.sub("0", _fold(name))


def _joined_before(text: str, start: int) -> bool:
    if start == 0:
        return False
    before = text[start - 1]
    return before.isalnum() or (before in _JOINERS and not text.endswith("://", 0, start))


def _joined_after(text: str, end: int) -> bool:
    after = text[end : end + 2]
    return after[:1].isalnum() or (after[:1] in _JOINERS and after[1:].isalnum()) if after else False
