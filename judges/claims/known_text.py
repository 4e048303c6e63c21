"""The words of the question and the documents: text that uses only these can be harmless."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from judges.features.words.document_text import DocumentText, known_words, words_of
from judges.features.words.stemming import stem

_MAX_QUESTION_CHARS: Final = 60_000
"""Of a longer conversation, the end is known: what only its beginning has is not harmless."""


class KnownText:
    """The text of one request, for lookups.

    Args:
        question: what the user wrote.
        documents: what the reply is judged against; or its texts.
        names: ids, sources, titles and URLs of the documents, if these are texts.
    """

    def __init__(
        self, *, question: str = "", documents: DocumentText | Sequence[str] = (), names: Sequence[str] = ()
    ) -> None:
        self._question = question[-_MAX_QUESTION_CHARS:]
        self._documents = documents if isinstance(documents, DocumentText) else DocumentText(documents, names)

    def has(self, word: str) -> bool:
        """Whether the question, a document or a name has ``word`` (in lower case), in any inflection."""
        known, asked = self._documents.words, self._asked
        return word in known or word in asked or (root := stem(word)) in known or root in asked

    def asks(self, text: str) -> bool:
        """Whether the question contains the words of ``text``, in order."""
        words = words_of(text)
        return bool(words) and f" {' '.join(words)} " in self._asked_in_order

    def quotes(self, text: str) -> bool:
        """Whether a document or a name contains ``text`` literally, except for white space."""
        return self._documents.quotes(text)

    @cached_property
    def _asked_in_order(self) -> str:
        return f" {' '.join(words_of(self._question))} "

    @cached_property
    def _asked(self) -> frozenset[str]:
        return known_words([self._question])


class AnyText(KnownText):
    """Knows every word, for callers without a question and documents."""

    def has(self, word: str) -> bool:
        return True

    def asks(self, text: str) -> bool:
        return True

    def quotes(self, text: str) -> bool:
        return True
