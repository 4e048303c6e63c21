"""Detects quantities in a claim that differ from those in an otherwise similar sentence, and rewrites quantities that
differ only in form."""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Final

from judges.features.numbers import (
    BoundKind,
    Quantity,
    QuantityKind,
    Relation,
    agree,
    compare_quantities,
    lacking,
    relate,
    within,
)
from judges.features.parsed_text import NAMING, ParsedSentence, Prepared
from judges.features.sentence_pair import ALIKE, ANOTHER, SentencePair, gap, has_content, has_word, opposites, words_of
from judges.features.words.lexicon import EXCEPTING, OF_THE_REST, OFTEN, OPEN_ENDED, SHIFTING, TOTALS

_MOST_TIMES: Final = 400
_EXCEPTED: Final = 4
"""Number of words after "except" that are searched for weekdays ("except on Sundays and Mondays")."""
_NAMES_A_THING: Final = (*NAMING, QuantityKind.DATE, QuantityKind.ORDINAL)


def quantity_differs(pair: SentencePair) -> tuple[float, str | None]:
    mine, theirs = pair.claim.quantities, pair.evidence.quantities
    if not mine or not theirs:
        return 0.0, None
    strength = _frame_strength(pair)
    if not strength or not _same_polarity(pair):
        return 0.0, None
    open_, taken = [], set()
    for place, quantity in mine:
        agreeing = [
            other
            for other, theirs_ in theirs
            if (agree(quantity, theirs_) or _named_alike(quantity, theirs_, pair))
            and not _other_end(quantity, other, theirs)
        ]
        taken.update(agreeing)
        if not agreeing and not _bounded(quantity, theirs) and not _follows(quantity, pair):
            open_.append((place, quantity))
    if open_ and (_of_another(pair, open_) or opposites(pair)):
        strength *= ANOTHER
    excepted = _excepted(pair.evidence)
    free = [(place, other) for place, other in theirs if place not in taken and other.key not in excepted]
    best, detail = 0.0, None
    open_ended = has_word(pair.evidence, OPEN_ENDED)
    for place, quantity in open_:
        if open_ended and quantity.kind in (QuantityKind.IDENTIFIER, QuantityKind.NUMBER) and not quantity.noun:
            continue  # "1.24 and earlier" includes 1.23.
        sure, other = _counterpart(pair, place, quantity, free)
        if other is not None and sure * strength > best:
            best, detail = sure * strength, f"{quantity.text} where the source says {other.text}"
    return best, detail


def _named_alike(quantity: Quantity, other: Quantity, pair: SentencePair) -> bool:
    """Return whether both numbers are part of the same name, such as "Apollo 11". The word after the number doesn't
    matter."""
    if (
        quantity.kind is not QuantityKind.NUMBER
        or other.kind is not QuantityKind.NUMBER
        or quantity.values != other.values
    ):
        return False
    mine, theirs = words_of(pair.claim), words_of(pair.evidence)
    if quantity.key not in mine or other.key not in theirs:
        return False
    before = mine[mine.index(quantity.key) - 1]
    return has_content(before) and before == theirs[theirs.index(other.key) - 1]


def _bounded(quantity: Quantity, theirs: Sequence[tuple[int, Quantity]]) -> bool:
    """Return whether the evidence has several bounds and the quantity is within one of them. For example, 20 is allowed
    if one rule applies up to 10 and another above 10."""
    if quantity.bound not in (BoundKind.EXACT, BoundKind.ABOUT) or not quantity.values:
        return False
    alike = [
        other for _, other in theirs if (other.kind, other.unit) == (quantity.kind, quantity.unit) and other.values
    ]
    value = quantity.values[0]
    return len(alike) > 1 and any(
        (other.bound is BoundKind.AT_LEAST and value > other.values[0])
        or (other.bound is BoundKind.AT_MOST and value < other.values[0])
        for other in alike
    )


def _excepted(sentence: ParsedSentence) -> set[str]:
    """Return the weekdays that the sentence excludes, as in "daily except Sundays"."""
    if all(quantity.kind is not QuantityKind.WEEKDAY for _, quantity in sentence.quantities):
        return set()
    words = words_of(sentence)
    return {
        behind
        for place, word in enumerate(words)
        if word in EXCEPTING
        for behind in words[place + 1 : place + 1 + _EXCEPTED]
        if behind.startswith("#weekday")
    }


