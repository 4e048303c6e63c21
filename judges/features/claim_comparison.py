"""Compares a claim with a window of evidence, and returns features from 0 to 1."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import itemgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from judges.features.name_and_role_features import (
    SURELY,
    crossed,
    name_differs,
    name_replaced,
    overclaims,
    replaced,
    roles_swapped,
)
from judges.features.negation_features import only_one_denies, opposed, polarity_differs
from judges.features.numbers import Quantity, lacking
from judges.features.parsed_text import ParsedSentence, Prepared
from judges.features.quantity_features import has_all, numbers_exchanged, quantity_differs
from judges.features.sentence_pair import ANOTHER, SentencePair, held, pair_up, share_of
from judges.features.word_overlap import ClaimWording, ordered, put_in_doubt, turned, verbatim
from judges.features.words.lexicon import UNIVERSAL

_CANDIDATES: Final = 4
_LEAST_COVERAGE: Final = 0.5
_SAME_SUBJECT: Final = 0.5
_SETTLED: Final = 0.95
_WITHHELD: Final = 0.5
"""The value of ``quantity_differs`` at which a claim is neither supported nor contradicted. It is used if a sentence
contains all quantities in the claim but isn't about the subject of the question."""
_MAY_WELL: Final = 0.35
"""A sentence counts as a possible source of the claim if its share of the claim is at most this much below the largest
share."""
_OF_SUBJECT: Final = 3
"""Number of content words, at the beginning of the text before a claim, that identify the claim's subject."""


class Features(Struct, frozen=True):
    """The features of a claim and its evidence. The names match the weights in ``calibration``."""

    verbatim: float = 0.0
    """The evidence contains the claim word for word."""
    contained: float = 0.0
    """One sentence contains the claim's content, in the same order, with the same quantities and polarity."""
    overlap: float = 0.0
    """The share of the claim's content that occurs in the most similar sentence of the evidence and its neighbours."""
    quantity_differs: float = 0.0
    polarity_differs: float = 0.0
    roles_swapped: float = 0.0
    name_differs: float = 0.0
    overclaims: float = 0.0
    """The claim is broader or more certain than the evidence ("most" for "some", "done" for "planned")."""
    detail: str | None = None
    """A description of the difference, for reports."""


def compute(evidence: Prepared, claim: Prepared) -> Features:
    """Compute the features of a claim and one piece of evidence."""
    return ClaimComparison(claim).features(evidence)


class ClaimComparison:
    """Compares a claim with pieces of evidence, separately and together. Each sentence is compared only once.

    If the claim has several sentences, those that only introduce its last sentence are context and are not judged.
    Among the others, the worst result counts.
    """

    def __init__(self, claim: Prepared) -> None:
        self.claim = claim
        self.wording = ClaimWording(claim)
        first = max(0, len(claim.sentences) - 1)
        while first and not claim.sentences[first].leans and not claim.sentences[first - 1].leads:
            first -= 1
        context = dict(claim.context)
        for sentence in claim.sentences[:first]:
            context.update(sentence.weights)
        self._context = context if sum(context.values()) >= 1.0 else {}
        self._targets = [_Target(sentence, context, claim.asked) for sentence in claim.sentences[first:]]

    def features(self, evidence: Prepared) -> Features:
        """Compute the features of the claim and ``evidence``."""
        if not self._targets or not evidence.sentences:
            return Features()
        if self._context and share_of(self._context, evidence.keys) < _SAME_SUBJECT:
            return Features(overlap=share_of(self.claim.sentences[-1].weights, evidence.keys))
        return reduce(_worse, [target.compare(evidence) for target in self._targets])


comparison = ClaimComparison
"""Creates a comparison of a claim with several pieces of evidence, as ``FeatureExtractor`` requires."""


def _worse(one: Features, other: Features) -> Features:
    return Features(
        verbatim=min(one.verbatim, other.verbatim),
        contained=min(one.contained, other.contained),
        overlap=min(one.overlap, other.overlap),
        quantity_differs=max(one.quantity_differs, other.quantity_differs),
        polarity_differs=max(one.polarity_differs, other.polarity_differs),
        roles_swapped=max(one.roles_swapped, other.roles_swapped),
        name_differs=max(one.name_differs, other.name_differs),
        overclaims=max(one.overclaims, other.overclaims),
        detail=one.detail or other.detail,
    )


