"""The words of the question and the documents: text that uses only these can be harmless."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from judges.features.words.stemming import stem

_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_CUT: Final = re.compile(r"[^\W\d_]+|\d+(?:[.,:]\d+)*")
_QUOTE: Final = "’"


def words_of(text: str) -> list[str]:
    """The words of ``text`` in order, in lower case; numbers are words."""
    return [found.replace(_QUOTE, "'").casefold() for found in _WORD.findall(text)]


class KnownText:
    """The text of one request, for lookups.

    Args:
        question: what the user wrote.
        documents: the texts that the reply is judged against.
        names: ids, sources, titles and URLs of the documents.
    """

    def __init__(self, *, question: str = "", documents: Sequence[str] = (), names: Iterable[str] = ()) -> None:
        self._question = question
        self._documents = documents
        self._names = tuple(names)
        self._words: frozenset[str] | None = None
        self._lines: frozenset[str] | None = None
        self._text = ""

    def has(self, word: str) -> bool:
        """Whether the question, a document or a name has ``word`` (in lower case), in any inflection."""
        if self._words is None:
            self._words = frozenset(self._all_words())
        return word in self._words or stem(word) in self._words

    def asks(self, text: str) -> bool:
        """Whether the question contains the words of ``text``, in order."""
        words = words_of(text)
        return bool(words) and f" {' '.join(words)} " in f" {' '.join(words_of(self._question))} "

    def quotes(self, text: str) -> bool:
        """Whether a document or a name contains ``text`` literally, except for white space."""
        wanted = " ".join(text.split())
        if not wanted:
            return False
        if self._lines is None:
            self._lines = self._read_lines()
        return wanted in self._lines or self._contains(wanted)

    def _all_words(self) -> Iterable[str]:
        for text in (self._question, *self._documents, *self._names):
            for word in words_of(text):
                yield word
                yield stem(word)
                # "30days" and "faq_v2.pdf" contain "30", "days", "faq" and "v2".
                for piece in _CUT.findall(word):
                    yield piece
                    yield stem(piece)

    def _read_lines(self) -> frozenset[str]:
        lines = [" ".join(line.split()) for text in self._documents for line in text.splitlines()]
        self._text = "\n".join(" ".join(text.split()) for text in self._documents)
        return frozenset([*lines, *(name.strip() for name in self._names)])

    def _contains(self, wanted: str) -> bool:
        """Whether a document contains ``wanted``, and not only as part of a longer word or number."""
        if not all(self.has(word) for word in words_of(wanted)):
            return False
        at = self._text.find(wanted)
        while at >= 0:
            if not _continues_word(self._text, at - 1, wanted[0]) and not _continues_word(
                self._text, at + len(wanted), wanted[-1]
            ):
                return True
            at = self._text.find(wanted, at + 1)
        return False


def _continues_word(text: str, at: int, neighbour: str) -> bool:
    return 0 <= at < len(text) and text[at].isalnum() and neighbour.isalnum()


class AnyText(KnownText):
    """Knows every word, for callers without a question and documents."""

    def has(self, word: str) -> bool:
        return True

    def asks(self, text: str) -> bool:
        return True

    def quotes(self, text: str) -> bool:
        return True