def has_all(claim: ParsedSentence, evidence: ParsedSentence) -> bool:
    """Return whether a sentence contains or allows all quantities in a claim. For example, "11 to 20" allows 20, and
    "above 10,000" allows 15,000."""
    mine, theirs = ([quantity for _, quantity in sentence.quantities] for sentence in (claim, evidence))
    ends = {end.key for pair in pairwise(mine) if pair[0].opens for end in pair}
    ranges = [(one, other) for one, other in pairwise(theirs) if one.opens]
    summed = has_word(claim, TOTALS)
    return all(
        any(agree(quantity, other) for other in theirs)
        or _allowed(quantity, theirs)
        or ((summed or quantity.change or quantity.unit == "duration") and not lacking([quantity], theirs))
        or (quantity.key not in ends and _in_one_of(quantity, ranges))
        for quantity in mine
    )


def _allowed(quantity: Quantity, theirs: Sequence[Quantity]) -> bool:
    """Return whether the evidence has exactly one bound of the quantity's kind and allows the quantity. A quantity that
    is itself a bound is never allowed."""
    alike = [other for other in theirs if (other.kind, other.unit) == (quantity.kind, quantity.unit) and other.values]
    if len(alike) != 1 or not quantity.values or quantity.bound not in (BoundKind.EXACT, BoundKind.ABOUT):
        return False
    value, border, bound = quantity.values[0], alike[0].values[0], alike[0].bound
    return (bound is BoundKind.AT_LEAST and value >= border) or (bound is BoundKind.AT_MOST and value <= border)


def _same_polarity(pair: SentencePair) -> bool:
    """Return whether both sentences are affirmative or both are negative. The sentences "40 % do" and "60 % do not",
    for example, have different polarities."""
    claim, evidence = pair.claim, pair.evidence
    first, last = (pair.anchors[0][1], pair.anchors[-1][1]) if pair.anchors else (0, len(evidence.keys))
    beside = [place for place in evidence.denials if first <= place <= last]
    if (len(claim.negations) + len(beside)) % 2:
        return False
    shared = claim.signs.keys() & evidence.signs.keys()
    return all({sign for _, sign in claim.signs[key]} & {sign for _, sign in evidence.signs[key]} for key in shared)


def _other_end(quantity: Quantity, place: int, theirs: Sequence[tuple[int, Quantity]]) -> bool:
    """Return whether the evidence's quantity is the end of a range that the claim's bound does not refer to. For "3 to
    5", the bound "at most 4" refers to the 5, not to the 3."""
    if quantity.bound not in (BoundKind.AT_MOST, BoundKind.AT_LEAST):
        return False
    at = next(index for index, (other, _) in enumerate(theirs) if other == place)
    low = theirs[at][1].opens
    high = at > 0 and theirs[at - 1][1].opens
    return (low and quantity.bound is BoundKind.AT_MOST) or (high and quantity.bound is BoundKind.AT_LEAST)


def _follows(quantity: Quantity, pair: SentencePair) -> bool:
    """Return whether the quantity can be derived from the evidence's quantities: as a value in a range, a sum, a time
    span, or a multiple."""
    mine = [other for _, other in pair.claim.quantities]
    theirs = [other for _, other in pair.evidence.quantities]
    ranges = [(one, other) for one, other in pairwise(theirs) if one.opens]
    if (
        ranges
        and _in_one_of(quantity, ranges)
        and not any(one.opens and quantity in (one, two) for one, two in pairwise(mine))
    ):
        return True
    summed = quantity.change or quantity.unit == "duration" or has_word(pair.claim, TOTALS)
    if summed and not lacking([quantity], theirs):
        return True
    if (quantity.per or has_word(pair.claim, TOTALS)) and any(_times_over(quantity, other, pair) for other in theirs):
        return True
    counts = [other for other in mine if other.kind is QuantityKind.NUMBER and other.noun and other is not quantity]
    if not counts or not quantity.values or has_word(pair.claim, ("each", "per")):
        return False
    alike = [
        other.values[0]
        for other in theirs
        if other.kind is quantity.kind and other.unit == quantity.unit and other.values
    ]
    return any(
        any(one * count.values[0] == quantity.values[0] for one in alike)
        for count in counts
        if not any(agree(count, one) for one in theirs)
    )


def _times_over(quantity: Quantity, other: Quantity, pair: SentencePair) -> bool:
    """Return whether the claim's quantity may be a multiple of the evidence's quantity. For example, the claim says "1
    g a day" and the evidence says "500 mg every 12 hours"."""
    if (quantity.kind, quantity.unit) != (other.kind, other.unit) or quantity.per == other.per:
        return False
    often = (
        other.per or has_word(pair.evidence, OFTEN) or any(one.unit == "times" for _, one in pair.evidence.quantities)
    )
    if not often or not quantity.values or not other.values or other.values[0] <= 0:
        return False
    times = quantity.values[0] / other.values[0]
    return 1 < times <= _MOST_TIMES and times == times.to_integral_value()


