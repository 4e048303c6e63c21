"""Looks up words in the text of documents."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from judges.features.words.stemming import stem

_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_CUT: Final = re.compile(r"[^\W\d_]+|\d+")
_QUOTE: Final = "’"


def words_of(text: str) -> list[str]:
    """Return the words in ``text`` in order and in lower case; numbers count as words."""
    if text.isascii():
        return _WORD.findall(text.lower())
    return [found.replace(_QUOTE, "'").casefold() for found in _WORD.findall(text)]


def known_words(texts: Sequence[str]) -> frozenset[str]:
    """Return the words of ``texts``, their stems and their parts: "30days" and "faq_v2.pdf" contain "30", "days", "faq"
    and "v2"."""
    return frozenset(_forms({word for text in texts for word in words_of(text)}))


def _forms(words: set[str]) -> Iterator[str]:
    for word in words:
        yield word
        yield stem(word)
        if word.isalpha():
            continue
        for part in _CUT.findall(word):
            yield part
            yield stem(part)


class DocumentText:
    """The texts of a request's documents, each read once.

    Args:
        texts: the texts of the documents.
        names: their ids, sources, titles and URLs.
    """

    def __init__(self, texts: Sequence[str] = (), names: Sequence[str] = ()) -> None:
        self._texts = texts
        self._names = names

    def read(self) -> None:
        """Read the documents now rather than at the first lookup, because large documents take a while to read."""
        _ = self.words, self._lines, self._joined, self.in_order

    def without_texts(self) -> "DocumentText":
        """Return the names alone."""
        return DocumentText((), self._names)

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the texts and names, with their stems and parts."""
        return known_words([*self._texts, *self._names])

    @cached_property
    def in_order(self) -> str:
        """The words of the texts and names in order, with spaces around each, and a line for each text."""
        return "\n".join(f" {' '.join(words_of(text))} " for text in (*self._texts, *self._names))

    def quotes(self, text: str) -> bool:
        """Return whether a document or a name contains ``text`` verbatim, ignoring whitespace."""
        wanted = " ".join(text.split())
        return bool(wanted) and (wanted in self._lines or self._contains(wanted))

    def is_name(self, text: str) -> bool:
        """Return whether ``text`` is one of the names, ignoring case."""
        return text.casefold() in self._folded_names

    @cached_property
    def _folded_names(self) -> frozenset[str]:
        return frozenset(name.strip().casefold() for name in self._names)

    @cached_property
    def _lines(self) -> frozenset[str]:
        lines = (" ".join(line.split()) for text in self._texts for line in text.splitlines())
        return frozenset([*lines, *(name.strip() for name in self._names)])

    @cached_property
    def _joined(self) -> str:
        return "\n".join(" ".join(text.split()) for text in self._texts)

    def _contains(self, wanted: str) -> bool:
        """Return whether a document contains ``wanted`` other than as part of a longer word or number."""
        if not all(word in self.words or stem(word) in self.words for word in words_of(wanted)):
            return False
        at = self._joined.find(wanted)
        while at >= 0:
            end = at + len(wanted)
            if not self._continues(at - 1, wanted[0]) and not self._continues(end, wanted[-1]):
                return True
            at = self._joined.find(wanted, at + 1)
        return False

    def _continues(self, at: int, neighbour: str) -> bool:
        """Return whether the character at ``at`` and its ``neighbour`` belong to the same word."""
        return 0 <= at < len(self._joined) and self._joined[at].isalnum() and neighbour.isalnum()
