"""Whether what an LLM wrote keeps to the words it was given: its parts of a sentence, its correction of a claim."""

from collections.abc import Sequence

from judges.text.bm25 import substance, terms

_NEGATIONS = frozenset(
    terms(
        "no not nor neither never none without cannot nicht kein keine keinen nie ohne ne pas jamais sans sin nunca ni"
    )
)
_FREE = frozenset(
    terms(
        "which that who whom whose while whereas however where when because since also they their them this these "
        "those there with from into and but both each such then were have been has had does did being will would "
        "und aber welche welcher welches während jedoch sich wurde wurden wird werden sind sein ihre ihrer diese "
        "dieser dieses sowie auch dabei haben hatte qui que dont tandis cependant mais elle elles ils sont était "
        "étaient cette leur leurs avec ainsi également cual cuales mientras pero ellos ellas está esta este estos "
        "sus fueron también"
    )
)
"""Words that a sentence needs and its parts may not, or the other way round."""

_MOST_NEW = 0.25
"""The share of a correction's words that may be new: forms of words, and what joins them."""


def is_faithful(parts: Sequence[str], text: str, context: str) -> bool:
    """Whether ``parts`` say what ``text`` says and no more, by their words: none that matters is lost or new, and no
    negation goes."""
    told = terms(text)
    kept = [term for part in parts for term in terms(part)]
    if any(_matters(term) for term in set(told) - set(kept)):
        return False
    if any(_matters(term) for term in set(kept) - set(told) - set(terms(context))):
        return False
    before, after = (sum(term in _NEGATIONS for term in words) for words in (told, kept))
    return after >= before if before else not after


def _matters(term: str) -> bool:
    return substance(term) == 1.0 and term not in _FREE and term not in _NEGATIONS


def is_drawn_from(text: str, *given: str) -> bool:
    """Whether ``text`` is made of what was ``given``: every number of it, and most of its words."""
    known = {term for source in given for term in terms(source)}
    new = [term for term in set(terms(text)) if term not in known]
    if any(ch.isdecimal() for term in new for ch in term):
        return False
    words = [term for term in set(terms(text)) if _matters(term)]
    return sum(map(_matters, new)) <= max(1, int(_MOST_NEW * len(words)))