def _in_one_of(quantity: Quantity, ranges: Sequence[tuple[Quantity, Quantity]]) -> bool:
    """Return whether the quantity is in one of the ranges. If the quantity is a bound, return whether it includes one
    of the ranges completely."""
    if quantity.bound in (BoundKind.EXACT, BoundKind.ABOUT):
        return any(within(quantity, low, high) for low, high in ranges)
    value = quantity.values[:1]
    ends = [high if quantity.bound is BoundKind.AT_MOST else low for low, high in ranges]
    alike = [end.values[:1] for end in ends if (end.kind, end.unit) == (quantity.kind, quantity.unit) and end.values]
    return bool(value) and any(end <= value if quantity.bound is BoundKind.AT_MOST else end >= value for end in alike)


def _of_another(pair: SentencePair, open_: Sequence[tuple[int, Quantity]]) -> bool:
    """Return whether the sentence seems to be about a different year, article or model, so that it doesn't contradict
    the claim."""
    theirs = [other for _, other in pair.evidence.quantities]
    named = [
        place
        for place, quantity in open_
        if quantity.kind in _NAMES_A_THING and any(relate(quantity, other) is Relation.DIFFER for other in theirs)
    ]
    known = [place for place, quantity in pair.claim.quantities if quantity.kind in _NAMES_A_THING]
    if 0 < len(named) < len(open_) and len(named) == len(known) and min(named) <= 1:
        return True
    if len(open_) != 1:
        return False
    place, quantity = open_[0]
    bare = quantity.kind is QuantityKind.NUMBER and not quantity.noun and quantity.factor == 1 and place == 1
    model = bare and _behind_a_name(pair.claim, quantity)
    subject = place <= 1 and quantity.kind in (QuantityKind.REFERENCE, QuantityKind.IDENTIFIER)
    return (model or subject) and any(at <= 1 for at, _ in pair.evidence.quantities)


def _behind_a_name(sentence: ParsedSentence, quantity: Quantity) -> bool:
    words = words_of(sentence)
    return quantity.key in words and has_content(words[words.index(quantity.key) - 1])


def _counterpart(
    pair: SentencePair, place: int, quantity: Quantity, free: Sequence[tuple[int, Quantity]]
) -> tuple[float, Quantity | None]:
    """Find the quantity in the evidence that corresponds to the claim's quantity. Return how certain the match is, and
    the quantity found."""
    low, high = gap(pair.anchors, place, len(pair.evidence.keys))
    if quantity.kind is QuantityKind.POINTS:
        found = compare_quantities([quantity], [other for _, other in pair.evidence.quantities]).findings[0]
        return (0.9 if found.relation is Relation.DIFFER else 0.0), found.other
    differing = [
        (at, other)
        for at, other in free
        if relate(quantity, other) is Relation.DIFFER and not _complement(quantity, other, pair)
    ]
    for at, other in differing:
        if low <= at < high:
            return 1.0, other
    differing = [(at, other) for at, other in differing if other.unit == quantity.unit]
    if differing:
        return (0.9 if len(differing) == 1 else ANOTHER), differing[0][1]
    ranged = {at for (at, one), _ in pairwise(pair.evidence.quantities) if one.opens}
    for at, other in free:
        anchored = (place - 1, at - 1) in pair.anchors
        if (
            anchored
            and low <= at < high
            and other.kind is not quantity.kind
            and at not in ranged
            and pair.lacking == 0
            and _amount(quantity, other)
            and not _unit_left_out(quantity, other)
            and not _changed_by(pair)
        ):
            figures = quantity.values == other.values or quantity.text.split(" ")[0] == other.text.split(" ")[0]
            return (1.0 if figures else ANOTHER), other
    return 0.0, None


def _complement(quantity: Quantity, other: Quantity, pair: SentencePair) -> bool:
    """Return whether one sentence says that something applies up to a limit, and the other that it doesn't apply beyond
    this limit."""
    if quantity.values[:1] != other.values[:1] or quantity.bound is other.bound:
        return False
    claim, evidence = pair.claim, pair.evidence
    turned = len(claim.negations) != len(evidence.negations) or any(
        has_word(one, SHIFTING) or has_word(one, OF_THE_REST) for one in (claim, evidence)
    )
    signs = [{sign for places in one.signs.values() for _, sign in places} for one in (claim, evidence)]
    return turned or signs[0] != signs[1]


