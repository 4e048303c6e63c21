"""Measures to what extent the evidence repeats a claim in the same words."""

from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Final

from judges.features.alignment import SentencePair, anchors_of, ramp, share_of, touched
from judges.features.negation_features import denials_of
from judges.features.parsed_text import SEPARATOR, ParsedSentence, Prepared
from judges.features.words.lexicon import DOUBTING, REFUTED

_LEAD: Final = 7
"""Number of words next to a statement that are searched for a judgement on it."""


def verbatim(claim: ParsedSentence, evidence: Prepared, others: Container[int]) -> float:
    """Whether the evidence contains the claim word for word, outside the sentences ``others``."""
    if claim.run not in evidence.run or claim.run.count(SEPARATOR) < 3 or not claim.keys:
        return 0.0
    best = 0.0
    for place, sentence in enumerate(evidence.sentences):
        if claim.run in sentence.run and place not in others:
            negated = False
            if len(sentence.negations) > len(claim.negations):
                anchors = anchors_of(claim.keys, sentence.keys)
                denials = denials_of(claim, sentence, touched(sentence, anchors), anchors)
                negated = denials > len(claim.negations)
            loosened = sentence.conditions > claim.conditions or (sentence.hedged and not claim.hedged)
            best = max(best, 0.0 if negated or put_in_doubt(claim, sentence) else 0.5 if loosened else 1.0)
    return best


def put_in_doubt(claim: ParsedSentence, evidence: ParsedSentence) -> bool:
    """Whether the evidence only reports that somebody denies or asserts what the claim says: "it is a myth that …"."""
    before, _, after = evidence.run.partition(claim.run)
    led = before.rstrip(SEPARATOR).split(SEPARATOR)
    reported = led[-1] == "that" and not DOUBTING.isdisjoint(led[-_LEAD:-1])
    return reported or not REFUTED.isdisjoint(after.split(SEPARATOR)[:_LEAD])


def ordered(pair: SentencePair) -> float:
    """Return to what extent a sentence has the claim's content in the same order, from 0 to 1, or 0 if the text in
    between is about something else."""
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
        return 0.0  # The evidence contains it in a different order.
    return 0.0 if _crossed_over(pair) else ramp(share, 0.85, 1.0)


def turned(pair: SentencePair) -> bool:
    """Whether one sentence says "before" and the other "after"."""
    mine, theirs = pair.claim.relation, pair.evidence.relation
    return mine is not None and theirs is not None and mine[0] == theirs[0] and mine[1] != theirs[1]


def _crossed_over(pair: SentencePair) -> bool:
    """Whether the claim joins the beginning of one statement to the end of the next: "100 in towns" from "50 in towns
    and 100 outside". The omitted part then has a quantity of the same kind, or a separate clause that repeats one of
    the claim's words."""
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
