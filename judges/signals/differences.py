"""How a claim differs from a sentence that is otherwise much like it. Each function returns its strength, 0 to 1."""

from collections.abc import Container, Sequence
from difflib import SequenceMatcher
from itertools import combinations
from typing import Final

from judges.numbers import Kind, Quantity, Relation, compare_quantities, relate
from judges.signals.alignment import Pair, gap, share_of, touched
from judges.signals.lexemes import lexeme
from judges.signals.lexicon import EXCLUSIVES, OPPOSITES
from judges.signals.prepared import NAMING, Sentence

_ALIKE: Final = 0.75
_REPLACED_IN: Final = 0.6
"""The least of a claim that a sentence has of it otherwise."""
_SEPARATOR: Final = "\x1f"
UNIVERSAL: Final = 4
"""The quantifiers that allow no exception."""


def _frame_strength(pair: Pair) -> float:
    """How surely the two sentences are about the same thing."""
    if pair.lacking == 0 and (pair.shared or _names_same(pair)):
        return 1.0
    if pair.shared == pair.lacking == 0 and pair.claim.leans:
        return 0.5
    return 0.5 if pair.coverage >= 0.8 and pair.lacking <= 1 else 0.0


def _names_same(pair: Pair) -> bool:
    keys = pair.evidence.keys
    return any(quantity.kind in NAMING and quantity.key in keys for _, quantity in pair.claim.quantities)


def quantity_differs(pair: Pair) -> tuple[float, str | None]:
    mine, theirs = pair.claim.quantities, pair.evidence.quantities
    if not mine or not theirs:
        return 0.0, None
    strength = _frame_strength(pair)
    if not strength:
        return 0.0, None
    open_, taken = [], set()
    for place, quantity in mine:
        agreeing = [other for other, theirs_ in theirs if relate(quantity, theirs_) is Relation.AGREE]
        taken.update(agreeing)
        if not agreeing:
            open_.append((place, quantity))
    free = [(place, other) for place, other in theirs if place not in taken]
    best, detail = 0.0, None
    for place, quantity in open_:
        sure, other = _counterpart(pair, place, quantity, free)
        if other is not None and sure * strength > best:
            best, detail = sure * strength, f"{quantity.text} where the source says {other.text}"
    return best, detail


def _counterpart(
    pair: Pair, place: int, quantity: Quantity, free: Sequence[tuple[int, Quantity]]
) -> tuple[float, Quantity | None]:
    """The evidence's quantity that stands for the claim's, and how surely."""
    low, high = gap(pair.anchors, place, len(pair.evidence.keys))
    if quantity.kind is Kind.POINTS:
        found = compare_quantities([quantity], [other for _, other in pair.evidence.quantities]).findings[0]
        return (0.9 if found.relation is Relation.DIFFER else 0.0), found.other
    differing = [(at, other) for at, other in free if relate(quantity, other) is Relation.DIFFER]
    for at, other in differing:
        if low <= at < high:
            return 1.0, other
    if differing:
        return (0.9 if len(differing) == 1 else 0.4), differing[0][1]
    for at, other in free:
        anchored = (place - 1, at - 1) in pair.anchors
        if (
            anchored
            and low <= at < high
            and other.kind is not quantity.kind
            and pair.lacking == 0
            and _amount(quantity, other)
            and not _unit_left_out(quantity, other)
        ):
            return 1.0, other
    return 0.0, None


def _unit_left_out(one: Quantity, other: Quantity) -> bool:
    """ "43 or 44 years old" and "43 years old"."""
    bare, full = (one, other) if one.kind is Kind.NUMBER else (other, one)
    return bare.kind is Kind.NUMBER and f" {bare.text} " in f" {full.text} "


def _amount(quantity: Quantity, other: Quantity) -> bool:
    amounts = (Kind.NUMBER, Kind.PERCENT, Kind.POINTS, Kind.MONEY, Kind.MEASURE)
    return quantity.kind in amounts and other.kind in amounts


def _agrees(pair: Pair) -> bool:
    return all(
        any(relate(quantity, other) is Relation.AGREE for _, other in pair.evidence.quantities)
        for _, quantity in pair.claim.quantities
    )


