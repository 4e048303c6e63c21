"""Recognises labels: headings, table headers and lead-ins that name things without stating anything."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from judges.claims.known_text import AND, ASKS, COUNTED, DEGREE, END_MARKS, KnownWords, fold
from judges.features.numbers import vocabulary
from judges.features.words import lexicon
from judges.features.words.document_text import words_of
from judges.text.fragments import has_symbol
from judges.text.languages.rules import STATING, HarmlessRules

_NUMBERING: Final = re.compile(
    r"\A(?:\d{1,2}(?:\.\d{1,2}){0,3}[.)]|[ivx]{1,5}[.)]|[a-z][.)])\s+(?=(?P<next>[^\W\d_]+))"
)
_UNITS: Final = frozenset({*vocabulary.UNITS, *vocabulary.PERIODS, *vocabulary.CURRENCIES, *vocabulary.SCALES}) | {
    *vocabulary.PERCENT,
    *vocabulary.POINTS,
    *vocabulary.HOW_OFTEN,
}
_LEAD: Final = re.compile(
    r" (?:is|are|was|were|ist|sind|war|waren|lautet|lauten|est|sont|es|son)\Z|\A(?:[^\W\d_]+) (?=.* like this\Z)"
)
"""Matches the verb of a lead-in: the last word ("The steps are") or, if the lead-in ends with "like this", the first
word ("Run it like this")."""
_COLON: Final = re.compile(r"[:：]\s*\Z")
_BREAK: Final = re.compile(r"[,;:(–—]")
_APART: Final = re.compile(r"[^\w\s,/&'’.:-]+|(?<!\w)['’._:-]+|['’._:-]+(?!\w)|[,/&]")
"""Punctuation between words, except inside a word ("faq.pdf"). Commas, slashes and "&" may separate the items of a
list."""
_LISTING: Final = ",/&"
_AND_OR: Final = frozenset(["and", "or", "und", "oder", "et", "ou", "y", "o"])
_OPEN: Final = re.compile(
    r" (?:with|by|for|to|from|in|on|at|of|as|if|when|includes?|covers?|needs?|says?|states?|the following|as follows"
    r"|(?:these|this|the following) (?P<thing>\w+))\Z"
)
"""The end of a lead-in that is incomplete without the list below it."""
_GIVEN: Final = frozenset(["how", "why", "wie", "warum", "comment", "pourquoi", "cómo"])
"""Question words that presuppose the rest of the question."""
_WHY: Final = frozenset(["why", "warum", "pourquoi"])
_MAX_LABEL_WORDS: Final = 16
_MAX_WORD: Final = 64
_STAGES: Final = frozenset(["option", "point", "punkt", "opción", "opciones", "punto"])
"""Words after an ordinal that, like the words for parts of a reply, name nothing ("Third option")."""
_SHARES_LISTED = "half quarter quarters thirds eighths halb halbe viertel drittel demi quart medio cuarto"
_SHARES: Final = frozenset(_SHARES_LISTED.split())


class Labels:
    """Recognises the labels of one reply."""

    def __init__(self, words: KnownWords, table: HarmlessRules) -> None:
        self._words = words
        self._table = table

    def is_label(self, text: str, folded: str) -> bool:
        """Return whether ``text``, which is ``folded`` without punctuation and numbering, contains only function words
        and words from the question or the documents."""
        if has_symbol(text):
            return False
        bare = self._words.without_identifiers(_LEAD.sub("", AND.sub("", folded)))
        words = words_of(bare)
        if len(words) > _MAX_LABEL_WORDS or self._tells(bare, is_lead_in=_COLON.search(text) is not None):
            return False
        if any(map(self._counts, ["", *words], words, [*words[1:], ""])) or not self._words.knows(words):
            return False
        named = text.strip(END_MARKS + " ")
        numbering = _NUMBERING.match(fold(named))
        is_numbered = numbering is not None and not folded.startswith(numbering[0])
        named = named[numbering.end() :] if numbering and is_numbered else named
        end = _OPEN.search(fold(named)) if _COLON.search(text) else None
        return not self._equates(named[: end.start()] if end else named)

    def heads_side_by_side(self, cells: Sequence[str]) -> bool:
        """Return whether the header of a table puts two names next to each other ("Deadline for Anna", "Monday")."""
        first, *others = [[word for word in words_of(cell) if self._is_open(word)] for cell in cells]
        return bool(first) and any(others)

    def _is_open(self, word: str) -> bool:
        return word not in self._table.words and self._table.names(word)

    def _counts(self, before: str, word: str, after: str) -> bool:
        """Return whether ``word`` is a number or a share of something. An ordinal isn't if it is the whole
        label or numbers a part of the reply ("second step"). Neither are an ordinal and the word after it, if they
        occur together in the question or a document ("third quarter")."""
        if word in vocabulary.ORDINAL_WORDS:
            is_alone = not before and not after
            return not (is_alone or after in self._table.parts | _STAGES or self._words.has_run([word, after]))
        if before in vocabulary.ORDINAL_WORDS and self._words.has_run([before, word]):
            return False
        is_share = word in _SHARES or (word.endswith("fold") and len(word) > len("fold"))
        return any(map(str.isnumeric, word)) or word in COUNTED or is_share

    def _tells(self, bare: str, *, is_lead_in: bool) -> bool:
        """Return whether a part of a label states something, or is an instruction or an answer. The end of a lead-in is
        ignored if the list below completes it."""
        parts = [words_of(part) for part in _BREAK.split(bare)]
        last = parts[-1][-1:]
        if any(map(self._words.states, parts)) or (len(parts[-1]) > 1 and self._table.infinitives.issuperset(last)):
            return True
        if is_lead_in and (end := _OPEN.search(bare)) and (not end["thing"] or end["thing"] in self._table.words):
            parts = [words_of(part) for part in _BREAK.split(bare[: end.start()])]
        if any(map(self._is_clause, parts)):
            return True
        if parts[0][:1] and parts[0][0] in ASKS:
            return any(part and part[0] not in ASKS for part in parts[1:])
        return any(len(part) == 1 and self._describes(part[0]) for part in parts[1:])

    def _equates(self, text: str) -> bool:
        """Return whether a label puts two names next to each other, so that one describes the other: "Medicine: water",
        "Deadline (Monday)", "Ben, the manager", "Deadline Monday". Two cases don't count: a run of words that occurs in
        the question or a document, and a reference that occurs in the documents ("Right of access (Article 15
        GDPR)")."""
        parts = [part.strip() for part in self._sides(text)]
        named = [part for part in parts if not self._words.is_reference(part) and self._has_name(part)]
        if len(named) > 1 and not self._words.has_run(words_of(text)):
            return True
        unknown = (part for part in parts if not self._words.is_reference(part))
        return any(self._is_beside(one, other) for part in unknown for one, other in self._neighbours(part))

    def _sides(self, text: str) -> list[str]:
        """Return the parts of a label between punctuation that doesn't separate the items of a list."""
        cuts = [found for found in _APART.finditer(text) if not self._lists(found[0], text[found.end() :])]
        ends = [*(found.start() for found in cuts), len(text)]
        return [text[start:end] for start, end in zip([0, *(found.end() for found in cuts)], ends, strict=True)]

    def _lists(self, mark: str, after: str) -> bool:
        """Return whether a name or "and" follows a ``mark`` that separates the items of a list."""
        follows = words_of(after[:_MAX_WORD])[:1]
        return mark in _LISTING and (not follows or follows[0] in _AND_OR or self._table.names(follows[0]))

    def _has_name(self, part: str) -> bool:
        return any(word not in self._table.parts and word not in lexicon.STOP for word in words_of(fold(part)))

    def _neighbours(self, part: str) -> Iterator[tuple[str, str]]:
        """Yield the pairs of names without a function word or a mark of a list between them."""
        for item in re.split(f"[{_LISTING}]", fold(part)):
            words = words_of(self._words.without_identifiers(item))
            yield from (
                (one, other) for one, other in pairwise(words) if self._table.names(one) and self._table.names(other)
            )

    def _is_beside(self, one: str, other: str) -> bool:
        """Return whether two neighbouring names aren't known to be one name. A name may consist of a word and a general
        noun ("refund timeline")."""
        table = self._table
        general = other in table.words or other in table.parts or one in table.parts
        return not general and not self._words.has_run([one, other])

    def _describes(self, word: str) -> bool:
        return word in self._table.predicates or word.endswith("ed")

    def _is_clause(self, words: Sequence[str]) -> bool:
        """Return whether a part of a label is a clause. A question counts as a clause only if it presupposes
        something."""
        table = self._table
        if not words or words[0] not in ASKS:
            return table.is_clause(words)
        asked = [word for word in words[1:] if word not in STATING]
        inverted = words[1:2] != asked[:1]
        if len(asked) + 1 < len(words) and words[0] in _GIVEN and not DEGREE.match(f" {words[1]}"):
            return not inverted or words[0] in _WHY
        return not inverted and not table.words.issuperset(asked) and table.is_clause(asked)


def without_ordinal(folded: str) -> str:
    """Return ``folded`` without the number of a heading ("1. Refunds"). A number before a unit counts something."""
    found = _NUMBERING.match(folded)
    return folded[found.end() :] if found and found["next"] not in _UNITS else folded
