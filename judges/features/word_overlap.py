"""Measures how much of a claim's wording occurs in the evidence, and how closely the evidence repeats it."""

from collections.abc import Container, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from msgspec import Struct

from judges.features.negation_features import denials_of
from judges.features.parsed_text import SEPARATOR, ParsedSentence, Prepared
from judges.features.sentence_pair import SentencePair, anchors_of, held, ramp, share_of, touched
from judges.features.words.lexicon import DOUBTING, REFUTED


class Wording(Struct, frozen=True):
    """Shares of a claim's wording, from 0 to 1."""

    content: float = 0.0
    """The weighted share of the claim's content found in any sentence of the evidence."""
    sentence: float = 0.0
    """The weighted share of the claim's content found in the sentence that contains most of it."""
    pairs: float = 0.0
    """The share of the claim's pairs of neighbouring words that are also neighbours in the evidence."""


class ClaimWording:
    """The wording of a claim, for comparison with several pieces of evidence."""

    def __init__(self, claim: Prepared) -> None:
        self._claim = claim
        self._weights = claim.sentences[0].weights if claim.sentences else {}
        if len(claim.sentences) > 1:
            self._weights = {key: weight for sentence in claim.sentences for key, weight in sentence.weights.items()}
        self._total = sum(self._weights.values())

    def measure(self, evidence: Prepared) -> Wording:
        """Compare the wording with that of ``evidence``. The time is proportional to the product of their lengths."""
        if not self._claim.sentences or not evidence.sentences:
            return Wording()
        weights, total = self._weights, self._total
        content = held(weights, evidence.keys)
        alone = len(evidence.sentences) == 1 or not content
        sentence = content if alone else max([held(weights, one.weights) for one in evidence.sentences])
        return Wording(
            content=content / total if total else 0.0,
            sentence=sentence / total if total else 0.0,
            pairs=_share_of_pairs(self._claim, evidence),
        )


def measure_wording(evidence: Prepared, claim: Prepared) -> Wording:
    """Compare the wording of ``claim`` with that of ``evidence``."""
    return ClaimWording(claim).measure(evidence)


def words_of(text: Prepared) -> list[str]:
    """Return the normalized words of ``text``, in order."""
    return [word for word in text.run.split(SEPARATOR) if word]


def share_of_runs(claim: Prepared, evidence: Prepared, size: int) -> float:
    """Return the share of the claim's runs of ``size`` consecutive words that the evidence contains. A claim with fewer
    words is a single, shorter run."""
    runs = _runs_of(claim.run, size)
    return sum(map(evidence.run.__contains__, runs)) / len(runs) if runs else 0.0


def _share_of_pairs(claim: Prepared, evidence: Prepared) -> float:
    """Return ``share_of_runs`` for pairs of words. Comparing sets of pairs is faster than searching texts."""
    distinct, count = _pairs_of(claim.run)
    if evidence.parts or count < 2 or len(distinct) < count:
        return share_of_runs(claim, evidence, 2)
    return len(distinct & _pairs_of(evidence.run)[0]) / count


@lru_cache(maxsize=512)
def _pairs_of(text: str) -> tuple[frozenset[tuple[str, str]], int]:
    """Return the distinct pairs of neighbouring words, and the number of all pairs."""
    words = [word for word in text.split(SEPARATOR) if word]
    return frozenset(pairwise(words)), max(0, len(words) - 1)


@lru_cache(maxsize=512)
def _runs_of(text: str, size: int) -> tuple[str, ...]:
    """Return the runs of words in searchable form. The result is cached, because a claim is compared with several
    pieces of evidence."""
    words = [word for word in text.split(SEPARATOR) if word]
    size = min(size, len(words))
    return tuple(_joined(words[start : start + size]) for start in range(len(words) - size + 1)) if size else ()


def stands(words: Sequence[str], evidence: Prepared) -> bool:
    """Return whether the evidence contains the words consecutively."""
    return _joined(words) in evidence.run


def _joined(words: Sequence[str]) -> str:
    return f"{SEPARATOR}{SEPARATOR.join(words)}{SEPARATOR}"


_LEAD: Final = 7
"""Number of words before and after a statement that are searched for a comment on whether it is true."""


def verbatim(claim: ParsedSentence, evidence: Prepared, others: Container[int]) -> float:
    """Return the degree (0 to 1) to which the evidence contains the claim word for word, ignoring the sentences at the
    positions ``others``. The result is lower if the evidence adds a hedge or condition."""
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
    """Return whether the evidence repeats the claim without asserting it: "it is a myth that …"."""
    before, _, after = evidence.run.partition(claim.run)
    led = before.rstrip(SEPARATOR).split(SEPARATOR)
    reported = led[-1] == "that" and not DOUBTING.isdisjoint(led[-_LEAD:-1])
    return reported or not REFUTED.isdisjoint(after.split(SEPARATOR)[:_LEAD])


def ordered(pair: SentencePair) -> float:
    """Return the degree (0 to 1) to which a sentence has the claim's content in the same order. Return 0 if the claim
    skips text about something else."""
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
        return 0.0  # The evidence has one of the claim's quantities in a different place.
    return 0.0 if _crossed_over(pair) else ramp(share, 0.85, 1.0)


def turned(pair: SentencePair) -> bool:
    """Return whether one sentence says "before" and the other "after"."""
    mine, theirs = pair.claim.relation, pair.evidence.relation
    return mine is not None and theirs is not None and mine[0] == theirs[0] and mine[1] != theirs[1]


def _crossed_over(pair: SentencePair) -> bool:
    """Return whether the claim joins parts of two statements, such as "50 outside" from "50 in towns and 100 outside".
    If so, the part that it skips has a quantity of the same kind, or is a separate clause that repeats one of the
    claim's words."""
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
