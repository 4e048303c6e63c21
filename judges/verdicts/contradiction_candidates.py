"""Decides from words and numbers whether two statements are about the same thing and differ in one respect.

Documents are full of similar statements that are all true, such as prices of several plans or figures for several
years. Two such statements can therefore only contradict each other if they differ in a single thing. If they differ in
two (the year and the amount, or the plan and the price), they are about different things. In 700 passages of the
training data, 46 of 55,000 pairs of sentences are candidates, one of them definite.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from judges.features import Features, Prepared, compute
from judges.features.numbers import Quantity, QuantityKind, agree
from judges.features.words.stemming import lexeme

_MIN_SHARED_WEIGHT: Final = 1.3
"""The minimum total weight of the words that two statements must share. A single content word isn't enough, because a
statement such as "Price: 9 euros" may be about anything."""
_MIN_SHARED_RATIO: Final = 0.6
"""The minimum share of the longer statement's words that both statements contain."""
_MIN_FEATURE: Final = 0.9
"""A feature counts as present if its value is at least this high."""
_END: Final = re.compile(r"[.!。！।؟۔][\"'”’»)\]\s]*\Z")
_LABELLED: Final = re.compile(r"\W*+(?:[^\s:：]++[ \t]++){0,5}[^\s:：]++[:：](?!\d)")
_NAMING: Final = frozenset(
    {QuantityKind.WEEKDAY, QuantityKind.REFERENCE, QuantityKind.IDENTIFIER, QuantityKind.ORDINAL}
)
"""Kinds of quantity that name a thing."""
_LEAD: Final = r"(\A\W*|[.!?]\s+|\b(?:the|a|an|this|that|our|der|die|das|dem|den|le|la|les|el|los|las)\s+)?"
"""Words that precede a noun. After one of them, "bus 42" names a thing ("the bus 42 stops"); without one, "42" is an
amount ("holds 42 books")."""
_TIMES: Final = re.compile(
    r"\b(?:now|currently|today|nowadays|previously|formerly|originally|initially|earlier|once|until recently|used to"
    r"|no longer|instead|jetzt|derzeit|heute|inzwischen|früher|vorher|ursprünglich|bisher|statt|stattdessen"
    r"|actuellement|désormais|auparavant|autrefois|ahora|actualmente|antes|anteriormente)\b",
    re.IGNORECASE,
)
"""Words that distinguish one time from another. A statement that was true then need not be true now."""


@dataclass(frozen=True, slots=True)
class ContradictionCandidate:
    """Two statements that may contradict each other. ``definite`` means that their words and numbers alone show that
    they do."""

    definite: bool


def contradiction_candidate(one: Prepared, other: Prepared) -> ContradictionCandidate | None:
    """Compare two statements. Return None if they are about different things, or don't differ in exactly one
    respect."""
    if not (_is_sentence(one) and _is_sentence(other)):
        return None
    words, others = _weights(one), _weights(other)
    shared = sum(weight for key, weight in words.items() if key in others)
    longer = max(sum(words.values()), sum(others.values()))
    if (
        shared < max(_MIN_SHARED_WEIGHT, _MIN_SHARED_RATIO * longer)
        or _TIMES.search(one.text)
        or _TIMES.search(other.text)
    ):
        return None
    replaced = _without(words, others) and _without(others, words)
    changed = _changed(one.quantities, other.quantities)
    if any(_names(one, mine) or _names(other, theirs) for mine, theirs in changed):
        return None
    there, back = compute(one, other), compute(other, one)
    turned = any(max(_turned(features)) >= _MIN_FEATURE for features in (there, back))
    if replaced + len(changed) + turned != 1 or _conditions(one) != _conditions(other):
        return None
    definite = all(max(features.quantity_differs, *_turned(features)) >= _MIN_FEATURE for features in (there, back))
    return ContradictionCandidate(definite and not _only_dates(changed))


def _weights(text: Prepared) -> dict[str, float]:
    """Return the weights of the text's words, without its quantities, which are compared separately."""
    every = (item for sentence in text.sentences for item in sentence.weights.items())
    return {key: weight for key, weight in every if not key.startswith("#")}


def _without(mine: Mapping[str, float], theirs: Mapping[str, float]) -> bool:
    """Return whether ``mine`` has a content word that ``theirs`` lacks."""
    return any(weight >= 1.0 and key not in theirs for key, weight in mine.items())


def _is_sentence(text: Prepared) -> bool:
    """Return whether the text is a whole sentence. Fragments such as "Participants: 3" occur in many tables, each time
    about a different thing."""
    return _END.search(text.text) is not None and not _LABELLED.match(text.text)


def _changed(one: Sequence[Quantity], other: Sequence[Quantity]) -> list[tuple[Quantity, Quantity]]:
    """Return the pairs of differing quantities."""
    return list(zip(_alone(one, other), _alone(other, one), strict=False))


def _alone(one: Sequence[Quantity], other: Sequence[Quantity]) -> list[Quantity]:
    return [quantity for quantity in one if not any(agree(quantity, theirs) for theirs in other)]


def _names(text: Prepared, quantity: Quantity) -> bool:
    """Return whether a quantity is part of a thing's name, as in "building 7". Another quantity then means another
    thing."""
    if quantity.kind in _NAMING:
        return True
    before = re.search(rf"{_LEAD}([^\W\d_]+)\s+{re.escape(quantity.text.split()[0])}(?!\w)", text.text, re.IGNORECASE)
    if quantity.kind is not QuantityKind.NUMBER or quantity.unit or before is None:
        return False
    return (before[1] is not None or not quantity.noun) and lexeme(before[2].lower()).weight >= 1.0


def _only_dates(changed: Sequence[tuple[Quantity, Quantity]]) -> bool:
    """Return whether a date or time differs. If so, both statements may be true, because things may happen more than
    once."""
    return any(quantity.kind in (QuantityKind.DATE, QuantityKind.TIME) for pair in changed for quantity in pair)


def _turned(features: Features) -> tuple[float, float]:
    return features.polarity_differs, features.roles_swapped


def _conditions(text: Prepared) -> int:
    return sum(sentence.conditions for sentence in text.sentences)
