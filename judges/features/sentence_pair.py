"""Comparisons of two aligned sentences, shared by several features: words, opposites, sides of a comparison."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from judges.features.alignment import SentencePair
from judges.features.numbers import Relation, relate
from judges.features.parsed_text import SEPARATOR, ParsedSentence
from judges.features.words.lexicon import OPPOSITES
from judges.features.words.stemming import lexeme

ALIKE: Final = 0.75
ANOTHER: Final = 0.4
"""The strength of a difference that may be due to two different things; too low to block by itself."""
_MOST_WORDS: Final = 300
"""More words than any real sentence has."""


def words_of(sentence: ParsedSentence) -> list[str]:
    """Return the sentence's words, with keys for quantities and an empty word at each end."""
    return sentence.run.split(SEPARATOR, _MOST_WORDS)


def has_word(sentence: ParsedSentence, words: Iterable[str]) -> bool:
    return any(f"{SEPARATOR}{word}{SEPARATOR}" in sentence.run for word in words)


def has_content(word: str) -> bool:
    return not word.startswith("#") and lexeme(word).weight == 1.0


def quantities_agree(pair: SentencePair) -> bool:
    return all(
        any(relate(quantity, other) is Relation.AGREE for _, other in pair.evidence.quantities)
        for _, quantity in pair.claim.quantities
    )


@lru_cache(maxsize=512)
def _with_opposites(run: str) -> tuple[tuple[int, str], ...]:
    """Return the words in a claim that have opposites, with their positions. Cached, because a claim is compared with
    many sentences."""
    words = run.split(SEPARATOR, _MOST_WORDS)
    return tuple((place, words[place]) for place in range(1, len(words) - 1) if words[place] in OPPOSITES)


def opposites(pair: SentencePair) -> list[tuple[str, str, int]]:
    """Return the words in the claim that the evidence replaces by their opposites, with the opposites and the
    positions."""
    placed = _with_opposites(pair.claim.run)
    if not placed:
        return []
    mine, theirs = words_of(pair.claim), words_of(pair.evidence)
    known = set(theirs)
    found: list[tuple[str, str, int]] = []
    for place, word in placed:
        if word not in known and not OPPOSITES[word].isdisjoint(known):
            between = mine[place - 1], mine[place + 1]
            for other in range(1, len(theirs) - 1):
                if theirs[other] in OPPOSITES[word] and (theirs[other - 1], theirs[other + 1]) == between:
                    found.append((word, theirs[other], place))
                    break
    return found


def crosswise(pair: SentencePair) -> bool:
    """Whether the two sides of a comparison are swapped."""
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return False
    before, after = sides(claim, claim.relation[2])
    first, second = sides(evidence, evidence.relation[2])
    return bool(before & second and after & first and not after & second)


def sides(sentence: ParsedSentence, place: int) -> tuple[set[str], set[str]]:
    left, right = set(sentence.keys[:place]), set(sentence.keys[place:])
    return left - right, right - left