def polarity_differs(pair: Pair) -> float:
    claim, evidence = pair.claim, pair.evidence
    denied = evidence.quantifier == UNIVERSAL and pair.lacking == 1 and claim.signs.keys() & evidence.signs.keys()
    if (
        (pair.lacking and not denied)
        or pair.coverage < 0.7
        or claim.weight < 1.3
        or (claim.quantities and not _agrees(pair))
    ):
        return 0.0
    clauses = touched(evidence, pair.anchors)
    sign = -1 if (len(claim.negations) + sum(clause in clauses for clause in evidence.negations)) % 2 else 1
    for key, places in claim.signs.items():
        if key in evidence.signs:
            sign *= places[0][1] * _sign_near(evidence, evidence.signs[key], set(claim.keys[places[0][0] + 1 :]))
    if sign >= 0:
        return 0.0
    clause_keys = {key for key, clause in zip(evidence.keys, evidence.clauses, strict=True) if clause in clauses}
    clause_weights = {key: weight for key, weight in evidence.weights.items() if key in clause_keys}
    if claim.quantifier == UNIVERSAL or share_of(clause_weights, claim.weights) >= 0.6:
        return 1.0
    return 0.4


def opposed(pair: Pair) -> bool:
    """A word stands between the same neighbours as its opposite does: a third more, and a third less."""
    if pair.lacking > 1 or pair.coverage < 0.7:
        return False
    mine, theirs = pair.claim.run.split(_SEPARATOR), pair.evidence.run.split(_SEPARATOR)
    known = set(theirs)
    for place, word in enumerate(mine[1:-1], start=1):
        if word in OPPOSITES and word not in known and not OPPOSITES[word].isdisjoint(known):
            between = mine[place - 1], mine[place + 1]
            for other in range(1, len(theirs) - 1):
                if theirs[other] in OPPOSITES[word] and (theirs[other - 1], theirs[other + 1]) == between:
                    return True
    return False


def _sign_near(evidence: Sentence, places: Sequence[tuple[int, int]], keys: set[str]) -> int:
    """The sign of a concept in the evidence; of both, that of the place nearest to what follows it in the claim."""
    if len(places) == 1:
        return places[0][1]
    positions = [position for position, key in enumerate(evidence.keys) if key in keys]
    return min(places, key=lambda place: sum(abs(place[0] - position) for position in positions))[1]


def roles_swapped(pair: Pair) -> float:
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return 0.0
    if pair.coverage < _ALIKE:
        return 0.0
    before, after = _sides(claim, claim.relation[2])
    first, second = _sides(evidence, evidence.relation[2])
    same = claim.relation[1] == evidence.relation[1]
    if before & second and after & first and not after & second:
        return 1.0 if same else 0.0
    straight = bool(before & first and after & second and not after & first)
    return 1.0 if straight and not same and len(claim.negations) == len(evidence.negations) else 0.0


def numbers_exchanged(pair: Pair) -> float:
    """Two quantities beside each other's words: 60 % bonds and 40 % shares for 60 % shares and 40 % bonds."""
    if pair.coverage < _ALIKE or min(len(pair.claim.quantities), len(pair.evidence.quantities)) < 2:
        return 0.0
    if len(pair.anchors) == len(pair.claim.keys):  # all of it stands there in its order
        return 0.0
    for step in (1, -1):
        mine, theirs = _beside(pair.claim, step), _beside(pair.evidence, step)
        for one, other in combinations(sorted(mine.keys() & theirs.keys()), 2):
            if mine[one] != mine[other] and (mine[one], mine[other]) == (theirs[other], theirs[one]):
                return 1.0
    return 0.0


def _beside(sentence: Sentence, step: int) -> dict[str, str]:
    """What stands one ``step`` from each quantity that the sentence has once; the period of a rate may be left out."""
    keys = [key.partition("/")[0] for key in sentence.keys]
    return {
        keys[place]: keys[place + step]
        for place, _ in sentence.quantities
        if 0 <= place + step < len(keys) and keys.count(keys[place]) == 1
    }


def _sides(sentence: Sentence, place: int) -> tuple[set[str], set[str]]:
    left, right = set(sentence.keys[:place]), set(sentence.keys[place:])
    return left - right, right - left


