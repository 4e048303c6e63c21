"""Extracts quantities from tokens with a small grammar, in one pass from left to right."""

import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

from msgspec.structs import replace

from judges.features.numbers import vocabulary
from judges.features.numbers.bounds_and_ranges import joined
from judges.features.numbers.dates import Calendar
from judges.features.numbers.number_words import Cardinals
from judges.features.numbers.quantity import BoundKind, Quantity, QuantityKind
from judges.features.numbers.tokenizer import Token
from judges.text.languages.detection import languages_of, leans_to

_SEPARATED: Final = re.compile(r"(\d{1,3})([.,])(\d{3})")
_IDENTIFIERS: Final = frozenset({"url", "email", "phone", "ip", "version", "code", "digits"})
_THOUSAND: Final = 1000
_LONG_AGO: Final = 4000
_OF_PHONE: Final = 10
"""Number of digits in a phone number, without the country code."""
_NOT_COUNTED: Final = frozenset().union(
    vocabulary.JOINERS, vocabulary.PER, vocabulary.BEFORE_YEAR, vocabulary.THAN, vocabulary.NO_NOUNS
)
_MAX_CJK: Final = 5
_LASTING: Final = ("decade", "fortnight")
_BEGINNINGS: Final = frozenset().union(
    vocabulary.NAMED_TIMES,
    vocabulary.NUMBER_WORDS,
    vocabulary.WEEKDAYS,
    vocabulary.MONTHS,
    vocabulary.ONE,
    vocabulary.TIMES_WORDS,
    vocabulary.ORDINAL_WORDS,
    {"half"},
)
"""Words that a quantity can begin with. All other words are skipped."""
_CJK_NUMERALS: Final = vocabulary.CJK_DIGITS.keys() | vocabulary.CJK_MULTIPLES.keys()


def readings(text: str, *, english: bool = False) -> tuple[Decimal, ...]:
    """Return the possible values of a written number, most likely first. "1.250" is 1.25 or 1250; "1.250,50" is
    unambiguous. In English text, "1,250" can only be 1250.
    """
    digits = text.replace(" ", "").replace("'", "").replace("’", "").lstrip("+")
    ambiguous = _SEPARATED.fullmatch(digits.lstrip("-"))
    if ambiguous and ambiguous[1] != "0":
        whole, decimal = Decimal(digits.replace(ambiguous[2], "")), Decimal(digits.replace(",", "."))
        if english and ambiguous[2] == ",":
            return (whole,)
        return (whole, decimal) if ambiguous[2] == "," or ambiguous[3] == "000" else (decimal, whole)
    comma, point = digits.rfind(","), digits.rfind(".")
    if comma > point:
        digits = digits.replace(".", "")
        digits = digits.replace(",", "." if digits.count(",") == 1 else "")
    else:
        digits = digits.replace(",", "")
        digits = digits.replace(".", "") if digits.count(".") > 1 else digits
    return (Decimal(digits),)