class _Look:
    """Compares two sentences, regardless of the text around them."""

    __slots__ = ("_ordered", "_overclaims", "opposed", "pair", "quantity", "swapped", "words")

    def __init__(self, pair: SentencePair) -> None:
        self.pair = pair
        self.opposed = opposed(pair) or polarity_differs(pair)
        self.quantity = quantity_differs(pair)
        self.swapped = roles_swapped(pair) or numbers_exchanged(pair)
        self.words = replaced(pair)
        self._ordered = self._overclaims = -1.0

    @property
    def ordered(self) -> float:
        if self._ordered < 0.0:
            said = not self.words and has_all(self.pair.claim, self.pair.evidence)
            self._ordered = ordered(self.pair) if said else 0.0
        return self._ordered

    @property
    def overclaims(self) -> float:
        if self._overclaims < 0.0:
            self._overclaims = overclaims(self.pair)
        return self._overclaims


@dataclass(slots=True)
class _Seen:
    """The strongest results over all sentences in the evidence, and the differences found."""

    contained: float = 0.0
    plain: float = 0.0
    """The largest share of the claim contained in one sentence, not counting sentences that the claim clearly goes
    beyond."""
    loosely: float = 0.0
    wider: tuple[float, float] = (0.0, 0.0)
    """How far the claim goes beyond a sentence, and the share of the claim contained in that sentence."""
    polarity: float = 0.0
    roles: float = 0.0
    quantity: tuple[float, str | None] = (0.0, None)
    differing: ParsedSentence | None = None
    """The evidence sentence whose quantity differs from the claim's."""
    name: tuple[float, str | None] = (0.0, None)

    def take(self, look: _Look, evidence: Prepared, *, absent: bool) -> None:
        """Add the result for one sentence. ``absent`` means that the evidence lacks a quantity in the claim and so
        can't support it."""
        target, flipped = look.pair.claim, max(look.opposed, 0.0)
        if flipped or look.swapped:
            self.polarity, self.roles = max(self.polarity, flipped), max(self.roles, look.swapped)
        elif look.quantity[0]:
            if look.quantity[0] > self.quantity[0]:
                self.quantity, self.differing = look.quantity, look.pair.evidence
        elif (other := _other_name(look, evidence))[0]:
            self.name = max(self.name, other, key=itemgetter(0))
        elif not absent and look.opposed >= 0.0 and not turned(look.pair) and not only_one_denies(look.pair):
            coverage = look.pair.coverage
            if look.overclaims > SURELY:
                self.wider = max(self.wider, (look.overclaims * coverage, coverage))
                return
            self.plain = max(self.plain, coverage)
            self.loosely = max(self.loosely, look.overclaims * coverage)
            if target.relation is None or look.pair.evidence.relation is not None:
                self.contained = max(self.contained, 0.0 if look.overclaims else look.ordered)

    @property
    def overclaims(self) -> float:
        """How far the claim goes beyond the evidence. It is 0 if the claim probably comes from a sentence that it does
        not go beyond."""
        sure, coverage = self.wider
        return max(self.loosely, sure if self.plain < coverage - _MAY_WELL else 0.0)

    def settle(self, *, universal: bool) -> None:
        """Record that the evidence contains the claim word for word. Differences in other sentences are then discarded,
        because those sentences are about other things. Denials still count for a ``universal`` claim, which is about
        all things of its kind."""
        self.quantity = self.name = (0.0, None)
        self.roles = self.loosely = 0.0
        self.wider = (0.0, 0.0)
        if not universal:
            self.polarity = 0.0


