"""How a claim differs from a sentence that is otherwise much like it. Each function returns its strength, 0 to 1."""

from collections.abc import Container, Sequence
from difflib import SequenceMatcher
from itertools import combinations, pairwise
from typing import Final

from judges.numbers import Bound, Kind, Quantity, Relation, compare_quantities, relate, within
from judges.signals.alignment import Pair, gap, share_of, touched
from judges.signals.lexemes import lexeme
from judges.signals.lexicon import ATTRIBUTIVE, DEGREES, EXCEPTIVES, EXCLUSIVES, OPPOSITES, RELATORS
from judges.signals.prepared import ELLIPSIS, NAMING, Sentence

_ALIKE: Final = 0.75
_ANOTHER: Final = 0.4
_NAMES_A_THING: Final = (*NAMING, Kind.DATE, Kind.ORDINAL)
_OF_SUBJECT: Final = 2
"""The place up to which a word of a sentence belongs to its subject."""
_MOSTLY: Final = 0.74
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
    if not strength or not _same_polarity(pair):
        return 0.0, None
    open_, taken = [], set()
    for place, quantity in mine:
        agreeing = [other for other, theirs_ in theirs if relate(quantity, theirs_) is Relation.AGREE]
        taken.update(agreeing)
        if not agreeing and not _follows(quantity, pair):
            open_.append((place, quantity))
    if open_ and (_of_another(pair, open_) or _opposites(pair)):
        strength *= _ANOTHER
    free = [(place, other) for place, other in theirs if place not in taken]
    best, detail = 0.0, None
    for place, quantity in open_:
        sure, other = _counterpart(pair, place, quantity, free)
        if other is not None and sure * strength > best:
            best, detail = sure * strength, f"{quantity.text} where the source says {other.text}"
    return best, detail


def _same_polarity(pair: Pair) -> bool:
    """Whether both say that something is so, or both that it is not: 40 % do, and 60 % do not."""
    claim, evidence = pair.claim, pair.evidence
    if (len(claim.negations) + len(evidence.negations)) % 2:
        return False
    shared = claim.signs.keys() & evidence.signs.keys()
    return all({sign for _, sign in claim.signs[key]} & {sign for _, sign in evidence.signs[key]} for key in shared)


def _follows(quantity: Quantity, pair: Pair) -> bool:
    """Whether the evidence's quantities give this one: as a value of a range, a sum, a span of time, a multiple."""
    mine = [other for _, other in pair.claim.quantities]
    theirs = [other for _, other in pair.evidence.quantities]
    ranged = any(one.opens and quantity in (one, other) for one, other in pairwise(mine))
    if not ranged and any(one.opens and within(quantity, one, other) for one, other in pairwise(theirs)):
        return True
    ends = [
        (one.values[0], other.values[0]) for one, other in pairwise(theirs) if one.opens and one.values and other.values
    ]
    if quantity.bound is Bound.AT_MOST and any(high <= quantity.values[0] for _, high in ends if quantity.values):
        return True
    if quantity.bound is Bound.AT_LEAST and any(low >= quantity.values[0] for low, _ in ends if quantity.values):
        return True
    if compare_quantities([quantity], theirs).findings[0].relation is Relation.AGREE:
        return True
    alike = [
        other.values[0]
        for other in theirs
        if other.kind is quantity.kind and other.unit == quantity.unit and other.values and quantity.values
    ]
    counts = [other.values[0] for other in mine if other.kind is Kind.NUMBER and other.noun and other is not quantity]
    return any(one * count == quantity.values[0] for one in alike for count in counts)


def _of_another(pair: Pair, open_: Sequence[tuple[int, Quantity]]) -> bool:
    """Whether the sentence seems to be of another year, article or model, rather than to differ from the claim."""
    named = sum(quantity.kind in _NAMES_A_THING for _, quantity in open_)
    if 0 < named < len(open_):
        return True
    if len(open_) != 1:
        return False
    place, quantity = open_[0]
    bare = quantity.kind is Kind.NUMBER and not quantity.noun and quantity.factor == 1 and place == 1
    model = bare and _behind_a_name(pair.claim, quantity)
    subject = place <= 1 and quantity.kind in (Kind.REFERENCE, Kind.IDENTIFIER)
    return (model or subject) and any(at <= 1 for at, _ in pair.evidence.quantities)


