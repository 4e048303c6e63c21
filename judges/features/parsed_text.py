"""Parses text once, so that each comparison with it is cheap."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Final

from msgspec import Struct

from judges.features.numbers import Quantity, QuantityKind, Token, extract, normalise, scan, vocabulary
from judges.features.words import lexicon
from judges.features.words.stemming import Lexeme, lexeme

_MARKERS: Final = re.compile(r"\[(?!\d{4}\])\^?[\w.:†#-]{1,24}\](?!\()|【[^】\n]{0,60}】")
_LINK: Final = re.compile(r"!?\[([^\]\[\n]{1,200})\]\([^()\s]{1,400}\)")
_LIST_NUMBER: Final = re.compile(
    r"\s*\(?(?:\d{1,2}|[A-Za-z])\)\s+"
    r"(?=(?:The|This|These|Your|You|He|She|It|We|They|Then)\s"
    r"|[A-ZÀ-Þ][a-zß-ÿ]{1,20}(?<![^s]s)\s(?:your|this|these|it|Sie|Ihren?|votre|vos|sus?|tus?"
    r"|the(?!\s(?:first|next|same|last|day|night|morning|evening|week|month|year)))\s)"
)
"""The number or letter of a list item ("(1) Open the app"). The words after it show that it counts nothing, unlike the
number in "(1) Tablet daily"."""
_ENDS: Final = frozenset(".!?。！？")
_CLAUSE_MARKS: Final = frozenset(",;:、；()")
_COMPARING_MARKS: Final = frozenset("<>≥≤~≈")
"""Marks that turn the number after them into a bound. A word-for-word repetition of a sentence must include them."""
_BREAKS: Final = frozenset({"", ".", ";", ",", "!", "?"})
SEPARATOR: Final = lexicon.SEPARATOR
ELLIPSIS: Final = -1
"""Stands for the clause of a negation whose negated part is omitted ("the other does not")."""
_QUOTES: Final = frozenset('"“”»」)')
NAMING: Final = (QuantityKind.REFERENCE, QuantityKind.IDENTIFIER, QuantityKind.WEEKDAY)
_NAMING_WEIGHT: Final = 0.6
_MAX_KEYS: Final = 120
_PERIOD_WITHIN: Final = 5
"""Number of words after a rate in which its period may be named: "60 signed requests per minute"."""
_PERIOD_KEYS: Final = {
    vocabulary.UNITS[word]: lexeme(word).key for word in ("second", "minute", "hour", "day", "week", "month", "year")
}
_FUNCTIONAL: Final = frozenset({"may"}).union(
    lexicon.AHEAD,
    lexicon.INTENDING,
    lexicon.NEGATIONS,
    lexicon.QUANTIFIERS,
    lexicon.HEDGES,
    lexicon.CONDITIONS,
    lexicon.CONTRASTS,
    lexicon.DEGREES,
    lexicon.RELATORS,
)
"""The function words that qualify a statement. All other function words can be skipped."""


class ParsedSentence(Struct, frozen=True):
    """A parsed sentence. ``keys`` are its content words (as stems or concepts) and its quantities, in order. Positions
    are indexes into ``keys``."""

    run: str
    """The normalized forms of all tokens in order, for the verbatim test."""
    keys: tuple[str, ...]
    weights: Mapping[str, float]
    """The weight of each content word, and of each quantity that names a thing."""
    weight: float
    quantities: tuple[tuple[int, Quantity], ...]
    names: Mapping[str, str]
    """The capitalized words in the sentence, except the first word, as a map from key to spelling."""
    clauses: tuple[int, ...]
    """The clause that contains each key."""
    negations: tuple[int, ...]
    """The clause that contains each negation, or ``ELLIPSIS``."""
    denials: tuple[int, ...]
    """The position in ``keys`` that follows each negation. Negations whose negated part is omitted are not included."""
    signs: Mapping[str, Sequence[tuple[int, int]]]
    """The concepts, with the position and sign of each occurrence."""
    quantifier: int
    hedged: bool
    ahead: bool
    """Whether the sentence contains a word for something planned or in the future."""
    conditions: int
    relation: tuple[str, int, int] | None
    """The word that relates two things, such as "than" or "before", with its sign and position. None unless there is
    exactly one."""
    leans: bool
    """Whether the sentence begins with a pronoun or a connective and so depends on the previous sentence."""
    leads: bool
    """Whether the sentence ends with a colon, so that the following text completes it."""


class Prepared(Struct, frozen=True):
    """Parsed text, with its sentences."""

    text: str
    sentences: tuple[ParsedSentence, ...]
    keys: frozenset[str]
    quantities: tuple[Quantity, ...]
    run: str
    context: Mapping[str, float]
    """The weights of the words in the text before a claim that identify its subject. Empty for evidence."""
    asked: frozenset[str] = frozenset()
    """The content words of the question that a claim answers."""
    parts: "tuple[Prepared, ...]" = ()
    """The pieces of evidence, if several were combined."""


def prepare(text: str, context: str = "", asked: str = "") -> Prepared:
    """Parse ``text`` in time linear in its length. Markdown emphasis, links and citation markers are ignored.

    ``context`` is the sentence before a claim such as "It costs 5 euros." It identifies the claim's subject, but isn't
    compared with the evidence. ``asked`` is the question that a claim answers. It determines which of several things in
    the evidence is meant.
    """
    clean = _MARKERS.sub("", _LINK.sub(r"\1", normalise(text))) if "[" in text or "【" in text else normalise(text)
    clean = clean[lead.end() :] if (lead := lexicon.LEAD_IN.match(clean)) else clean
    clean = clean[number.end() :] if (number := _LIST_NUMBER.match(clean)) else clean
    tokens = scan(clean)
    quantities = extract(tokens)
    by_start = {quantity.first: quantity for quantity in quantities}
    sentences = tuple(_read(tokens, first, last, by_start) for first, last in _cut(tokens, by_start))
    sentences = tuple(sentence for sentence in sentences if sentence.run.count(SEPARATOR) > 2) or sentences[:1]
    return Prepared(
        text=text,
        sentences=sentences,
        keys=frozenset(key for sentence in sentences for key in sentence.weights),
        quantities=tuple(quantities),
        run=SEPARATOR + "".join(sentence.run[1:] for sentence in sentences),
        context=_weights(prepare(context).sentences) if context else {},
        asked=frozenset(key for key, weight in _weights(prepare(asked).sentences).items() if weight == 1.0)
        if asked
        else frozenset(),
    )


def together(parts: Sequence[Prepared]) -> Prepared:
    """Combine several pieces of evidence into one, without parsing them again."""
    if len(parts) == 1:
        return parts[0]
    return Prepared(
        text="\n".join(part.text for part in parts),
        sentences=tuple(sentence for part in parts for sentence in part.sentences),
        keys=frozenset().union(*(part.keys for part in parts)),
        quantities=tuple(quantity for part in parts for quantity in part.quantities),
        run=SEPARATOR + "".join(part.run[1:] for part in parts),
        context={},
        parts=tuple(parts),
    )


def _weights(sentences: Sequence[ParsedSentence]) -> dict[str, float]:
    return {key: weight for sentence in sentences for key, weight in sentence.weights.items()}


def _cut(tokens: Sequence[Token], quantities: Mapping[int, Quantity]) -> list[tuple[int, int]]:
    """Find approximate sentence boundaries. A wrong boundary affects one feature, not the verdict."""
    spans: list[tuple[int, int]] = []
    start = index = 0
    count = len(tokens)
    while index < count:
        if index in quantities and quantities[index].last > index:
            index = quantities[index].last
            if index < count and tokens[index - 1].text.endswith(".") and tokens[index].text[0].isupper():
                spans.append((start, index))
                start = index
            continue
        token = tokens[index]
        index += 1
        if token.text == "\n" or (token.text in _ENDS and _ends(tokens, index - 1)):
            while index < count and tokens[index].text in _QUOTES and tokens[index].start == tokens[index - 1].end:
                index += 1
            spans.append((start, index))
            start = index
    if start < count:
        spans.append((start, count))
    return spans


def _ends(tokens: Sequence[Token], index: int) -> bool:
    token = tokens[index]
    if token.text in "。！？" or index + 1 >= len(tokens):
        return True
    following = tokens[index + 1]
    if following.text in _QUOTES and following.start == token.end:
        return True
    if following.start == token.end or following.text[0].islower():
        return following.kind == "cjk"
    before = tokens[index - 1] if index else token
    letter = before.kind == "word" and len(before.text) == 1 and (index < 2 or tokens[index - 2].text != "°")
    abbreviated = before.lower in lexicon.ABBREVIATIONS or letter
    return not (token.text == "." and abbreviated)


@lru_cache(maxsize=50_000)
def _known_word(word: str) -> tuple[Lexeme, bool]:
    """Return the lexeme of a lower-case word, and whether the word qualifies a statement wherever it occurs."""
    return lexeme(word), word in _FUNCTIONAL or word.endswith("n't")


@dataclass(slots=True)
class _Collector:
    run: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    quantities: list[tuple[int, Quantity]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    clauses: list[int] = field(default_factory=list)
    negations: list[int] = field(default_factory=list)
    denials: list[int] = field(default_factory=list)
    signs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    quantifier: int = 0
    hedged: bool = False
    ahead: bool = False
    conditions: int = 0
    relation: tuple[str, int, int] | None = None
    degree: int = 1
    degrees: int = 0
    relators: int = 0
    clause: int = 0
    words: int = 0
    answers: bool = False
    """Whether the next part follows a colon."""
    period: tuple[str, Decimal] | None = None
    """The period of the most recent rate, such as "day" in "two a day". It is kept until its name has been read, or
    until word number ``period_until``."""
    period_until: int = 0

    def quantity(self, quantity: Quantity) -> None:
        key = quantity.key
        self.quantities.append((len(self.keys), quantity))
        self.keys.append(key)
        if quantity.kind in NAMING:
            self.weights[key] = _NAMING_WEIGHT
        self.clauses.append(self.clause)
        self.run.append(key)
        self.words += 1
        self.period, self.period_until = quantity.per, self.words + _PERIOD_WITHIN

    def word(self, token: Token, following: str, *, last: bool) -> None:
        word, text = token.lower, token.text
        self.run.append(word)
        found, is_functional = _known_word(word)
        key, weight, sign = found
        if is_functional or (word == "non" and following == "-"):
            self._function(word, following)
        inner = self.words > 0
        self.words += 1
        if len(text) == 1 and token.kind == "word":
            abbreviated = following == "." and not last
            key, weight = (
                (f"{word}.", 1.0) if inner and text.isupper() and not abbreviated and word != "i" else ("", 0.0)
            )
        if text == "Pro" and following not in vocabulary.PERIODS and following not in vocabulary.UNITS:
            key, weight = word, 1.0  # The name of a product, not the German word for "per".
        if self.period is not None and (period := self._period_key(word)) is not None:
            key, weight, self.period = period, 1.0, None  # "min" is "minute" here, not a minimum.
        if not key:
            return
        self.keys.append(key)
        self.clauses.append(self.clause)
        self.weights[key] = weight
        if sign and key == found.key:
            self.signs.setdefault(key, []).append((len(self.keys) - 1, sign))
        if inner and text[0].isupper():
            self.names[key] = text

    def _period_key(self, word: str) -> str | None:
        if self.period is None or self.words > self.period_until or vocabulary.UNITS.get(word) != self.period:
            return None
        return _PERIOD_KEYS.get(self.period)

    def _function(self, word: str, following: str) -> None:
        if (word in lexicon.NEGATIONS or word.endswith("n't") or word == "non") and self._negates(word, following):
            self.negations.append(ELLIPSIS if following in _BREAKS else self.clause)
            if following not in _BREAKS:
                self.denials.append(len(self.keys))
        self.quantifier = max(self.quantifier, self._quantifies(word, following))
        intends = word in lexicon.INTENDING and following in lexicon.INTENDING[word]
        self.hedged = self.hedged or word in lexicon.HEDGES or word == "may" or intends
        self.ahead = self.ahead or word in lexicon.AHEAD
        self.conditions += word in lexicon.CONDITIONS
        self.clause += word in lexicon.CONTRASTS
        self.degree = lexicon.DEGREES.get(word, self.degree)
        self.degrees += word in lexicon.DEGREES
        if word in lexicon.RELATORS:
            relation, sign = lexicon.RELATORS[word]
            self.relators += 1
            self.relation = (relation, sign * (self.degree if relation == "than" else 1), len(self.keys))

    def _quantifies(self, word: str, following: str) -> int:
        """Return the level of a quantifier. "not all" counts as "some"; "at most" and "every month" are not
        quantifiers."""
        level = lexicon.QUANTIFIERS.get(word, 0)
        before = self.run[-2] if len(self.run) > 1 else ""
        if level and ((before == "at" and word != "all") or following in lexicon.SPANS):
            return 0
        return 1 if level == lexicon.UNIVERSAL and before == "not" else level

    def _negates(self, word: str, following: str) -> bool:
        if following in lexicon.NOT_NEGATED or (word == "no" and following in (".", ",") and not self.answers):
            return False
        before = self.run[-3:-1]
        left_open = not lexicon.EITHER.isdisjoint(before)
        return not left_open and not (word in lexicon.CORRELATIVES and bool(self.negations))


def _behind_longer(tokens: Sequence[Token], index: int, last: int) -> str:
    """Return the word after the "longer" at ``index``, as in "no longer", or "longer" itself in "no longer than"."""
    continues = index + 1 < last and tokens[index + 1].lower not in lexicon.THAN
    return tokens[index + 1 if continues else index].lower


def _read(tokens: Sequence[Token], first: int, last: int, quantities: Mapping[int, Quantity]) -> ParsedSentence:
    seen = _Collector()
    index = first
    while index < last and len(seen.keys) < _MAX_KEYS:
        quantity = quantities.get(index)
        if quantity is not None and quantity.last > index:
            seen.quantity(quantity)
            index = quantity.last
            continue
        token = tokens[index]
        index += 1
        if token.kind == "mark":
            seen.clause += token.text in _CLAUSE_MARKS
            seen.answers = token.text == ":"
            if token.text in _COMPARING_MARKS:
                seen.run.append(token.text)
        else:
            following = tokens[index].lower if index < last else ""
            if following in lexicon.LONGER:
                following = _behind_longer(tokens, index, last)
            seen.word(token, following, last=index + 1 >= last)
    if last > first and tokens[last - 1].text == "?":
        seen.negations.append(ELLIPSIS)  # A question does not assert what it asks.
    capitals = len(seen.names)
    names = seen.names if capitals <= max(2, 0.4 * len(seen.weights)) else {}
    return ParsedSentence(
        run=SEPARATOR.join(("", *seen.run, "")) if seen.run else SEPARATOR,
        keys=tuple(seen.keys),
        weights=seen.weights,
        weight=sum(seen.weights.values()),
        quantities=tuple(seen.quantities),
        names=names,
        clauses=tuple(seen.clauses),
        negations=tuple(seen.negations),
        denials=tuple(seen.denials),
        signs=seen.signs,
        quantifier=seen.quantifier,
        hedged=seen.hedged,
        ahead=seen.ahead,
        conditions=seen.conditions,
        relation=seen.relation if seen.relators == 1 and seen.degrees <= 1 else None,
        leans=bool(seen.run) and seen.run[0] in lexicon.LEANING,
        leads=last > first and any(token.text == ":" for token in tokens[max(first, last - 2) : last]),
    )
