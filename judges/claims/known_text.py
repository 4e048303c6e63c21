"""Looks up words in the text of one request. A reply may repeat names from the request without stating anything."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from judges.features.words.document_text import DocumentText, known_words, words_of
from judges.features.words.stemming import stem

_MAX_QUESTION_CHARS: Final = 60_000
"""Maximum number of characters read from the user's messages. Only the end of longer messages is read, so a reply that
repeats their beginning isn't recognised as harmless."""


class KnownText:
    """The text of one request, for lookups.

    Args:
        question: the user's text.
        documents: the documents against which the reply is judged, or their texts.
        names: ids, sources, titles and URLs of the documents; needed only if ``documents`` are texts.
    """

    def __init__(
        self, *, question: str = "", documents: DocumentText | Sequence[str] = (), names: Sequence[str] = ()
    ) -> None:
        self._question = question[-_MAX_QUESTION_CHARS:]
        self._documents = documents if isinstance(documents, DocumentText) else DocumentText(documents, names)

    def has(self, word: str) -> bool:
        """Return whether the question, a document or a name contains ``word`` (in lower case), in any inflection."""
        known, asked = self._documents.words, self._asked
        return word in known or word in asked or (root := stem(word)) in known or root in asked

    def asks(self, text: str) -> bool:
        """Return whether the question contains the words of ``text``, in order."""
        words = words_of(text)
        return bool(words) and f" {' '.join(words)} " in self._asked_in_order

    def asked(self, words: Sequence[str]) -> bool:
        """Return whether the question contains each of ``words``, in any inflection and order."""
        return all(word in self._asked or stem(word) in self._asked for word in words)

    def quotes(self, text: str) -> bool:
        """Return whether a document or a name contains ``text`` literally, except for white space."""
        return self._documents.quotes(text)

    def is_name(self, text: str) -> bool:
        """Return whether ``text`` is the whole name of a document."""
        return self._documents.is_name(text)

    def names(self, text: str) -> bool:
        """Return whether the question or a document contains ``text`` (given in lower case), capitalised or not."""
        return self.asks(text) or any(map(self.quotes, (text, text.capitalize(), text.title())))

    @cached_property
    def _asked_in_order(self) -> str:
        return f" {' '.join(words_of(self._question))} "

    @cached_property
    def _asked(self) -> frozenset[str]:
        return known_words([self._question])


class AnyText(KnownText):
    """Finds every word, for callers that have no question and no documents."""

    def has(self, word: str) -> bool:
        return True

    def asks(self, text: str) -> bool:
        return True

    def asked(self, words: Sequence[str]) -> bool:
        return True

    def quotes(self, text: str) -> bool:
        return True