def _behind_a_name(sentence: Sentence, quantity: Quantity) -> bool:
    words = sentence.run.split(_SEPARATOR)
    return _has_content(words[words.index(quantity.key) - 1])


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
            and not _changed_by(pair)
        ):
            return 1.0, other
    return 0.0, None


def _unit_left_out(one: Quantity, other: Quantity) -> bool:
    """ "43 or 44 years old" and "43 years old", and pounds of either kind."""
    if {one.kind, other.kind} == {Kind.MONEY, Kind.MEASURE} and "GBP" in (one.unit, other.unit):
        return any("pound" in each.text.lower() for each in (one, other))
    bare, full = (one, other) if one.kind is Kind.NUMBER else (other, one)
    return bare.kind is Kind.NUMBER and f" {bare.text} " in f" {full.text} "


def _changed_by(pair: Pair) -> bool:
    """ "Fell by 20 %" of what fell from 50 to 40 dollars."""
    return _has_word(pair.claim, ("by",)) and not _has_word(pair.evidence, ("by",))


def _amount(quantity: Quantity, other: Quantity) -> bool:
    amounts = (Kind.NUMBER, Kind.PERCENT, Kind.POINTS, Kind.MONEY, Kind.MEASURE)
    return quantity.kind in amounts and other.kind in amounts


def _agrees(pair: Pair) -> bool:
    return all(
        any(relate(quantity, other) is Relation.AGREE for _, other in pair.evidence.quantities)
        for _, quantity in pair.claim.quantities
    )


def polarity_differs(pair: Pair) -> float:
    """One says that something is so, the other that it is not."""
    claim, evidence = pair.claim, pair.evidence
    denied = evidence.quantifier == UNIVERSAL and pair.lacking == 1 and claim.signs.keys() & evidence.signs.keys()
    if (
        (pair.lacking and not denied)
        or pair.coverage < 0.7
        or claim.weight < 1.3
        or (claim.quantities and not (_agrees(pair) and _bounded_alike(pair)))
        or _excepts(claim) != _excepts(evidence)
        or _crosswise(pair)
        or _opposites(pair)
    ):
        return 0.0
    clauses = _clauses_of(pair)
    if clauses is None:
        return 0.0
    sign = -1 if (len(claim.negations) + sum(clause in clauses for clause in evidence.negations)) % 2 else 1
    for key, places in claim.signs.items():
        if key in evidence.signs:
            sign *= places[0][1] * _sign_near(evidence, evidence.signs[key], claim.keys, places[0][0])
    if sign >= 0 or _negative_elsewhere(claim, evidence):
        return 0.0
    clause_keys = {key for key, clause in zip(evidence.keys, evidence.clauses, strict=True) if clause in clauses}
    clause_weights = {key: weight for key, weight in evidence.weights.items() if key in clause_keys}
    if claim.quantifier == UNIVERSAL or share_of(clause_weights, claim.weights) >= 0.6:
        return 1.0
    return 0.4


def _clauses_of(pair: Pair) -> set[int] | None:
    """The clauses of the evidence that say what the claim says. Of some that deny and some that do not, it is the one
    that has most of the claim's content; None where that cannot be told."""
    claim, evidence = pair.claim, pair.evidence
    clauses = touched(evidence, pair.anchors)
    denying = clauses & set(evidence.negations)
    if ELLIPSIS in evidence.negations or ELLIPSIS in claim.negations:
        return None
    if not denying or denying == clauses or len(set(claim.clauses)) > 1:
        return clauses
    wanted = {key for key, weight in claim.weights.items() if weight == 1.0} or set(claim.weights)
    has: dict[int, set[str]] = {clause: set() for clause in clauses}
    for key, clause in zip(evidence.keys, evidence.clauses, strict=True):
        if clause in has:
            has[clause] |= {key} & wanted
    last = next((key for key in reversed(claim.keys) if key in wanted), "")
    best = max(clauses, key=lambda clause: (len(has[clause]), last in has[clause]))
    if len(has[best]) < _MOSTLY * len(wanted):
        return None
    rivals = [clause for clause in clauses if (clause in denying) != (best in denying)]
    return None if any(len(has[clause]) == len(has[best]) for clause in rivals) and last not in has[best] else {best}


def _bounded_alike(pair: Pair) -> bool:
    """Whether the quantities that agree bound from the same side, and by the same denial: not more than 5 are at most
    5."""
    denied = (len(pair.claim.negations) + len(pair.evidence.negations)) % 2
    return all(
        quantity.bound is other.bound
        and quantity.limit == other.limit
        and not (denied and quantity.bound is not Bound.EXACT)
        for _, quantity in pair.claim.quantities
        for _, other in pair.evidence.quantities
        if quantity.values[:1] == other.values[:1] and relate(quantity, other) is not Relation.ABSENT
    )


