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
_END = ".!?… \t\n"
_CONJUNCTIONS = "and|but|while|whereas|however|und|aber|während|jedoch|et|mais|tandis|y|pero|mientras"
"""Words between two clauses. Relative pronouns aren't included, because a relative clause is about the word before
it."""
_BETWEEN = re.compile(rf";|[,;]? ?(?:{_CONJUNCTIONS}) ?,?")
"""The text between two clauses. Capitalised words don't match, because only the first word of a sentence is
capitalised."""
_MAY_BE_MISSING = frozenset([",", ";", *_CONJUNCTIONS.split("|")])
"""What an LLM may leave out between parts. Each part is cut from the sentence, so nothing within a part is lost."""


def spans_of_parts(parts: Sequence[str], text: str) -> Sequence[tuple[int, int]] | None:
    """Return the start and end of each of ``parts`` in ``text``, or None if they aren't the parts of ``text``.

    The parts must contain all words of ``text``, in order, except conjunctions. They may not repeat anything, because a
    part with a repeated beginning can be about another subject, or lack a negation or restriction. ``text`` is cut only
    before conjunctions and semicolons, and loses nothing else.
    """
    tokens = [token for token in _TOKEN.finditer(text.rstrip(_END)) if token[0].casefold() not in _MAY_BE_MISSING]
    words = [token[0].casefold() for token in tokens]
    starts, ends, place = [0], [], 0
    for part in parts:
        clause = [word for word in _TOKEN.findall(part.rstrip(_END).casefold()) if word not in _MAY_BE_MISSING]
        if not clause or words[place : place + len(clause)] != clause:
            return None
        if place:
            start, end = tokens[place - 1].end(), tokens[place].start()
            if not _BETWEEN.fullmatch(" ".join(text[start:end].split())):
                return None
            ends.append(start)
            starts.append(end)
        place += len(clause)
    return list(zip(starts, [*ends, len(text)], strict=True)) if place == len(words) else None


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
