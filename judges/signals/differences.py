"""How a claim differs in roles and in reach from a sentence that is otherwise much like it. Each function returns its
strength, 0 to 1."""

from collections.abc import Iterator, Sequence
from typing import Final

from judges.signals.alignment import Pair, share_of
from judges.signals.beside import ALIKE, crosswise, has_content, has_word, sides, words_of
from judges.signals.lexemes import lexeme
from judges.signals.lexicon import (
    AHEAD,
    BETWEEN,
    DEGREES,
    EXCLUSIVES,
    FUTURE,
    IRREGULAR,
    PERFECT,
    PERMITTING,
    PRESENT,
    QUANTIFIERS,
    UNIVERSAL,
)
from judges.signals.prepared import Sentence

_FEWEST: Final = 3
"""Keys of a sentence that another one can be of one build with."""
SURELY: Final = 0.5
"""What an overclaim is above that keeps a claim from being said by the evidence, however alike the two are."""
_BOUNDED: Final = 0.65
_HEDGED: Final = 0.35
_CONDITIONED: Final = 0.3
_ARTICLES: Final = frozenset(("the", "a", "an", "of", "our", "your", "its", "their", "die", "der", "das", "les", "los"))
_MODIFIERS: Final = 3
"""Words at the beginning of a sentence that can narrow what it is about."""


def roles_swapped(pair: Pair) -> float:
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return 0.0
    if pair.coverage <= ALIKE:
        return 0.0
    same = claim.relation[1] == evidence.relation[1]
    if crosswise(pair):
        return 1.0 if same and _compared_alike(pair) else 0.0
    before, after = sides(claim, claim.relation[2])
    first, second = sides(evidence, evidence.relation[2])
    straight = bool(before & first and after & second and not after & first)
    whole = share_of(evidence.weights, claim.weights) >= ALIKE
    alike = whole and len(claim.negations) == len(evidence.negations)
    return 1.0 if straight and not same and alike and _compared_alike(pair) else 0.0


def _compared_alike(pair: Pair) -> bool:
    """Whether what the two say of their sides is known to be the same or the opposite: not of wider and narrower."""
    mine, theirs = (
        {word for word in words_of(sentence) if word.endswith("er") or word in DEGREES}
        for sentence in (pair.claim, pair.evidence)
    )
    return mine == theirs or (mine | theirs) <= DEGREES.keys()


def crossed(pairs: Sequence[Pair]) -> bool:
    """Two sentences of one build, each with another single word than the claim: A does X and B does Y, told as A does
    Y."""
    odd = [found for pair in pairs if (found := _odd_word(pair))]
    return any(one != other for one in odd for other in odd)


def _odd_word(pair: Pair) -> str | None:
    """The one word of the claim in whose place this sentence has another."""
    if (
        len(pair.claim.keys) < _FEWEST
        or len(pair.anchors) != len(pair.claim.keys) - 1
        or len(pair.claim.keys) != len(pair.evidence.keys)
    ):
        return None
    mine = [key for key in pair.claim.keys if key not in pair.evidence.keys]
    theirs = [key for key in pair.evidence.keys if key not in pair.claim.keys]
    return mine[0] if len(mine) == len(theirs) == 1 else None


def _excludes(claim: Sentence, stronger: Sequence[str]) -> bool:
    """Whether it has such a word, and not as a remark on an amount ("only two weeks")."""
    if not has_word(claim, stronger):
        return False
    words = words_of(claim)
    return any(word in stronger and not words[place + 1].startswith("#") for place, word in enumerate(words))


def overclaims(pair: Pair) -> float:
    """1 where the claim surely says more: of all for some, of a whole for a named part, of a plan as done. Less for a
    word that bounds, and for hedges and conditions, which are often those of something else in the sentence."""
    claim, evidence = pair.claim, pair.evidence
    if claim.quantifier > evidence.quantifier > 0 or _widened(pair) or _told_as_done(pair):
        return 1.0
    for stronger, said in EXCLUSIVES:
        if _excludes(claim, stronger) and not has_word(evidence, said):
            return _BOUNDED
    if evidence.hedged and not claim.hedged and not has_word(claim, PERMITTING):
        return _HEDGED
    return _CONDITIONED if evidence.conditions > claim.conditions else 0.0


def _widened(pair: Pair) -> bool:
    """ "All users" where the evidence begins with "premium users"."""
    claim, evidence = pair.claim, pair.evidence
    if claim.quantifier < UNIVERSAL or evidence.quantifier:
        return False
    mine = [word for word in words_of(claim)[1:] if word not in _ARTICLES]
    if len(mine) < 3 or QUANTIFIERS.get(mine[0]) != UNIVERSAL or not has_content(mine[1]):
        return False
    head = lexeme(mine[1]).key
    theirs = [word for word in words_of(evidence)[1:] if word not in _ARTICLES][: _MODIFIERS + 1]
    place = next((place for place, word in enumerate(theirs) if lexeme(word).key == head), 0)
    return place > 0 and all(has_content(word) and lexeme(word).key not in claim.weights for word in theirs[:place])


def _told_as_done(pair: Pair) -> bool:
    """ "Opened" where the evidence says that somebody plans to open, or will."""
    claim, evidence = pair.claim, pair.evidence
    if not has_word(evidence, AHEAD) or has_word(claim, AHEAD) or claim.negations:
        return False
    mine, theirs = words_of(claim), words_of(evidence)
    done = {lexeme(word).key for place, word in enumerate(mine) if _past(mine, place)}
    ahead = {lexeme(theirs[place]).key for place in _places_ahead(theirs)}
    before = {lexeme(word).key for place, word in enumerate(theirs) if _past(theirs, place)}
    return bool((done & ahead) - before - {""})


def _past(words: Sequence[str], place: int) -> bool:
    """Whether it is said to have happened, as far as forms tell: not "is opened", which may be a habit."""
    word, before = words[place], words[max(0, place - 2) : place]
    if any(auxiliary in PRESENT for auxiliary in before):
        return False
    regular = word.endswith("ed") and not word.endswith("eed") and words[place - 1] not in _ARTICLES
    return regular or word in IRREGULAR or any(auxiliary in PERFECT for auxiliary in before)


def _places_ahead(words: Sequence[str]) -> Iterator[int]:
    """Where a sentence says what will be or shall be done."""
    for place, word in enumerate(words):
        if word in AHEAD:
            at = place + 1
            if word not in FUTURE:
                at = next((to + 1 for to in range(at, min(at + 3, len(words))) if words[to] == "to"), len(words))
            while at < len(words) and words[at] in BETWEEN:
                at += 1
            if at < len(words):
                yield at
