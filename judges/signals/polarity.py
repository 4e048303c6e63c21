"""Whether a claim says the opposite of a sentence that is otherwise much like it."""

from collections.abc import Sequence
from typing import Final

from judges.numbers import Relation, relate
from judges.signals.alignment import Pair, share_of, touched
from judges.signals.beside import ALIKE, ANOTHER, crosswise, has_word, opposites, quantities_agree
from judges.signals.lexicon import ATTRIBUTIVE, EXCEPTIVES, NEGATIONS, RELATORS
from judges.signals.prepared import ELLIPSIS, Sentence

UNIVERSAL: Final = 4
"""The quantifiers that allow no exception."""
UNCLEAR: Final = -1.0
_OF_SUBJECT: Final = 2
"""The place up to which a word of a sentence belongs to its subject."""
_MOSTLY: Final = 0.74


def polarity_differs(pair: Pair) -> float:
    """One says that something is so, the other that it is not. ``UNCLEAR`` where one of them denies something, and what
    that is cannot be told: then neither is said by the other."""
    claim, evidence = pair.claim, pair.evidence
    denied = evidence.quantifier == UNIVERSAL and pair.lacking == 1 and claim.signs.keys() & evidence.signs.keys()
    if (pair.lacking and not denied) or pair.coverage < 0.7 or claim.weight < 1.3:
        return 0.0
    if claim.quantities and not quantities_agree(pair):
        return 0.0
    clauses = _clauses_of(pair)
    if clauses is None:
        return UNCLEAR
    denials = len(claim.negations) + sum(clause in clauses for clause in evidence.negations)
    denials -= sum(quantity.denied for sentence in (claim, evidence) for _, quantity in sentence.quantities)
    sign = -1 if denials % 2 else 1
    for key, places in claim.signs.items():
        if key in evidence.signs:
            sign *= places[0][1] * _sign_near(evidence, evidence.signs[key], claim.keys, places[0][0])
    elsewhere = _negative_elsewhere(claim, evidence)
    if sign >= 0:
        return UNCLEAR if elsewhere else 0.0
    if (
        elsewhere
        or _excepts(claim) != _excepts(evidence)
        or crosswise(pair)
        or opposites(pair)
        or not _bounded_alike(pair)
    ):
        return UNCLEAR
    clause_keys = {key for key, clause in zip(evidence.keys, evidence.clauses, strict=True) if clause in clauses}
    clause_weights = {key: weight for key, weight in evidence.weights.items() if key in clause_keys}
    if claim.quantifier == UNIVERSAL or share_of(clause_weights, claim.weights) >= 0.6:
        return 1.0
    return ANOTHER


def _clauses_of(pair: Pair) -> set[int] | None:
    """The clauses of the evidence that say what the claim says. Of some that deny and some that do not, it is the one
    that has most of the claim's content; None where that cannot be told."""
    claim, evidence = pair.claim, pair.evidence
    clauses = touched(evidence, pair.anchors)
    denying = clauses & set(evidence.negations)
    if ELLIPSIS in evidence.negations or ELLIPSIS in claim.negations:
        return None
    if len(set(claim.clauses)) > 1:
        said = set(claim.keys)
        return {clause for key, clause in zip(evidence.keys, evidence.clauses, strict=True) if key in said}
    if not denying or denying == clauses:
        return clauses
    wanted = {key for key, weight in claim.weights.items() if weight == 1.0} or set(claim.weights)
    subject = {next((key for key in claim.keys if key in wanted), "")}
    has: dict[int, set[str]] = {clause: wanted & subject for clause in clauses}
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
    """Whether the quantities that agree bound from the same side: up to 5 may, and more than 5 may not."""
    return all(
        quantity.bound is other.bound and quantity.limit == other.limit
        for _, quantity in pair.claim.quantities
        for _, other in pair.evidence.quantities
        if quantity.values[:1] == other.values[:1] and relate(quantity, other) is not Relation.ABSENT
    )


def _excepts(sentence: Sentence) -> list[str]:
    """The words of it that take something out, or say from when on: a negation beside them denies something else."""
    return [word for word in EXCEPTIVES if has_word(sentence, (word,))]


def _negative_elsewhere(claim: Sentence, evidence: Sentence) -> bool:
    """Whether either has a word of denial that the other has as a negation: failed to, and did not."""
    unmatched = [
        any(sign < 0 for _, sign in places)
        for one, other in ((claim, evidence), (evidence, claim))
        for key, places in one.signs.items()
        if key not in other.signs
    ]
    return any(unmatched)


def _sign_near(evidence: Sentence, places: Sequence[tuple[int, int]], keys: Sequence[str], place: int) -> int:
    """The sign of a concept in the evidence; of both, that of the place nearest to what follows it in the claim, or to
    what it follows there if that is its end."""
    if len(places) == 1:
        return places[0][1]
    beside = set(keys[place + 1 :]) or set(keys[max(0, place - 1) : place])
    positions = [position for position, key in enumerate(evidence.keys) if key in beside]
    return min(places, key=lambda at: sum(abs(at[0] - position) for position in positions))[1]


def opposed(pair: Pair) -> float:
    """A word stands between the same neighbours as its opposite does, and all else is the same: a third more, and a
    third less. Less sure of words that may tell two things apart: the red button and the green one."""
    claim, evidence = pair.claim, pair.evidence
    if pair.lacking > 1 or pair.coverage < 0.7 or len(pair.anchors) < len(claim.keys) - 1:
        return 0.0
    found = opposites(pair)
    if len(found) != 1 or not _same_figures(pair) or crosswise(pair):
        return 0.0
    ((word, other, place),) = found
    if len(claim.negations) - (word in NEGATIONS) != len(evidence.negations) - (other in NEGATIONS):
        return 0.0
    if word in RELATORS and share_of(evidence.weights, claim.weights) < ALIKE:
        return 0.0
    return ANOTHER if word in ATTRIBUTIVE and place <= _OF_SUBJECT else 1.0


def _same_figures(pair: Pair) -> bool:
    """Whether the evidence has the claim's quantities, whatever bounds them."""
    theirs = {other.key for _, other in pair.evidence.quantities}
    return all(quantity.key in theirs for _, quantity in pair.claim.quantities) or quantities_agree(pair)
