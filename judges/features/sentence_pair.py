"""Comparisons of two aligned sentences that several features use: words, opposites, sides of a comparison."""

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
"""The strength of a difference that may be that of two things: below what blocks by itself."""
_MOST_WORDS: Final = 300
"""More than any sentence has that somebody wrote."""


def words_of(sentence: ParsedSentence) -> list[str]:
    """Its words, quantities by their keys, with an empty one at each end."""
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
    """The words of a claim that have opposites, with their places: a claim is held against many sentences."""
    words = run.split(SEPARATOR, _MOST_WORDS)
    return tuple((place, words[place]) for place in range(1, len(words) - 1) if words[place] in OPPOSITES)


def opposites(pair: SentencePair) -> list[tuple[str, str, int]]:
    """The words of the claim in whose place the evidence has their opposites, with these and their places."""
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
    """Whether the sides of a comparison have changed places."""
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return False
    before, after = sides(claim, claim.relation[2])
    first, second = sides(evidence, evidence.relation[2])
    return bool(before & second and after & first and not after & second)


def sides(sentence: ParsedSentence, place: int) -> tuple[set[str], set[str]]:
    left, right = set(sentence.keys[:place]), set(sentence.keys[place:])
    return left - right, right - left
