"""Checks that an LLM's rewrite (a decomposed sentence or a corrected claim) uses only the words it was given."""

import re
from collections.abc import Sequence

from judges.text.bm25 import substance, terms

_NEGATIONS = frozenset(
    terms(
        "no not nor neither never none without cannot nicht kein keine keinen nie ohne ne pas jamais sans sin nunca ni"
    )
)
_FUNCTION_WORDS = frozenset(
    terms(
        "which that who whom whose while whereas however where when because since also they their them this these "
        "those there with from into and but both each such then were have been has had does did being will would "
        "und aber welche welcher welches während jedoch sich wurde wurden wird werden sind sein ihre ihrer diese "
        "dieser dieses sowie auch dabei haben hatte qui que dont tandis cependant mais elle elles ils sont était "
        "étaient cette leur leurs avec ainsi également cual cuales mientras pero ellos ellas está esta este estos "
        "sus fueron también"
    )
)
"""Words that may occur in a sentence but not in its parts, or vice versa."""

_MAX_NEW_WORDS = 0.25
"""Maximum share of a correction's words that may be new, such as inflected forms and connectives."""


_TOKEN = re.compile(r"\w+|[^\w\s]")
_END = re.compile(r"[.!?…\s]+\Z")
_CONJUNCTION = re.compile(
    r";|and|but|while|whereas|however|und|aber|während|jedoch|et|mais|tandis|y|pero|mientras", re.IGNORECASE
)
"""A word between two clauses. A relative pronoun isn't one, because its clause is about the word before it."""
_MAX_TOKENS = 200
"""Longer sentences are not split, because the time to find the parts grows faster than the length."""


def places_of_parts(parts: Sequence[str], text: str) -> Sequence[int] | None:
    """Return the positions in ``text`` at which ``parts`` begin, or None if they aren't its parts.

    A part is a clause of ``text``, or several, word for word. The beginning of ``text``, such as its subject, may be
    repeated before it. Together, the parts must contain all words, except conjunctions.
    """
    tokens = list(_TOKEN.finditer(_END.sub("", text)))
    words = [token[0].casefold() for token in tokens]
    written = [_TOKEN.findall(_END.sub("", part).casefold()) for part in parts]
    if len(words) > _MAX_TOKENS or max(map(len, written)) > len(words):
        return None
    left = {place for place, word in enumerate(words) if not _joins(word)}
    begin: list[int] = []
    for part in written:
        found = _place(part, words)
        if found is None:
            return None
        repeated, start = found
        left.difference_update(range(repeated), range(start, start + len(part) - repeated))
        begin.append(0 if repeated else tokens[start].start())
    return None if left else begin


def _place(part: Sequence[str], words: Sequence[str]) -> tuple[int, int] | None:
    """Return how many words at the beginning of ``words`` are repeated in ``part``, and the place of its clause. If
    there are several possibilities, the fewest repeated words and the latest clause count."""
    starts = [place for place in range(len(words)) if place == 0 or _CONJUNCTION.fullmatch(words[place - 1])]
    for repeated in range(len(part)):
        clause = part[repeated:]
        for start in reversed(starts):
            end = start + len(clause)
            if repeated <= start and words[start:end] == clause and (end == len(words) or _joins(words[end])):
                return repeated, start
        if words[repeated] != part[repeated]:
            break
    return None


def _joins(word: str) -> bool:
    """Return whether ``word`` may be missing in the parts."""
    return word == "," or _CONJUNCTION.fullmatch(word) is not None


def _is_content(term: str) -> bool:
    return substance(term) == 1.0 and term not in _FUNCTION_WORDS and term not in _NEGATIONS


def uses_only_words_of(text: str, *given: str) -> bool:
    """Return whether all numbers and most words of ``text`` occur in ``given``."""
    known = {term for source in given for term in terms(source)}
    new = [term for term in set(terms(text)) if term not in known]
    if any(ch.isdecimal() for term in new for ch in term):
        return False
    words = [term for term in set(terms(text)) if _is_content(term)]
    return sum(map(_is_content, new)) <= max(1, int(_MAX_NEW_WORDS * len(words)))
