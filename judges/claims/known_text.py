"""Looks up words in the text of one request and in lists of function words, because a reply may repeat names from the
request without stating anything."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Final

from judges.features.numbers import vocabulary
from judges.features.words import lexicon
from judges.features.words.document_text import DocumentText, known_words, words_of
from judges.features.words.stemming import stem
from judges.text.languages.rules import STATING, HarmlessRules

_MAX_QUESTION_CHARS: Final = 60_000
"""Maximum number of characters read from the user's messages. Only the end of longer messages is read, so a reply that
repeats their beginning isn't recognised as harmless."""
END_MARKS: Final = '.!…。！,:：)]"”’*_'
"""Marks that a text may end with."""
START: Final = re.compile(r"[\s(\[\"“‘*_¡¿.…!–—-]*")
"""Marks that a text may begin with."""
AND: Final = re.compile(r"\A(?:and|so|but|und|aber|et|y) ")
"""A conjunction at the beginning of folded text."""
_SENTENCE: Final = re.compile(r"[^.!?？\n]+[.!?？]?")
_LETTERS: Final = str.maketrans("’ʼİ", "''I")
_SPACES: Final = re.compile(r"\s+")
_ASKING_LISTED = (
    "what when where which who why how was wann wo welche welcher wer warum wie quand où quoi comment pourquoi qué "
    "cuándo dónde cuál cómo what's who's"
)
ASKS: Final = frozenset(_ASKING_LISTED.split())
"""Question words. A label that begins with a question word is a question, so its verb states nothing."""
DEGREE: Final = re.compile(r" (?:to|much|many|long|often|far|old|big|large|soon|viele?|lange|oft|hoch|weit|groß|man)\b")
"""The word after "how" in a question about a degree ("how long")."""
JOINS: Final = re.compile(
    r"[(\[–—&]|(?<!\w)(?:and|but|then|so|because|und|aber|dann|denn|sondern|et|mais|puis|donc|car|y|pero|luego|porque"
    r"|sino)(?=\s+\S+\s+\S)"
)
"""Text that may join another statement to a topic: a bracket, a dash, or a conjunction before more than one word."""
_IDENTIFIED: Final = re.compile(
    r"(?<!\w)(?:type|version|step|article|section|paragraph|phase|part|stage|level|chapter|figure|table|page|typ|schritt"
    r"|artikel|abschnitt|kapitel|teil|seite|étape|chapitre|section|partie|tipo|versión|paso|artículo|sección)"
    r" \d{1,4}(?:\.\d{1,3}){0,3}(?![\w.,%]?\w)"
)
"""A number that identifies something rather than counting it."""
COUNTED: Final = (
    frozenset(vocabulary.NUMBER_WORDS) | frozenset(vocabulary.SCALES) | vocabulary.HOW_OFTEN - vocabulary.ONE
)
_WITHOUT: Final = frozenset(["without", "ohne", "sans", "sin"])
DENYING: Final = lexicon.NEGATIONS | _WITHOUT
_COUNTING: Final = DENYING | COUNTED | {"every", "twice", "half", "double", "always", "only", "except"}
_LIMITING_LISTED = "minimum maximum least without except only twice double half free never always all none every"
_LIMITING: Final = (
    lexicon.NEGATIONS | vocabulary.MORE_THAN | vocabulary.LESS_THAN | vocabulary.AT_MOST | vocabulary.CHANGED
).union(_LIMITING_LISTED.split())


class KnownText:
    """The text of one request, for lookups.

    Args:
        question: the user's text.
        documents: the documents that the reply is checked against, or their texts.
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

    def in_documents(self, word: str) -> bool:
        """Return whether a document or a name contains ``word`` (in lower case), in any inflection."""
        return word in self._documents.words or stem(word) in self._documents.words

    def asks(self, text: str) -> bool:
        """Return whether the question contains the words of ``text``, in order."""
        words = words_of(text)
        return bool(words) and f" {' '.join(words)} " in self._asked_in_order

    def has_run(self, words: Sequence[str]) -> bool:
        """Return whether the question or a document contains ``words``, in order, the last one in any number."""
        run = " ".join(words)
        return any(f" {one} " in text for one in (run, f"{run}s", run.removesuffix("s")) for text in self._runs)

    @property
    def _runs(self) -> Sequence[str]:
        return self._asked_in_order, self._documents.in_order

    def asks_question(self, text: str) -> bool:
        """Return whether ``text`` has the words of a whole question in the user's text."""
        return " ".join(words_of(text)) in self._questions

    def asked(self, words: Sequence[str]) -> bool:
        """Return whether the question contains each of ``words``, in any inflection and order."""
        return all(word in self._asked or stem(word) in self._asked for word in words)

    def without_documents(self) -> "KnownText":
        """Return the question and the names of the documents."""
        return KnownText(question=self._question, documents=self._documents.without_texts())

    def quotes(self, text: str) -> bool:
        """Return whether a document or a name contains ``text`` verbatim, ignoring whitespace."""
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
    def _questions(self) -> frozenset[str]:
        sentences = ((words_of(text), text) for text in _SENTENCE.findall(self._question))
        return frozenset(
            " ".join(words) for words, text in sentences if words and (words[0] in ASKS or text[-1] in "?？")
        )

    @cached_property
    def _asked(self) -> frozenset[str]:
        return known_words([self._question])


