"""Recognises labels: headings, table headers and lead-ins that name things without stating anything."""

import re
from collections.abc import Sequence
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
_BESIDE: Final = re.compile(
    r"[:(\[–—]|\s-+\s|,\s+(?=(?:an?|the|our|your|my|his|her|its|their|de[nrms]|die|das|eine?|une?|l[aeo]s?|un[ao]s?|el)\b)",
    re.IGNORECASE,
)
"""Punctuation between two names, one of which describes the other: a colon, a bracket, a dash, or a comma before a
determiner."""
_OPEN: Final = re.compile(
    r" (?:with|by|for|to|from|in|on|at|of|as|if|when|includes?|covers?|needs?|says?|states?|the following|as follows"
    r"|(?:these|this|the following) (?P<thing>\w+))\Z"
)
"""The end of a lead-in that is incomplete without the list below it."""
_GIVEN: Final = frozenset(["how", "why", "wie", "warum", "comment", "pourquoi", "cómo"])
"""Question words that presuppose the rest of the question."""
_WHY: Final = frozenset(["why", "warum", "pourquoi"])
_MAX_LABEL_WORDS: Final = 16


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
        counts = any(word[0].isdigit() or word in COUNTED for word in words)
        return not counts and not self._equates(text.strip(END_MARKS + " ")) and self._words.knows(words)

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
        "Deadline (Monday)", "Ben, the manager". A reference that occurs in the documents in the same form doesn't
        count: "Right of access (Article 15 GDPR)"."""
        found = _BESIDE.search(text)
        return found is not None and all(
            not self._words.is_reference(side.strip())
            and any(word not in self._table.parts and word not in lexicon.STOP for word in words_of(fold(side)))
            for side in (text[: found.start()], text[found.end() :])
        )

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