class _Target:
    """A sentence in the claim, with the results of its comparisons so far, keyed by the identity of the compared
    object."""

    def __init__(self, sentence: ParsedSentence, context: Mapping[str, float], asked: frozenset[str]) -> None:
        self._sentence = sentence
        frame: Mapping[str, float] = {**context, **sentence.weights} if sentence.weight < 1.0 else sentence.weights
        self._about = {**context, **sentence.weights}
        self._frame = frame or dict.fromkeys(sentence.keys, 0.5)
        self._total = sum(self._frame.values())
        self._by_weights = bool(sentence.weights or context)
        full = (key for key, weight in context.items() if weight == 1.0)
        self._subject = frozenset(islice(full, _OF_SUBJECT)) - sentence.weights.keys()
        self._asked = asked - sentence.weights.keys()
        self._quantities = [quantity for _, quantity in sentence.quantities]
        self._kinds = {_kind(quantity) for quantity in self._quantities}
        self._shares: dict[int, float] = {}
        self._looks: dict[int, _Look] = {}
        self._lacking: dict[int, Sequence[Quantity]] = {}
        self._held: list[object] = []
        """Keeps the compared objects alive, so that their identities are not reused."""

    def compare(self, evidence: Prepared) -> Features:
        sentences = evidence.sentences
        shares = [self._share(sentence) for sentence in sentences]
        overlap = max(shares)
        if overlap < _LEAST_COVERAGE and not self._sentence.leans:
            is_repeated = self._sentence.run in evidence.run
            return self._judge((), evidence, frozenset(), overlap) if is_repeated else Features(overlap=overlap)
        scored = [(share, place) for place, share in enumerate(shares) if share >= _LEAST_COVERAGE]
        places = [place for _, place in scored]
        others = self._about_another_subject(places, sentences, self._subject)
        whole = {place for place in places if sentences[place].run == self._sentence.run}
        unasked = self._about_another_subject(places, sentences, self._asked) - others - whole
        passed = others | unasked
        scored = [one for one in scored if one[1] not in passed]
        scored.sort(reverse=True)
        candidates = scored[:_CANDIDATES]
        if not candidates and self._sentence.leans and all(weight < 1.0 for weight in self._frame.values()):
            candidates = self._by_units(sentences)
        if candidates:
            overlap = _best_neighbourhood(self._frame, evidence, candidates)
        features = self._judge(scored or candidates, evidence, passed, overlap)
        if features.quantity_differs > _WITHHELD and any(
            has_all(self._sentence, sentences[place]) for place in unasked
        ):
            return replace(features, quantity_differs=_WITHHELD)
        return features

    def _about_another_subject(
        self, places: Sequence[int], sentences: Sequence[ParsedSentence], subject: frozenset[str]
    ) -> frozenset[int]:
        """Return the ``places`` of sentences about another subject, such as a plan that neither the text before the
        claim nor the question names. ``subject`` holds the words for the claim's subject. A sentence is about another
        subject if a competing sentence contains at least as much of the claim, all words of ``subject`` that the first
        contains, and at least one more."""
        if not subject or not places:
            return frozenset()
        rivals = {*places, *(place for place, sentence in enumerate(sentences) if self._counts_alike(sentence))}
        found = {
            place: (_named(subject, place, sentences), held(self._sentence.weights, sentences[place].weights))
            for place in rivals
        }
        return frozenset(
            place
            for place in places
            if any(found[place][0] < names and found[place][1] <= had for names, had in found.values())
        )

    def _counts_alike(self, sentence: ParsedSentence) -> bool:
        """Return whether the sentence has a quantity of the same kind as one in the claim."""
        return any(_kind(quantity) in self._kinds for _, quantity in sentence.quantities)

    def _by_units(self, sentences: Sequence[ParsedSentence]) -> list[tuple[float, int]]:
        units = {(quantity.kind, quantity.unit) for quantity in self._quantities if quantity.unit}
        return [
            (0.5, place)
            for place, sentence in enumerate(sentences)
            if any((quantity.kind, quantity.unit) in units for _, quantity in sentence.quantities)
        ][:_CANDIDATES]

    def _share(self, sentence: ParsedSentence) -> float:
        share = self._shares.get(id(sentence))
        if share is None:
            found = held(self._frame, sentence.weights if self._by_weights else sentence.keys)
            share = found / self._total if self._total else 0.0
            self._shares[id(sentence)] = share
            self._held.append(sentence)
        return share

    def _look(self, sentence: ParsedSentence, coverage: float) -> _Look:
        look = self._looks.get(id(sentence))
        if look is None:
            look = self._looks[id(sentence)] = _Look(pair_up(self._sentence, sentence, self._frame, coverage))
        return look

    def _told_by_another(
        self, differing: ParsedSentence, sentences: Sequence[ParsedSentence], others: Container[int]
    ) -> bool:
        """Return whether the claim refers to a sentence other than ``differing``: one that is not in ``others``,
        matches the claim's topic equally well, and has all of the claim's quantities.
        """
        about = held(self._about, differing.weights)
        keys = [quantity.key for quantity in self._quantities]
        if len(keys) > 1:
            return any(
                has_all(self._sentence, one) or all(key in one.keys for key in keys)
                for place, one in enumerate(sentences)
                if len(one.quantities) > 1 and place not in others
            )
        return any(
            0.0 < held(self._about, one.weights) >= about and has_all(self._sentence, one)
            for place, one in enumerate(sentences)
            if one.quantities and place not in others
        )

    def _lacks(self, evidence: Prepared) -> Sequence[Quantity]:
        lacks = self._lacking.get(id(evidence))
        if lacks is None:
            asked: Sequence[Quantity] = self._quantities
            for part in evidence.parts:
                missing = self._lacks(part)
                asked = [quantity for quantity in asked if quantity in missing]
            lacks = self._lacking[id(evidence)] = lacking(asked, evidence.quantities)
            self._held.append(evidence)
        return lacks

    def _judge(
        self, scored: Sequence[tuple[float, int]], evidence: Prepared, others: Container[int], overlap: float
    ) -> Features:
        """Judge the claim against the candidate sentences. ``scored`` lists the sentences that contain much of the
        claim, with their shares of it, largest first. ``others`` are the sentences about a different subject."""
        repeated = verbatim(self._sentence, evidence, others)
        target = self._sentence
        if not scored and not repeated:
            return Features(overlap=overlap)
        absent = bool(self._lacks(evidence))
        universal = target.quantifier == UNIVERSAL
        seen = _Seen()
        looks: list[_Look] = []
        for coverage, place in scored[:_CANDIDATES]:
            looks.append(self._look(evidence.sentences[place], coverage))
            seen.take(looks[-1], evidence, absent=absent)
            if repeated >= _SETTLED and not universal and seen.contained >= 1.0:
                break  # From here on, coverage only decreases.
        if seen.differing is not None and self._told_by_another(seen.differing, evidence.sentences, others):
            seen.quantity = (0.0, None)
        quoted = not repeated and target.run in evidence.run
        if quoted and any(target.run in one.run and put_in_doubt(target, one) for one in evidence.sentences):
            seen.contained = 0.0
        if max(repeated, seen.contained) >= _SETTLED:
            seen.settle(universal=universal)
        elif crossed([look.pair for look in looks]):
            seen.roles = 1.0
        if seen.roles or (seen.polarity and not repeated):
            seen.contained = 0.0
        return Features(
            verbatim=repeated,
            contained=seen.contained,
            overlap=overlap,
            quantity_differs=seen.quantity[0],
            polarity_differs=seen.polarity,
            roles_swapped=seen.roles,
            name_differs=seen.name[0],
            overclaims=seen.overclaims,
            detail=seen.quantity[1] or seen.name[1],
        )


