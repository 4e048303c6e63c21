"""What a comparison of a claim with a window of evidence shows, as numbers from 0 to 1."""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Final

from msgspec import Struct

from judges.numbers import Relation, compare_quantities
from judges.signals.alignment import Pair, anchors_of, pair_up, ramp, share_of, touched
from judges.signals.amounts import numbers_exchanged, quantity_differs
from judges.signals.differences import crossed, overclaims, roles_swapped
from judges.signals.lexicon import DOUBTING, REFUTED
from judges.signals.names import name_differs, name_replaced, replaced
from judges.signals.polarity import UNIVERSAL, opposed, polarity_differs
from judges.signals.prepared import SEPARATOR, Prepared, Sentence

_CANDIDATES: Final = 4
_LEAST_COVERAGE: Final = 0.5
_SAME_SUBJECT: Final = 0.5
_LEAD: Final = 7
"""Words beside a statement that are looked at for what is held of it."""
_SETTLED: Final = 0.95


class Features(Struct, frozen=True):
    """Named as the combiner's weights are."""

    verbatim: float = 0.0
    """The claim stands in the evidence word for word."""
    contained: float = 0.0
    """The claim's content stands in one sentence, in its order, with its quantities and its polarity."""
    covered: float = 0.0
    """The same without regard to order, neighbours included."""
    overlap: float = 0.0
    """Share of the claim's content in the best sentence and its neighbours."""
    quantity_differs: float = 0.0
    polarity_differs: float = 0.0
    roles_swapped: float = 0.0
    name_differs: float = 0.0
    quantity_absent: float = 0.0
    overclaims: float = 0.0
    """The claim is wider or surer than the evidence (most for some, done for planned)."""
    detail: str | None = None
    """In words, for the report: what differs."""


def compute(evidence: Prepared, claim: Prepared) -> Features:
    """Compare. Sentences of the claim that its last one leans on say what it is about and are not judged; of the others
    the worst found counts."""
    if not claim.sentences or not evidence.sentences:
        return Features()
    first = len(claim.sentences) - 1
    while first and not claim.sentences[first].leans and not claim.sentences[first - 1].leads:
        first -= 1
    context = dict(claim.context)
    for sentence in claim.sentences[:first]:
        context.update(sentence.weights)
    if sum(context.values()) >= 1.0 and share_of(context, evidence.keys) < _SAME_SUBJECT:
        return Features(overlap=share_of(claim.sentences[-1].weights, evidence.keys))
    return reduce(_worse, (_compare(evidence, sentence, context) for sentence in claim.sentences[first:]))


def _worse(one: Features, other: Features) -> Features:
    return Features(
        verbatim=min(one.verbatim, other.verbatim),
        contained=min(one.contained, other.contained),
        covered=min(one.covered, other.covered),
        overlap=min(one.overlap, other.overlap),
        quantity_differs=max(one.quantity_differs, other.quantity_differs),
        polarity_differs=max(one.polarity_differs, other.polarity_differs),
        roles_swapped=max(one.roles_swapped, other.roles_swapped),
        name_differs=max(one.name_differs, other.name_differs),
        quantity_absent=max(one.quantity_absent, other.quantity_absent),
        overclaims=max(one.overclaims, other.overclaims),
        detail=one.detail or other.detail,
    )


def _compare(evidence: Prepared, target: Sentence, context: Mapping[str, float]) -> Features:
    frame: Mapping[str, float] = {**context, **target.weights} if target.weight < 1.0 else target.weights
    if not frame:
        frame = dict.fromkeys(target.keys, 0.5)
    scored = [
        (share_of(frame, sentence.weights if target.weights or context else sentence.keys), place)
        for place, sentence in enumerate(evidence.sentences)
    ]
    candidates = sorted((pair for pair in scored if pair[0] >= _LEAST_COVERAGE), reverse=True)[:_CANDIDATES]
    if not candidates and target.leans and all(weight < 1.0 for weight in frame.values()):
        units = {(quantity.kind, quantity.unit) for _, quantity in target.quantities if quantity.unit}
        candidates = [
            (0.5, place)
            for place, sentence in enumerate(evidence.sentences)
            if any((quantity.kind, quantity.unit) in units for _, quantity in sentence.quantities)
        ][:_CANDIDATES]
    overlap = max((_neighbourhood(frame, evidence, place) for _, place in candidates), default=max(scored)[0])
    pairs = [pair_up(target, evidence.sentences[place], frame, coverage) for coverage, place in candidates]
    return _judge(pairs, evidence, target, overlap)


