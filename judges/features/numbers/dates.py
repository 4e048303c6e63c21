"""Reads dates and times of day, in figures and in words."""

import re
from decimal import Decimal
from typing import Final

from judges.features.numbers import vocabulary
from judges.features.numbers.bounds_and_ranges import Surroundings
from judges.features.numbers.quantity import Quantity, QuantityKind

_PERIOD: Final = re.compile(r"(?:q(?=[1-4])|h(?=[12]))(?P<part>\d)|fy(?P<year>\d{4}|\d{2})")
_SPOKEN: Final = frozenset({"o'clock", "oclock"})


class Calendar(Surroundings):
    """Reads dates and times."""

    def _written_date(self, start: int) -> Quantity:
        token = self._tokens[start]
        parts = [int(part) for part in re.split(r"\D+", token.text)]
        if token.kind == "isodate":
            year, month, day = parts
        else:
            day, month, year = parts
            if month > 12 >= day:
                day, month = month, day
        either = "/" in token.text and day <= 12 and day != month
        return self._finish(
            Quantity(
                kind=QuantityKind.DATE,
                text=token.text,
                date=(year, month, day),
                month_first=(year, day, month) if either else None,
                first=start,
                last=start + 1,
            )
        )

    def _year(self, index: int) -> tuple[int | None, int]:
        if self.lower(index) in (",", "de", "of", ".", "del"):
            index += 1
        text = self.lower(index)
        if len(text) == 4 and text.isdecimal() and self._tokens[index].kind == "number":
            return int(text), index + 1
        return None, index

    def _date(self, first: int, month: int, day: int | None, last: int, fallback: int) -> Quantity:
        year, after = self._year(last)
        last = after if year is not None else fallback
        return self._finish(
            Quantity(
                kind=QuantityKind.DATE, text=self._text(first, last), date=(year, month, day), first=first, last=last
            )
        )

    def _day_first(self, start: int, day: int, last: int) -> Quantity | None:
        if self.lower(last) in vocabulary.ORDINAL_SUFFIXES or self.lower(last) == ".":
            last += 1
        if self.lower(last) in ("of", "de"):
            last += 1
        month = vocabulary.MONTHS.get(self.lower(last))
        if month is None or not 1 <= day <= 31:
            return None
        if self.lower(last) in ("may", "march") and not self._tokens[last].text[0].isupper():
            return None
        return self._date(start, month, day, last + 1, last + 1)

    def _month_first(self, start: int) -> Quantity | None:
        word, follows = self._tokens[start], self.lower(start + 1)
        last = start + 2 if follows == "." and len(word.text) <= 4 else start + 1
        day_text = self.lower(last)
        if day_text.isdecimal() and len(day_text) <= 2 and 1 <= int(day_text) <= 31 and word.text[0].isupper():
            after = last + 2 if self.lower(last + 1) in vocabulary.ORDINAL_SUFFIXES else last + 1
            return self._date(start, vocabulary.MONTHS[word.lower], int(day_text), after, after)
        year, _ = self._year(last)
        before = self.lower(start - 1)
        if (
            word.lower in vocabulary.AMBIGUOUS_MONTHS
            and year is None
            and not (word.text[0].isupper() and before in vocabulary.BEFORE_MONTH)
        ):
            return None
        return self._date(start, vocabulary.MONTHS[word.lower], None, last, start + 1)

    def _clock(self, start: int, last: int) -> Quantity:
        text = self._tokens[start].lower
        hours, minutes = (int(part) for part in re.split("[:h]", text)[:2])
        either = ":" in text and text[0] != "0" and self.lower(last) not in vocabulary.CLOCK - _SPOKEN
        return self._time(start, hours, minutes, last, either=either)

    def _time(self, start: int, hours: int, minutes: int, last: int, *, either: bool = False) -> Quantity:
        """Read a time. With ``either``, a time up to twelve may be before or after noon, unless the text says which."""
        either = either and 1 <= hours <= 12
        if last < self._end and self._tokens[last].kind == "ampm":
            afternoon = self.lower(last)[0] == "p"
            hours = hours % 12 + (12 if afternoon else 0)
            last, either = last + 1, False
        elif self.lower(last) in vocabulary.CLOCK:
            last += 1
        minute = Decimal(hours * 60 + minutes)
        return self._finish(
            Quantity(
                kind=QuantityKind.TIME,
                text=self._text(start, last),
                values=(minute, Decimal((hours + 12) % 24 * 60 + minutes)) if either else (minute,),
                first=start,
                last=last,
            )
        )

    def _hour(self, start: int, value: Decimal, last: int) -> Quantity | None:
        follows, token = self.lower(last), self._tokens[last] if last < self._end else None
        hours, minutes = int(value), int(value % 1 * 100)
        if not 0 <= hours <= 24 or minutes > 59:
            return None
        if follows in vocabulary.NAMED_TIMES and hours == 12:  # 12 noon
            return self._finish(self._named_time(start, last))
        if token is not None and token.kind == "ampm" and hours <= 12:
            return self._time(start, hours, minutes, last)
        if follows in vocabulary.CLOCK:
            after = last + 1
            if follows != "uhr" and self._short(after) and self.lower(after + 1) == "分":
                return self._time(start, hours, int(self.lower(after)), after + 2)
            return self._time(start, hours, minutes, after, either=follows in _SPOKEN)
        spoken = follows in ("heures", "h", "horas") and self.lower(start - 1) in vocabulary.CLOCK_PREPOSITIONS
        return self._time(start, hours, minutes, last + 1) if spoken else None

    def _period(self, start: int) -> Quantity | None:
        """Read a quarter, half or financial year: Q2, H1, FY2024."""
        found = _PERIOD.fullmatch(self.lower(start))
        if found is None:
            return None
        if found["year"]:
            year = int(found["year"]) + (2000 if len(found["year"]) == 2 else 0)
            return Quantity(kind=QuantityKind.DATE, text=found[0], date=(year, None, None), first=start, last=start + 1)
        part = Decimal(found["part"])
        noun = ("quarter",) if found[0][0] == "q" else ("half",)
        return Quantity(
            kind=QuantityKind.ORDINAL, text=found[0], values=(part,), noun=noun, first=start, last=start + 1
        )

    def _apart(self, start: int) -> bool:
        """Return whether a duration is an offset from a named time: "ten minutes before noon"."""
        unit = vocabulary.UNITS.get(self.lower(start - 2))
        counted = self.lower(start - 2) in vocabulary.NUMBER_WORDS or (unit is not None and unit[0] == "duration")
        return counted and self.lower(start - 1) in ("before", "after", "past", "vor", "nach")

    def _named_time(self, first: int, at: int) -> Quantity:
        """Build the quantity for noon or midnight at the position ``at``."""
        values = vocabulary.NAMED_TIMES[self.lower(at)]
        return Quantity(kind=QuantityKind.TIME, text=self._text(first, at + 1), values=values, first=first, last=at + 1)

    def _short(self, index: int) -> bool:
        """Return whether the token is a number that can be part of a date or time."""
        return self.lower(index).isdecimal() and len(self.lower(index)) <= 4

    def _cjk_date(self, start: int, value: int, last: int) -> Quantity | None:
        parts: dict[str, int] = {}
        while self.lower(last) in ("年", "月", "日") and self.lower(last) not in parts:
            parts[self.lower(last)] = value
            last += 1
            following = self.lower(last)
            if not self._short(last) or self.lower(last + 1) not in ("月", "日"):
                break
            value, last = int(following), last + 1
        if "月" not in parts and not (parts.keys() == {"年"} and parts["年"] > 1000):
            return None
        date = (parts.get("年"), parts.get("月"), parts.get("日"))
        return self._finish(
            Quantity(kind=QuantityKind.DATE, text=self._text(start, last), date=date, first=start, last=last)
        )