def crossed(pairs: Sequence[Pair]) -> bool:
    """Two sentences of one build, each with another single word than the claim: A does X and B does Y, told as A does
    Y."""
    odd = [found for pair in pairs if (found := _odd_word(pair))]
    return any(one != other for one in odd for other in odd)


def _odd_word(pair: Pair) -> str | None:
    """The one word of the claim in whose place this sentence has another."""
    if len(pair.anchors) != len(pair.claim.keys) - 1 or len(pair.claim.keys) != len(pair.evidence.keys):
        return None
    mine = [key for key in pair.claim.keys if key not in pair.evidence.keys]
    theirs = [key for key in pair.evidence.keys if key not in pair.claim.keys]
    return mine[0] if len(mine) == len(theirs) == 1 else None


def name_differs(pair: Pair) -> tuple[float, str | None]:
    """The last word is another letter or name after the same word: gate C for gate B."""
    claim, evidence = pair.claim, pair.evidence
    if len(claim.keys) < 3 or len(pair.anchors) != len(claim.keys) - 1 or pair.anchors[-1][0] != len(claim.keys) - 2:
        return 0.0, None
    mine, place = claim.keys[-1], pair.anchors[-1][1] + 1
    if place >= len(evidence.keys):
        return 0.0, None
    theirs = evidence.keys[place]
    if mine[0] == "#" or theirs[0] == "#" or theirs in claim.weights:
        return 0.0, None
    letters = mine.endswith(".") and theirs.endswith(".")
    named = mine in claim.names and theirs in evidence.names and len(evidence.keys) == len(claim.keys)
    if not letters and not named:
        return 0.0, None
    written = claim.names.get(mine, mine), evidence.names.get(theirs, theirs)
    return (1.0 if letters else 0.5), f"{written[0]} where the source says {written[1]}"


def replaced(pair: Pair) -> tuple[str, str] | None:
    """The one word of content that the claim has between the same neighbours as the evidence has another one, and that
    other."""
    if pair.lacking != 1 or pair.coverage < _REPLACED_IN:
        return None
    mine, theirs = pair.claim.run.split(_SEPARATOR), pair.evidence.run.split(_SEPARATOR)
    for place in range(1, len(mine) - 1):
        word = mine[place]
        if word in theirs or not _has_content(word):
            continue
        for other in range(1, len(theirs) - 1):
            same_place = theirs[other - 1] == mine[place - 1] and theirs[other + 1] == mine[place + 1]
            if same_place and theirs[other] not in mine and _has_content(theirs[other]):
                return word, theirs[other]
    return None


def _has_content(word: str) -> bool:
    return not word.startswith("#") and lexeme(word).weight == 1.0


def name_replaced(pair: Pair, words: tuple[str, str], known: Container[str]) -> tuple[float, str | None]:
    """One name in the place of another, surely if the claim's is none of the ``known`` words of the evidence. Two
    spellings or an abbreviation are no other name."""
    mine, theirs = (lexeme(word).key for word in words)
    if mine not in pair.claim.names or theirs not in pair.evidence.names or _spelled_alike(*words):
        return 0.0, None
    written = pair.claim.names[mine], pair.evidence.names[theirs]
    return (0.5 if mine in known else 1.0), f"{written[0]} where the source says {written[1]}"


def _spelled_alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    abbreviated = len(short) <= 3 and short[0] == long[0]
    return abbreviated or SequenceMatcher(None, one, other, autojunk=False).ratio() > _ALIKE


def _has_word(sentence: Sentence, words: Sequence[str]) -> bool:
    return any(f"{_SEPARATOR}{word}{_SEPARATOR}" in sentence.run for word in words)


def overclaims(pair: Pair) -> float:
    claim, evidence = pair.claim, pair.evidence
    if claim.quantifier > evidence.quantifier > 0 or (evidence.hedged and not claim.hedged):
        return 1.0
    for stronger, said in EXCLUSIVES:
        if _has_word(claim, stronger) and not _has_word(evidence, said):
            return 1.0
    return 0.5 if evidence.conditions > claim.conditions else 0.0