def _excepts(sentence: Sentence) -> list[str]:
    """The words of it that take something out, or say from when on: a negation beside them denies something else."""
    return [word for word in EXCEPTIVES if _has_word(sentence, (word,))]


def _negative_elsewhere(claim: Sentence, evidence: Sentence) -> bool:
    """Whether either has a word of denial that the other has as a negation: failed to, and did not."""
    unmatched = [
        any(sign < 0 for _, sign in places)
        for one, other in ((claim, evidence), (evidence, claim))
        for key, places in one.signs.items()
        if key not in other.signs
    ]
    return any(unmatched)


def opposed(pair: Pair) -> float:
    """A word stands between the same neighbours as its opposite does, and all else is the same: a third more, and a
    third less. Less sure of words that may tell two things apart: the red button and the green one."""
    claim, evidence = pair.claim, pair.evidence
    if pair.lacking > 1 or pair.coverage < 0.7 or not _agrees(pair):
        return 0.0
    if len(claim.negations) != len(evidence.negations) or len(pair.anchors) < len(claim.keys) - 1:
        return 0.0
    found = _opposites(pair)
    if len(found) != 1:
        return 0.0
    ((word, place),) = found
    if word in RELATORS and share_of(evidence.weights, claim.weights) < _ALIKE:
        return 0.0
    return 0.4 if word in ATTRIBUTIVE and place <= _OF_SUBJECT else 1.0


def _opposites(pair: Pair) -> list[tuple[str, int]]:
    """The words of the claim in whose place the evidence has their opposites, with their places."""
    mine, theirs = pair.claim.run.split(_SEPARATOR), pair.evidence.run.split(_SEPARATOR)
    known = set(theirs)
    found: list[tuple[str, int]] = []
    for place, word in enumerate(mine[1:-1], start=1):
        if word in OPPOSITES and word not in known and not OPPOSITES[word].isdisjoint(known):
            between = mine[place - 1], mine[place + 1]
            if any(
                theirs[other] in OPPOSITES[word] and (theirs[other - 1], theirs[other + 1]) == between
                for other in range(1, len(theirs) - 1)
            ):
                found.append((word, place))
    return found


def _sign_near(evidence: Sentence, places: Sequence[tuple[int, int]], keys: Sequence[str], place: int) -> int:
    """The sign of a concept in the evidence; of both, that of the place nearest to what follows it in the claim, or to
    what it follows there if that is its end."""
    if len(places) == 1:
        return places[0][1]
    beside = set(keys[place + 1 :]) or set(keys[max(0, place - 1) : place])
    positions = [position for position, key in enumerate(evidence.keys) if key in beside]
    return min(places, key=lambda at: sum(abs(at[0] - position) for position in positions))[1]


def roles_swapped(pair: Pair) -> float:
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return 0.0
    if pair.coverage < _ALIKE or not _compared_alike(pair):
        return 0.0
    before, after = _sides(claim, claim.relation[2])
    first, second = _sides(evidence, evidence.relation[2])
    same = claim.relation[1] == evidence.relation[1]
    if before & second and after & first and not after & second:
        return 1.0 if same else 0.0
    straight = bool(before & first and after & second and not after & first)
    whole = share_of(evidence.weights, claim.weights) >= _ALIKE
    return 1.0 if straight and not same and whole and len(claim.negations) == len(evidence.negations) else 0.0


def _compared_alike(pair: Pair) -> bool:
    """Whether what the two say of their sides is known to be the same or the opposite: not of wider and narrower."""
    mine, theirs = (
        {word for word in sentence.run.split(_SEPARATOR) if word.endswith("er") or word in DEGREES}
        for sentence in (pair.claim, pair.evidence)
    )
    return mine == theirs or (mine | theirs) <= DEGREES.keys()


def _crosswise(pair: Pair) -> bool:
    """Whether the sides of a comparison have changed places."""
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return False
    before, after = _sides(claim, claim.relation[2])
    first, second = _sides(evidence, evidence.relation[2])
    return bool(before & second and after & first and not after & second)


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
    return (
        _ANOTHER if mine in known or _has_word(pair.claim, ("also",)) else 1.0
    ), f"{written[0]} where the source says {written[1]}"


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