def _named(subject: frozenset[str], place: int, sentences: Sequence[ParsedSentence]) -> frozenset[str]:
    """Return the words of ``subject`` that the sentence contains. If the sentence refers back to the previous one, the
    words of the previous sentence count too."""
    around = sentences[max(0, place - sentences[place].leans) : place + 1]
    return subject & {key for sentence in around for key in sentence.keys}


def _kind(quantity: Quantity) -> tuple[str, str]:
    return quantity.kind, "duration" if quantity.unit == "months" else quantity.unit


def _other_name(look: _Look, evidence: Prepared) -> tuple[float, str | None]:
    found = name_differs(look.pair)
    if found[0] and look.pair.claim.keys[-1] in evidence.keys:
        found = min(found[0], ANOTHER), found[1]
    return name_replaced(look.pair, look.words, evidence.keys) if look.words and not found[0] else found


def _best_neighbourhood(
    frame: Mapping[str, float], evidence: Prepared, candidates: Sequence[tuple[float, int]]
) -> float:
    """Return the largest share of the claim that a candidate sentence and its two neighbours contain together."""
    best = 0.0
    for _, place in candidates:
        keys: set[str] = set()
        for sentence in evidence.sentences[max(0, place - 1) : place + 2]:
            keys |= sentence.weights.keys()
        best = max(best, share_of(frame, keys))
        if best == 1.0:
            break
    return best
