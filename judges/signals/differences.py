"""How a claim differs in roles and in reach from a sentence that is otherwise much like it. Each function returns its
strength, 0 to 1."""

from collections.abc import Sequence
from typing import Final

from judges.signals.alignment import Pair, share_of
from judges.signals.beside import ALIKE, crosswise, has_word, sides, words_of
from judges.signals.lexicon import DEGREES, EXCLUSIVES, PERMITTING
from judges.signals.prepared import Sentence

_FEWEST: Final = 3
"""Keys of a sentence that another one can be of one build with."""


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
    claim, evidence = pair.claim, pair.evidence
    hedged = evidence.hedged and not claim.hedged and not has_word(claim, PERMITTING)
    if claim.quantifier > evidence.quantifier > 0 or hedged:
        return 1.0
    for stronger, said in EXCLUSIVES:
        if _excludes(claim, stronger) and not has_word(evidence, said):
            return 1.0
    return 0.5 if evidence.conditions > claim.conditions else 0.0