def _judge(pairs: Sequence[Pair], evidence: Prepared, target: Sentence, overlap: float) -> Features:
    verbatim = _verbatim(target, evidence)
    findings = compare_quantities([quantity for _, quantity in target.quantities], evidence.quantities).findings
    absent = sum(finding.relation is not Relation.AGREE for finding in findings) / len(findings) if findings else 0.0
    contained = covered = wider = polarity = 0.0
    roles = 1.0 if crossed(pairs) else 0.0
    quantity: tuple[float, str | None] = (0.0, None)
    name: tuple[float, str | None] = (0.0, None)
    for pair in pairs:
        flipped, number = opposed(pair) or polarity_differs(pair), quantity_differs(pair)
        swapped = roles_swapped(pair) or numbers_exchanged(pair)
        words = replaced(pair)
        unclear = flipped < 0.0
        flipped = max(flipped, 0.0)
        if flipped or swapped:
            polarity, roles = max(polarity, flipped), max(roles, swapped)
        elif number[0]:
            if number[0] > quantity[0] and not _agrees_together(target, evidence):
                quantity = number
        elif (other := _other_name(pair, words, evidence))[0]:
            name = max(name, other, key=_strength)
        elif not absent and not unclear:
            if over := overclaims(pair):
                wider = max(wider, over * pair.coverage)
            else:
                contained = max(contained, 0.0 if words else _ordered(pair))
                if target.relation is None or pair.evidence.relation is not None:
                    covered = max(covered, pair.coverage)
    if not verbatim and any(target.run in one.run and _put_in_doubt(target, one) for one in evidence.sentences):
        contained = covered = 0.0
    if max(verbatim, contained) >= _SETTLED:
        quantity, name, roles, wider = (0.0, None), (0.0, None), 0.0, 0.0
        polarity = polarity if target.quantifier == UNIVERSAL else 0.0
    if roles or (polarity and not verbatim):
        contained = covered = 0.0
    return Features(
        verbatim=verbatim,
        contained=contained,
        covered=ramp(covered, 0.7, 1.0),
        overlap=overlap,
        quantity_differs=quantity[0],
        polarity_differs=polarity,
        roles_swapped=roles,
        name_differs=name[0],
        quantity_absent=absent,
        overclaims=wider,
        detail=quantity[1] or name[1],
    )


def _agrees_together(target: Sentence, evidence: Prepared) -> bool:
    """Whether one sentence has all the quantities of a claim that has several: then this is what it is about."""
    mine = [target.keys[place] for place, _ in target.quantities]
    return len(mine) > 1 and any(
        all(key in sentence.keys for key in mine) for sentence in evidence.sentences if len(sentence.quantities) > 1
    )


def _other_name(pair: Pair, words: tuple[str, str] | None, evidence: Prepared) -> tuple[float, str | None]:
    found = name_differs(pair)
    return name_replaced(pair, words, evidence.keys) if words and not found[0] else found


def _strength(found: tuple[float, str | None]) -> float:
    return found[0]


def _neighbourhood(frame: Mapping[str, float], evidence: Prepared, place: int) -> float:
    keys: set[str] = set()
    for sentence in evidence.sentences[max(0, place - 1) : place + 2]:
        keys |= sentence.weights.keys()
    return share_of(frame, keys)


def _verbatim(claim: Sentence, evidence: Prepared) -> float:
    if claim.run not in evidence.run or claim.run.count(SEPARATOR) < 3 or not claim.keys:
        return 0.0
    best = 0.0
    for sentence in evidence.sentences:
        if claim.run in sentence.run:
            negated = False
            if len(sentence.negations) > len(claim.negations):
                clauses = touched(sentence, anchors_of(claim.keys, sentence.keys))
                negated = sum(clause in clauses for clause in sentence.negations) > len(claim.negations)
            loosened = sentence.conditions > claim.conditions or (sentence.hedged and not claim.hedged)
            best = max(best, 0.0 if negated or _put_in_doubt(claim, sentence) else 0.5 if loosened else 1.0)
    return best


def _put_in_doubt(claim: Sentence, evidence: Sentence) -> bool:
    """Whether the evidence only says that somebody denies what the claim says, or claims it: it is a myth that …"""
    before, _, after = evidence.run.partition(claim.run)
    led = before.rstrip(SEPARATOR).split(SEPARATOR)
    reported = led[-1] == "that" and not DOUBTING.isdisjoint(led[-_LEAD:-1])
    return reported or not REFUTED.isdisjoint(after.split(SEPARATOR)[:_LEAD])


def _ordered(pair: Pair) -> float:
    target = pair.claim
    kept = {target.keys[place] for place, _ in pair.anchors}
    alone = pair.coverage if target.quantities else 0.0
    share = alone if target.weight < 1.0 else share_of(target.weights, kept)
    whole = pair.lacking == 0 and (pair.shared + len(target.quantities)) >= 2
    if whole and share < 1.0 and all(weight < 1.0 or key in kept for key, weight in target.weights.items()):
        share = max(share, 0.97)
    if pair.evidence.conditions > pair.claim.conditions:
        share *= 0.9
    placed = {place for place, _ in pair.anchors}
    if any(place not in placed and target.keys[place] in pair.evidence.keys for place, _ in target.quantities):
        return 0.0  # it stands there, in another order
    return 0.0 if _crossed_over(pair) else ramp(share, 0.85, 1.0)


def _crossed_over(pair: Pair) -> bool:
    """Whether the claim takes its beginning from one statement and its end from the next: of 50 in towns and 100
    outside, 100 in towns. What it leaves out then has a quantity of the same kind, or another clause and in it one of
    the claim's words again."""
    claim, evidence = pair.claim, pair.evidence
    kinds = {(quantity.kind, quantity.unit) for _, quantity in claim.quantities}
    counted = {place for place, quantity in evidence.quantities if (quantity.kind, quantity.unit) in kinds}
    mine = set(claim.keys)

    def skips(anchors: Sequence[tuple[int, int]]) -> bool:
        return any(
            place in counted or (evidence.keys[place] in mine and evidence.clauses[place] != evidence.clauses[one])
            for (_, one), (_, other) in pairwise(anchors)
            for place in range(one + 1, other)
        )

    if not skips(pair.anchors):
        return False
    size, width = len(claim.keys), len(evidence.keys)
    back = anchors_of(claim.keys[::-1], evidence.keys[::-1])
    return skips([(size - 1 - one, width - 1 - other) for one, other in reversed(back)])