class AnyText(KnownText):
    """Treats every word as known, for callers that have no question and no documents."""

    def has(self, word: str) -> bool:
        return True

    def in_documents(self, word: str) -> bool:
        return False

    def asks(self, text: str) -> bool:
        return True

    def asks_question(self, text: str) -> bool:
        return True

    def asked(self, words: Sequence[str]) -> bool:
        return True

    def has_run(self, words: Sequence[str]) -> bool:
        return True

    def without_documents(self) -> KnownText:
        return self

    def quotes(self, text: str) -> bool:
        return True


class KnownWords:
    """Looks up the words of one reply in ``known``, and in the word lists of ``table``."""

    def __init__(self, known: KnownText, table: HarmlessRules) -> None:
        self._known = known
        self._table = table

    def without_identifiers(self, folded: str) -> str:
        """Return ``folded`` without numbers that identify something, such as "Article 15", if they occur in the
        question or a document."""

        def known(found: re.Match[str]) -> str:
            return found[0].split()[0] if self._known.names(found[0]) else found[0]

        return _IDENTIFIED.sub(known, folded)

    def is_reference(self, text: str) -> bool:
        """Return whether ``text`` begins with a numbered reference ("Article 15 GDPR") and occurs in full in the
        question or a document."""
        return _IDENTIFIED.match(fold(text)) is not None and (self._known.asks(text) or self._known.quotes(text))

    def has_run(self, words: Sequence[str]) -> bool:
        """Return whether the question or a document contains ``words``, in order, the last one in any number."""
        return self._known.has_run(words)

    def states(self, words: Sequence[str]) -> bool:
        """Return whether a label with ``words`` states a fact or gives an instruction."""
        table = self._table
        if not words or words[0] in ASKS:
            return False
        if len(words) > 1 and words[0] in table.imperatives and words[1] not in table.heads:
            return True
        return not STATING.isdisjoint(words) or not DENYING.isdisjoint(words)

    def names_nothing_new(self, words: Iterable[str]) -> bool:
        """Return whether each word of a topic is known or a courtesy, and none is a number or a negation."""
        table = self._table
        return self.counts_nothing(words) and all(word in table.courteous or self.is_known(word) for word in words)

    def counts_nothing(self, words: Iterable[str]) -> bool:
        """Return whether none of ``words`` is a number or a negation."""
        return not any(any(map(str.isnumeric, word)) or word in _COUNTING for word in words)

    def knows(self, words: Sequence[str]) -> bool:
        """Return whether each of ``words`` is in the question or the documents, or is a function word. A word that
        counts or compares ("more") is a function word only before a word that states nothing ("more information")."""
        table = self._table
        return all(
            self.is_known(word)
            and (word not in table.quantities or self._known.has(word) or not table.uncounted.isdisjoint(after))
            for word, after in zip(words, [words[place : place + 2] for place in range(1, len(words) + 1)], strict=True)
        )

    def is_known(self, word: str) -> bool:
        return self._known.has(word) or self.is_function_word(word)

    def is_function_word(self, word: str) -> bool:
        """Return whether ``word`` names nothing, and neither counts nor denies anything."""
        if any(map(str.isnumeric, word)) or word in COUNTED:
            return False
        return (word in self._table.words and word not in DENYING) or (word in lexicon.STOP and word not in _LIMITING)


@lru_cache(maxsize=512)
def fold(text: str) -> str:
    """Return ``text`` in lower case, with plain apostrophes. Its length doesn't change."""
    return text.lower() if text.isascii() else text.translate(_LETTERS).lower()


@lru_cache(maxsize=512)
def bare(text: str) -> str:
    """Return ``text`` in lower case, without punctuation at either end."""
    folded = fold(text)
    begin = START.match(folded)
    start, end = begin.end() if begin else 0, len(folded)
    while end > start and (folded[end - 1].isspace() or folded[end - 1] in END_MARKS):
        end -= 1
    core = folded[start:end].rstrip("?？")
    return core if core.isprintable() and "  " not in core else _SPACES.sub(" ", core)