class _Reader(Cardinals, Calendar):
    """Reads the quantity that starts at a token, if there is one."""

    _english: bool | None = None
    """Whether the text is in English. Computed when a number depends on it."""

    def read(self, start: int) -> Quantity | None:
        kind = self._tokens[start].kind
        if kind == "word":
            return self._word(start)
        if kind == "number":
            return self._figures(start)
        if kind == "cjk":
            return self._cjk(start) if self.lower(start) in _CJK_NUMERALS else None
        if kind in ("isodate", "date"):
            return self._written_date(start)
        if kind == "time":
            return self._clock(start, start + 1)
        if kind in _IDENTIFIERS:
            token = self._tokens[start]
            if kind == "code" and (period := self._period(start)):
                return period
            text = token.lower.removeprefix("v") if kind == "version" else token.lower
            if kind == "phone":
                text = "".join(filter(str.isdecimal, text))[-_OF_PHONE:]
            return Quantity(kind=QuantityKind.IDENTIFIER, text=text, unit=kind, first=start, last=start + 1)
        return None

    def _figures(self, start: int) -> Quantity | None:
        text, last = self._tokens[start].text, start + 1
        values = readings(text, english="," in text and self._is_english())
        if part := self._part(start) or self._slashed(start):
            return self._counted(start, (part[0],), part[1])
        if len(values) == 1 and values[0] == values[0].to_integral_value() and (part := self._slashed(last)):
            return self._counted(start, (values[0] + part[0],), part[1])
        if len(values) == 1 and (end := self._halved(last)):
            return self._counted(start, (values[0] + Decimal("0.5"),), end)
        return self._counted(start, values, last)

    def _is_english(self) -> bool:
        if self._english is None:
            words = " ".join(token.text for token in self._tokens if token.kind == "word")
            found = languages_of(words)
            self._english = found == {"en"} or (not found and leans_to(words, "en"))
        return self._english

    # Words

    def _word(self, start: int) -> Quantity | None:
        word = self.lower(start)
        if part := self._part(start):
            return self._counted(start, (part[0],), part[1])
        if word in vocabulary.MONTHS and self._tokens[start].text[0].isupper():  # "Sept." isn't seven.
            return self._month_first(start)
        if word in vocabulary.NUMBER_WORDS:
            return self._number_words(start)
        if word in vocabulary.NAMED_TIMES and not self._apart(start):
            return self._named_time(start, start)
        if word in vocabulary.WEEKDAYS:
            value = Decimal(vocabulary.WEEKDAYS[word])
            return Quantity(kind=QuantityKind.WEEKDAY, text=word, values=(value,), first=start, last=start + 1)
        if word in vocabulary.MONTHS:
            return self._month_first(start)
        if word in vocabulary.ONE:
            return self._one(start)
        if word in vocabulary.TIMES_WORDS:
            value = Decimal(vocabulary.TIMES_WORDS[word])
            return self._finish(
                Quantity(
                    kind=QuantityKind.MEASURE, text=word, unit="times", values=(value,), first=start, last=start + 1
                )
            )
        if word in vocabulary.ORDINAL_WORDS and self.lower(start - 1) != "per":  # "per second" is a rate.
            return self._ordinal(start, vocabulary.ORDINAL_WORDS[word], start + 1)
        return None

    def _number_words(self, start: int) -> Quantity | None:
        value, last = self._below_hundred(start) or (Decimal(0), start + 1)
        if self.lower(last) == "-" and value >= 20 and value % 10 == 0:
            ordinal = vocabulary.ORDINAL_WORDS.get(self.lower(last + 1))
            if ordinal is not None and ordinal < 10:
                return self._ordinal(start, int(value) + ordinal, last + 2)
        follows = last + (self.lower(last) == "-")
        if (parts := vocabulary.FRACTIONS.get(self.lower(follows))) and value < parts:
            return self._percentage(start, value * 100 / parts, follows + 1)
        if end := self._halved(last):
            return self._counted(start, (value + Decimal("0.5"),), end)
        return self._counted(start, (value,), last)

    def _ordinal(self, start: int, value: int, last: int) -> Quantity:
        return Quantity(
            kind=QuantityKind.ORDINAL,
            text=self._text(start, last),
            values=(Decimal(value),),
            first=start,
            last=last,
            noun=self._noun(last),
        )

    def _one(self, start: int) -> Quantity | None:
        word, follows = self.lower(start), self.lower(start + 1)
        unit = self._unit(start + 1)
        if unit and (end := self._halved(unit[2])):  # "an hour and a half"
            one_and_a_half = Quantity(
                kind=QuantityKind.NUMBER, text="", values=(Decimal("1.5"),), first=start, last=end
            )
            return self._finish(self._scaled(one_and_a_half, QuantityKind.MEASURE, unit[0], unit[1], end))
        if word in ("a", "an"):
            if follows in _LASTING and self.lower(start - 1) in vocabulary.BEFORE_SPAN:
                span = self._counted(start, (Decimal(1),), start + 1)
                loose = span is not None and follows == "decade" and span.bound is BoundKind.EXACT
                return replace(span, bound=BoundKind.ABOUT) if span is not None and loose else span
            known = follows in vocabulary.SCALES and follows not in ("hundreds", "thousands", "millions")
            return self._counted(start, (Decimal(1),), start + 1) if known else None
        if word == "one" and (end := self._halved(start + 1)):
            return self._counted(start, (Decimal("1.5"),), end)
        if word == "one" and (ratio := self._ratio(Decimal(1), start + 1)):
            return self._percentage(start, *ratio)
        if (
            self._unit(start + 1)
            or follows in vocabulary.SCALES
            or follows in vocabulary.CURRENCIES
            or follows in vocabulary.PERCENT
        ):
            return self._counted(start, (Decimal(1),), start + 1)
        return None

    def _cjk(self, start: int) -> Quantity | None:
        value, digit, last = 0, 0, start
        while (char := self.lower(last)) in _CJK_NUMERALS and last - start < _MAX_CJK:
            if char in vocabulary.CJK_DIGITS:
                digit = vocabulary.CJK_DIGITS[char]
            else:
                value, digit = value + (digit or 1) * vocabulary.CJK_MULTIPLES[char], 0
            last += 1
        follows = self.lower(last)
        if follows in vocabulary.CLOCK or follows in vocabulary.CURRENCIES or self._unit(last):
            return self._counted(start, (Decimal(value + digit),), last)
        return None

    # Numbers and the nouns they count

    def _counted(self, start: int, values: tuple[Decimal, ...], last: int) -> Quantity | None:
        value = values[0]
        if value == value.to_integral_value() and 0 < value < 10000:
            dated = self._day_first(start, int(value), last) or self._cjk_date(start, int(value), last)
            if dated:
                return dated
        if 0 <= value <= 24 and (hour := self._hour(start, value, last)):
            return hour
        currency = vocabulary.CURRENCIES.get(self.lower(start - 1))
        first = start if currency is None else start - 1
        factor, last = self._scale(value, last, money=currency is not None)
        if len(values) == 1:
            value, factor, last = self._compound(value, factor, last)
            values, last = (value,), self._repeated(value, last)
        if self.lower(first - 1) == "minus" and (first < 2 or self._tokens[first - 2].kind != "number"):
            first, values = first - 1, tuple(-one for one in values)
        quantity = Quantity(
            kind=QuantityKind.NUMBER,
            text=self._text(first, last),
            values=tuple(value * factor for value in values),
            factor=factor,
            first=first,
            last=last,
        )
        if currency is not None:
            return self._finish(replace(quantity, kind=QuantityKind.MONEY, unit=currency))
        return self._finish(self._with_unit(quantity) or self._bare(quantity))

    def _scale(self, value: Decimal, last: int, *, money: bool) -> tuple[Decimal, int]:
        if last < self._end and (suffix := vocabulary.SUFFIX_SCALES.get(self._tokens[last].text)):
            token = self._tokens[last]
            touches = token.start == self._tokens[last - 1].end
            counts = token.text in "MBT" or (token.text in "kK" and value < _THOUSAND and self._unit(last) is None)
            named = self.lower(last - 2) in vocabulary.REFERENCES  # seat 1B
            counted = self.lower(last + 1)
            many = token.text == "m" and (counted == "people" or (counted.endswith("s") and len(counted) > 3))
            if money or (touches and (counts or many) and not named):
                return suffix, last + 1
        factor, last = self._scales(last)
        if factor > 1 and self.lower(last) == ".":
            follows = self._tokens[last + 1] if last + 1 < self._end else None
            last += follows is not None and follows.lower in vocabulary.CURRENCIES
        return factor, last

    def _share(self, index: int) -> tuple[QuantityKind, Decimal, int] | None:
        word, follows = self.lower(index), self.lower(index + 1)
        if word in vocabulary.BASIS_POINTS or (word == "basis" and follows in ("points", "point")):
            return QuantityKind.POINTS, Decimal("0.01"), index + (1 if word in vocabulary.BASIS_POINTS else 2)
        if word in vocabulary.POINTS or (word in ("percentage", "percent") and follows in ("points", "point")):
            return QuantityKind.POINTS, Decimal(1), index + (1 if word in vocabulary.POINTS else 2)
        if word in ("points", "puntos") and follows in ("de", "porcentuales"):
            return QuantityKind.POINTS, Decimal(1), index + (3 if follows == "de" else 2)
        if word in vocabulary.PERCENT:
            return QuantityKind.PERCENT, Decimal(1), index + 1
        if (word, follows) in (("per", "cent"), ("pour", "cent"), ("por", "ciento")):
            return QuantityKind.PERCENT, Decimal(1), index + 2
        return None

    def _with_unit(self, quantity: Quantity) -> Quantity | None:
        last = quantity.last
        if self.lower(last) == "-" and self.lower(last + 1) in vocabulary.UNITS:
            last += 1
        if share := self._share(last):
            kind, factor, last = share
            return self._scaled(quantity, kind, "", factor, last)
        for currency_at in (last, last + 1) if self.lower(last) in ("us", "of") else (last,):
            if (currency := vocabulary.CURRENCIES.get(self.lower(currency_at))) is not None:
                return self._scaled(quantity, QuantityKind.MONEY, currency, Decimal(1), currency_at + 1)
        if self.lower(last) in ("s", "'s") and 1000 <= quantity.values[0] <= 2100 and quantity.values[0] % 10 == 0:
            text = f"{self._text(quantity.first, last)}s"
            return replace(quantity, kind=QuantityKind.IDENTIFIER, unit="decade", text=text, values=(), last=last + 1)
        if self.lower(last) in ("cent", "cents"):
            return self._scaled(quantity, QuantityKind.MONEY, vocabulary.CENTS, Decimal("0.01"), last + 1)
        if coded := self._coded(quantity):
            return coded
        if unit := self._unit(last):
            dimension, factor, last = unit
            return self._scaled(quantity, QuantityKind.MEASURE, dimension, factor, last)
        return None

    def _coded(self, quantity: Quantity) -> Quantity | None:
        """Read codes that look like numbers with units: 5G, 3D, the 90s."""
        last = quantity.last
        token = self._tokens[last] if last < self._end else None
        if token is None or token.start != self._tokens[last - 1].end or quantity.factor != 1:
            return None
        text = self._text(quantity.first, last)
        if token.text in ("G", "D"):
            return replace(
                quantity,
                kind=QuantityKind.IDENTIFIER,
                unit="code",
                text=f"{text}{token.lower}",
                values=(),
                last=last + 1,
            )
        before = self.lower(quantity.first - 1)
        if (
            token.text == "s"
            and (before in vocabulary.BEFORE_DECADE or before == "-")
            and 10 <= quantity.values[0] < 100
        ):
            return replace(
                quantity, kind=QuantityKind.IDENTIFIER, unit="decade", text=f"{text}s", values=(), last=last + 1
            )
        return None

    def _scaled(self, quantity: Quantity, kind: QuantityKind, unit: str, factor: Decimal, last: int) -> Quantity:
        return replace(
            quantity,
            kind=kind,
            unit=unit,
            values=tuple(value * factor for value in quantity.values),
            factor=quantity.factor * factor,
            text=self._text(quantity.first, last),
            last=last,
        )

    def _bare(self, quantity: Quantity) -> Quantity:
        before = self.lower(quantity.first - 1)
        if before == ".":
            before = self.lower(quantity.first - 2)
        if before in vocabulary.REFERENCES:
            return replace(quantity, kind=QuantityKind.REFERENCE, unit=before)
        if before == "-" and (name := self._named_with(quantity.first)):
            return replace(quantity, kind=QuantityKind.REFERENCE, unit=name)
        if year := self._of_an_era(quantity):
            return year
        if ratio := self._ratio(quantity.values[0], quantity.last):
            return self._percentage(quantity.first, *ratio)
        token = self._tokens[quantity.last - 1]
        if self.lower(quantity.last) in vocabulary.ORDINAL_SUFFIXES and self._tokens[quantity.last].start == token.end:
            return replace(
                quantity, kind=QuantityKind.ORDINAL, last=quantity.last + 1, noun=self._noun(quantity.last + 1)
            )
        if len(token.text) == 4 and token.text.isdecimal() and 1500 <= quantity.values[0] <= 2100:
            if season := self._season(quantity):
                return season
            follows = self._tokens[quantity.last].kind if quantity.last < self._end else "mark"
            if before in vocabulary.BEFORE_YEAR or follows == "mark":
                return replace(quantity, kind=QuantityKind.DATE, values=(), date=(int(quantity.values[0]), None, None))
        noun = self._noun(quantity.last)
        return replace(quantity, noun=noun) if noun else quantity

    def _percentage(self, start: int, value: Decimal, last: int) -> Quantity:
        """Read a percentage given as a ratio. It is only approximate."""
        text = self._text(start, last)
        values: tuple[Decimal, ...] = (value,)
        if value != value.to_integral_value():
            values += (value.quantize(Decimal(1), ROUND_FLOOR), value.quantize(Decimal(1), ROUND_CEILING))
        share = self._finish(Quantity(kind=QuantityKind.PERCENT, text=text, values=values, first=start, last=last))
        return replace(share, bound=BoundKind.ABOUT) if share.bound is BoundKind.EXACT else share

    def _named_with(self, first: int) -> str:
        """Return the word that contains a number: covid-19, F-16."""
        if first < 2:
            return ""
        word, hyphen, number = self._tokens[first - 2 : first + 1]
        joined = word.end == hyphen.start and hyphen.end == number.start and word.kind == "word"
        return word.lower if joined and word.lower not in vocabulary.NAMING_PREFIXES | vocabulary.MONTHS.keys() else ""

    def _of_an_era(self, quantity: Quantity) -> Quantity | None:
        """Read a year BC or AD."""
        year, first, last = quantity.values[0], quantity.first, quantity.last
        if year != year.to_integral_value() or not 0 < year <= _LONG_AGO:
            return None
        era = self._tokens[last].text if last < self._end else ""
        ends = last + 1 >= self._end or self._tokens[last + 1].kind == "mark"
        if era in vocabulary.ERAS and (ends or self.lower(first - 1) in vocabulary.BEFORE_YEAR):
            last += 1
        elif first and self._tokens[first - 1].text in ("AD", "CE"):
            first, era = first - 1, "AD"
        else:
            return None
        date = (int(year) * (-1 if era.startswith("B") else 1), None, None)
        text = self._text(first, last)
        return replace(quantity, kind=QuantityKind.DATE, text=text, values=(), date=date, first=first, last=last)

    def _season(self, quantity: Quantity) -> Quantity | None:
        """Read two joined years: 2018-19, 2018/19."""
        last = quantity.last + 1
        if (
            self.lower(quantity.last) not in ("-", "/")
            or not self.lower(last).isdecimal()
            or len(self.lower(last)) != 2
        ):
            return None
        text, year = self._text(quantity.first, last + 1), int(quantity.values[0])
        return replace(quantity, kind=QuantityKind.DATE, text=text, values=(), date=(year, None, None), last=last + 1)

    def _noun(self, index: int) -> tuple[str, ...]:
        noun: list[str] = []
        while len(noun) < 2 and index < self._end and self._tokens[index].kind in ("word", "cjk"):
            if self.lower(index) in _NOT_COUNTED:
                break
            word = self.lower(index)
            noun.append(vocabulary.SHORT_FORMS.get(word, word))
            index += 1
        return tuple(noun)


def extract(tokens: Sequence[Token]) -> list[Quantity]:
    """Extract the quantities from a token list, in order and without overlap."""
    reader = _Reader(tokens)
    found: list[Quantity] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind == "mark" or (token.kind == "word" and token.lower not in _BEGINNINGS):
            index += 1
            continue
        quantity = reader.read(index)
        if quantity is None:
            index += 1
            continue
        if found and quantity.first < found[-1].last:
            quantity = replace(quantity, first=found[-1].last)
        found.append(quantity)
        index = max(quantity.last, index + 1)
    return joined(tokens, found)
