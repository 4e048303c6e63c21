"""Checks that an LLM's rewrite (a decomposed sentence or a corrected claim) uses only the words it was given."""

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


def is_faithful(parts: Sequence[str], text: str, context: str) -> bool:
    """Return whether ``parts`` have the same content as ``text``, which means that no content word or number is lost or
    added, and no negation is lost. Words from ``context`` may be added.
    """
    original = terms(text)
    kept = [term for part in parts for term in terms(part)]
    if any(_is_content(term) for term in set(original) - set(kept)):
        return False
    if any(_is_content(term) for term in set(kept) - set(original) - set(terms(context))):
        return False
    before, after = (sum(term in _NEGATIONS for term in words) for words in (original, kept))
    return after >= before if before else not after


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
