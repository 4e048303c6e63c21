"""Whether two statements are of one thing and differ in one respect, as far as their words and numbers tell.

A text is full of statements that are much alike and all true: prices of several plans, figures of several years. So
two of them contradict each other only where a single thing is changed. Where two are (another year and another amount,
another plan and another price), they speak of different things. Of 55,000 pairs of sentences in 700 passages of the
training data, 46 pass, one of them as definite.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from judges.features import Features, Prepared, compute
from judges.features.numbers import Kind, Quantity, Relation, relate
from judges.features.words.stemming import lexeme

_LEAST_SHARED: Final = 1.3
"""The weight of the words that both must have: a word with content and one that says little. "Price: 9 euros" may be
said of anything."""
_ALIKE: Final = 0.6
"""The share of the longer statement's words that both must have."""
_SEEN: Final = 0.9
_END: Final = re.compile(r"[.!。！।؟۔][\"'”’»)\]\s]*\Z")
_LABELLED: Final = re.compile(r"\W*+(?:[^\s:：]++[ \t]++){0,5}[^\s:：]++[:：](?!\d)")
_NAMING: Final = frozenset({Kind.WEEKDAY, Kind.REFERENCE, Kind.IDENTIFIER, Kind.ORDINAL})
"""Quantities that are names."""
_LEAD: Final = r"(\A\W*|[.!?]\s+|\b(?:the|a|an|this|that|our|der|die|das|dem|den|le|la|les|el|los|las)\s+)?"
"""What stands before a noun: with it "bus 42 stops" is of the bus 42, without it "holds 42 books" of 42 books."""
_TIMES: Final = re.compile(
    r"\b(?:now|currently|today|nowadays|previously|formerly|originally|initially|earlier|once|until recently|used to"
    r"|no longer|instead|jetzt|derzeit|heute|inzwischen|früher|vorher|ursprünglich|bisher|statt|stattdessen"
    r"|actuellement|désormais|auparavant|autrefois|ahora|actualmente|antes|anteriormente)\b",
    re.IGNORECASE,
)
"""Words that set one time off from another: what held then need not hold now."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two statements that may contradict each other. ``definite``: the words and numbers alone say so."""

    definite: bool


def contrast(one: Prepared, other: Prepared) -> Contrast | None:
    """None where the two are not of one thing, or do not differ in exactly one respect."""
    if not (_states(one) and _states(other)):
        return None
    words, others = _weights(one), _weights(other)
    shared = sum(weight for key, weight in words.items() if key in others)
    longer = max(sum(words.values()), sum(others.values()))
    if shared < max(_LEAST_SHARED, _ALIKE * longer) or _TIMES.search(one.text) or _TIMES.search(other.text):
        return None
    replaced = _without(words, others) and _without(others, words)
    changed = _changed(one.quantities, other.quantities)
    if any(_names(one, mine) or _names(other, theirs) for mine, theirs in changed):
        return None
    there, back = compute(one, other), compute(other, one)
    turned = any(max(_turned(features)) >= _SEEN for features in (there, back))
    if replaced + len(changed) + turned != 1 or _conditions(one) != _conditions(other):
        return None
    definite = all(max(features.quantity_differs, *_turned(features)) >= _SEEN for features in (there, back))
    return Contrast(definite and not _dated(changed))


def _weights(text: Prepared) -> dict[str, float]:
    """The weights of its words; not of its quantities, which are compared by themselves."""
    every = (item for sentence in text.sentences for item in sentence.weights.items())
    return {key: weight for key, weight in every if not key.startswith("#")}


def _without(mine: Mapping[str, float], theirs: Mapping[str, float]) -> bool:
    """Whether there is a word with content on one side alone."""
    return any(weight >= 1.0 and key not in theirs for key, weight in mine.items())


def _states(text: Prepared) -> bool:
    """Whether it is a whole sentence. "Participants: 3" stands in every table, each time of something else."""
    return _END.search(text.text) is not None and not _LABELLED.match(text.text)


def _changed(one: Sequence[Quantity], other: Sequence[Quantity]) -> list[tuple[Quantity, Quantity]]:
    """The quantities that stand in place of others."""
    return list(zip(_alone(one, other), _alone(other, one), strict=False))


def _alone(one: Sequence[Quantity], other: Sequence[Quantity]) -> list[Quantity]:
    return [quantity for quantity in one if not any(relate(quantity, theirs) is Relation.AGREE for theirs in other)]


def _names(text: Prepared, quantity: Quantity) -> bool:
    """Whether a quantity says which thing is meant, so that another one makes it another thing: "building 7"."""
    if quantity.kind in _NAMING:
        return True
    before = re.search(rf"{_LEAD}([^\W\d_]+)\s+{re.escape(quantity.text.split()[0])}(?!\w)", text.text, re.IGNORECASE)
    if quantity.kind is not Kind.NUMBER or quantity.unit or before is None:
        return False
    return (before[1] is not None or not quantity.noun) and lexeme(before[2].lower()).weight >= 1.0


def _dated(changed: Sequence[tuple[Quantity, Quantity]]) -> bool:
    """Only a date differs: things happen more than once."""
    return any(quantity.kind in (Kind.DATE, Kind.TIME) for pair in changed for quantity in pair)


def _turned(features: Features) -> tuple[float, float]:
    return features.polarity_differs, features.roles_swapped


def _conditions(text: Prepared) -> int:
    return sum(sentence.conditions for sentence in text.sentences)