def _unit_left_out(one: Quantity, other: Quantity) -> bool:
    """Return whether the quantities may differ only because one omits its unit ("43 or 44 years old" and "43 years
    old"). Also return True for "pounds" that may be either money or a weight."""
    if {one.kind, other.kind} == {QuantityKind.MONEY, QuantityKind.MEASURE} and "GBP" in (one.unit, other.unit):
        return any("pound" in each.text.lower() for each in (one, other))
    if {one.unit, other.unit} == {"times", ""} and QuantityKind.PERCENT in (one.kind, other.kind):
        share, times = (one, other) if one.kind is QuantityKind.PERCENT else (other, one)
        return share.values[0] == times.values[0] * 100
    bare, full = (one, other) if one.kind is QuantityKind.NUMBER else (other, one)
    return bare.kind is QuantityKind.NUMBER and f" {bare.text} " in f" {full.text} "


def _changed_by(pair: SentencePair) -> bool:
    """Return whether the claim uses "by" and the evidence doesn't, as in "fell by 20 %" and "fell from 50 to 40
    dollars"."""
    return has_word(pair.claim, ("by",)) and not has_word(pair.evidence, ("by",))


def _amount(quantity: Quantity, other: Quantity) -> bool:
    amounts = (QuantityKind.NUMBER, QuantityKind.PERCENT, QuantityKind.POINTS, QuantityKind.MONEY, QuantityKind.MEASURE)
    return quantity.kind in amounts and other.kind in amounts


def _frame_strength(pair: SentencePair) -> float:
    """Return how certain it is that the two sentences are about the same thing."""
    if pair.lacking == 0 and (pair.shared or _names_same(pair)):
        return 1.0
    if pair.shared == pair.lacking == 0 and pair.claim.leans:
        return 0.5
    return 0.5 if pair.coverage >= 0.8 and pair.lacking <= 1 else 0.0


def _names_same(pair: SentencePair) -> bool:
    keys = pair.evidence.keys
    return any(quantity.kind in NAMING and quantity.key in keys for _, quantity in pair.claim.quantities)


def numbers_exchanged(pair: SentencePair) -> float:
    """Detect two swapped quantities: "60 % bonds and 40 % shares" instead of "60 % shares and 40 % bonds"."""
    if pair.coverage < ALIKE or min(len(pair.claim.quantities), len(pair.evidence.quantities)) < 2:
        return 0.0
    if len(pair.anchors) == len(pair.claim.keys):  # The evidence contains the whole claim in the same order.
        return 0.0
    mine, theirs = _labels(pair.claim), _labels(pair.evidence)
    return float(
        any(
            one.partition(":")[0] == other.partition(":")[0]
            and mine[one] != mine[other]
            and (mine[one], mine[other]) == (theirs[other], theirs[one])
            for one, other in combinations(sorted(mine.keys() & theirs.keys()), 2)
        )
    )


def _labels(sentence: ParsedSentence) -> dict[str, str]:
    """Return the word that each quantity belongs to. This is the following word, or the preceding word if the last
    quantity ends the sentence."""
    last = sentence.quantities[-1][0]
    return _beside(sentence, 1 if last + 1 < len(sentence.keys) else -1)


def _beside(sentence: ParsedSentence, step: int) -> dict[str, str]:
    """For each quantity that occurs once in the sentence, return the word that is ``step`` positions away. The period
    of a rate is ignored."""
    keys = [key.partition("/")[0] for key in sentence.keys]
    return {
        keys[place]: keys[place + step]
        for place, _ in sentence.quantities
        if 0 <= place + step < len(keys) and keys.count(keys[place]) == 1
    }


_CONVERTED = frozenset(
    (
        QuantityKind.MEASURE,
        QuantityKind.MONEY,
        QuantityKind.PERCENT,
        QuantityKind.POINTS,
        QuantityKind.NUMBER,
        QuantityKind.DATE,
        QuantityKind.TIME,
    )
)


def as_written(text: str, claim: Prepared, evidence: Sequence[Prepared]) -> str:
    """Rewrite the quantities in ``text`` that come from ``claim`` and that the evidence has only in another form: "72
    hours" instead of "three days". A model recognizes synonyms, but rarely equivalent numbers."""
    said = {other.text for window in evidence for other in window.quantities} if claim.quantities else set()
    unsaid = [mine for mine in claim.quantities if mine.kind in _CONVERTED and mine.text not in said]
    if not unsaid:
        return text
    forms: dict[str, str] = {}
    for window in evidence:
        for other in window.quantities:
            forms.setdefault(other.key, other.text)
    for mine in unsaid:
        form = forms.get(mine.key)
        if form and text.count(mine.text) == 1:
            text = text.replace(mine.text, form)
    return text
