"""Reads numbers in words and fractions: "one hundred and twenty", "half a million", "three quarters of an hour"."""

from decimal import Decimal
from typing import Final

from judges.features.numbers import vocabulary
from judges.features.numbers.bounds_and_ranges import Surroundings

_ARTICLES: Final = ("a", "an")
_WITHIN: Final = ("-", "et", "y")
"""Words between tens and units: thirty-five, vingt et un, treinta y cinco."""
_SCORES: Final = ("quatre", "soixante")
"""French number words that are followed by numbers up to nineteen ("soixante-quinze")."""
_THOUSAND: Final = Decimal(1000)
_HALF: Final = Decimal("0.5")
_QUARTER: Final = Decimal("0.25")
_DENOMINATORS: Final = ("2", "3", "4", "5", "8")
_MOST_OF_RATIO: Final = 100
_ROUND: Final = (Decimal(1000), Decimal(10_000), Decimal(100_000))
_MOST_SCALES: Final = 6
"""Higher than the number of scale words in any real number."""
_RATED: Final = frozenset({"star", "stars", "point", "points", "sterne", "sternen", "punkte", "punkten"})


class Cardinals(Surroundings):
    """Reads numbers in words. Positions named ``last`` are exclusive. Methods return None if they find no number."""

    def _below_hundred(self, start: int) -> tuple[Decimal, int] | None:
        word, last = self.lower(start), start + 1
        value = vocabulary.NUMBER_WORDS.get(word)
        if value is None:
            return None
        if word == "quatre" and self.lower(last) == "-" and self.lower(last + 1) in ("vingt", "vingts"):
            value, last = 80, last + 2
        if value < 20 or value % 10:
            return Decimal(value), last
        follows = last + (self.lower(last) in _WITHIN)
        unit = vocabulary.NUMBER_WORDS.get(self.lower(follows), 0)
        joined = follows > last and self.lower(follows) in vocabulary.ONE and self.lower(follows) not in _ARTICLES
        if joined or self.lower(follows) == "one":
            unit = 1
        if 0 < unit < (20 if word in _SCORES else 10):
            value, last = value + unit, follows + 1
        return Decimal(value), last

    def _halved(self, last: int) -> int | None:
        """Return the position after "and a half"."""
        for word in ("and", "a", "half"):
            last += self.lower(last) == "-"
            if self.lower(last) != word:
                return None
            last += 1
        return last

    def _compound(self, value: Decimal, factor: Decimal, last: int, depth: int = 0) -> tuple[Decimal, Decimal, int]:
        """Add the part of a number in words that follows its scale, such as "thirty" in "two hundred and thirty".
        ``value`` is in units of ``factor``; the words read so far end before ``last``.
        """
        if factor == 1 or depth > _MOST_SCALES:
            return value, factor, last
        if end := self._halved(last):
            return value + _HALF, factor, end
        lowest = vocabulary.SCALES.get(self.lower(last - 1), Decimal(0))
        joined = self.lower(last) in vocabulary.AND
        follows = last + joined
        more = self._below_hundred(follows)
        if more is None and self.lower(follows) == "one":
            more = Decimal(1), follows + 1
        if more is None or (
            self.lower(more[1]) == "-" and self._tokens[more[1]].start == self._tokens[more[1] - 1].end
        ):
            return value, factor, last  # "two hundred three-bed rooms"
        part, end = more
        scale, after = self._scales(end)
        if lowest < _THOUSAND <= scale:
            return self._compound(value * factor + part, scale, after, depth + 1)
        if scale >= lowest:
            return value, factor, last
        part, scale, end = self._compound(part, scale, after, depth + 1)
        whole = value * factor + part * scale
        return (whole, Decimal(1), end) if part * scale < lowest else (value, factor, last)

    def _scales(self, last: int) -> tuple[Decimal, int]:
        factor = Decimal(1)
        while factor < Decimal(10) ** 15:
            follows = last + (self.lower(last) == "-")
            scale = vocabulary.SCALES.get(self.lower(follows))
            if scale is None:
                break
            factor, last = factor * scale, follows + 1
        return factor, last

    def _repeated(self, value: Decimal, last: int) -> int:
        """Return the position after a repetition of the number in brackets: "thirty (30) days"."""
        if self.lower(last) != "(":
            return last
        if self.lower(last + 1) == f"{value:f}" and self.lower(last + 2) == ")":
            return last + 3
        spelled = self._below_hundred(last + 1)
        return spelled[1] + 1 if spelled and spelled[0] == value and self.lower(spelled[1]) == ")" else last

    def _part(self, start: int) -> tuple[Decimal, int] | None:
        """Read a fraction of the following unit: "half an", "a quarter of a", "three quarters of an"."""
        word, follows = self.lower(start), self.lower(start + 1)
        if word == "half":
            article = follows in _ARTICLES
            last = start + 1 + (article or follows == "-")
            unit = self._unit(last)
            hours = unit is not None and unit[0] == "duration"
            return (
                (_HALF, last)
                if self.lower(last) in vocabulary.SCALES or hours or (article and self._measured(last))
                else None
            )
        hyphen = follows == "-"
        follows = self.lower(start + 2) if hyphen else follows
        if word in vocabulary.ONE and follows == "quarter":
            count, last = _QUARTER, start + 2 + hyphen
        elif word in ("three", "3") and follows == "quarters":
            count, last = 3 * _QUARTER, start + 2 + hyphen
        else:
            return None
        if self.lower(last) == "of" and self.lower(last + 1) in _ARTICLES:
            last += 2
        elif self.lower(last) not in vocabulary.SCALES:
            return None
        return (count, last) if self.lower(last) in vocabulary.SCALES or self._measured(last) else None

    def _measured(self, index: int) -> bool:
        """Return whether the token at ``index`` is a unit or a share."""
        share = self.lower(index) in vocabulary.PERCENT or self.lower(index) == "percentage"
        return share or self._unit(index) is not None

    def _slashed(self, start: int) -> tuple[Decimal, int] | None:
        """Read a fraction of single digits ("1/2 tablet"), which cannot be a date."""
        above, below = self.lower(start), self.lower(start + 2)
        if (
            self.lower(start + 1) != "/"
            or below not in _DENOMINATORS
            or not (above.isdecimal() and "0" < above < below)
        ):
            return None
        if self._tokens[start + 2].start - self._tokens[start].start != 2:
            return None
        follows = self._tokens[start + 3] if start + 3 < self._end else None
        if (
            follows is None
            or follows.kind != "word"
            or follows.lower in vocabulary.MONTHS
            or self.lower(start - 1) == "on"
        ):
            return None
        return Decimal(above) / Decimal(below), start + 3

    def _ratio(self, value: Decimal, last: int) -> tuple[Decimal, int] | None:
        """Convert "one in 20" or "nine out of ten" to a percentage. ``last`` is the position after the first number."""
        if self.lower(last) == "in":
            at = last + 1
        elif (self.lower(last), self.lower(last + 1)) == ("out", "of"):
            at = last + 2
        else:
            return None
        at += self.lower(at) == "every"
        of = self._below_hundred(at)
        if of is None and self.lower(at) in vocabulary.ONE:
            scale, end = self._scales(at + 1)
            of = (scale, end) if scale > 1 else None
        elif of is None and (digits := self.lower(at).replace(",", "")).isdecimal():
            of = Decimal(digits), at + 1
        if of is None or not 0 < value < of[0] or value != value.to_integral_value():
            return None
        whole, end = of
        if whole > _MOST_OF_RATIO and whole not in _ROUND:
            return None
        following = self.lower(end)
        if (
            self._measured(end)
            or following in vocabulary.SCALES
            or following in vocabulary.MONTHS
            or following in _RATED
        ):
            return None
        return value * 100 / whole, end
