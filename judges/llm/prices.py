"""Calculates the cost of LLM calls from a price table that users can extend."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

_PER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float


class _PriceList(NamedTuple):
    """The contents of a price file: prices by glob, the date on which they were valid, and their source."""

    prices: Mapping[str, Price]
    as_of: date | None = None
    source: str | None = None


class PriceTable:
    """Prices by model name or shell glob. Entries in ``own`` take precedence over built-in ones, and longer globs over
    shorter ones. ``as_of`` and ``source`` describe the built-in list. ``own_as_of`` is the date in the user's file, if
    it has one."""

    def __init__(self, own: Mapping[str, Price] | None = None, *, own_as_of: date | None = None) -> None:
        listed = _built_in()
        self._tables = [dict(own or {}), listed.prices]
        self.as_of, self.source, self.own_as_of = listed.as_of, listed.source, own_as_of

    @classmethod
    def read(cls, path: Path) -> "PriceTable":
        """Read the entries from a TOML file. Raises ValueError with a one-line message."""
        try:
            read = _parse(tomllib.loads(path.read_text("utf-8")))
            return cls(read.prices, own_as_of=read.as_of)
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path}: not a UTF-8 text file") from None
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path}: {error}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def price(self, model: str) -> Price | None:
        """Return the price of ``model``, which may be ``endpoint/model``, or None if it is unknown."""
        for table in self._tables:
            for name in dict.fromkeys((model, model.partition("/")[2] or model)):
                globs = [glob for glob in table if fnmatchcase(name, glob)]
                if globs:
                    return table[max(globs, key=len)]
        return None

    def cost_of(self, model: str, prompt_tokens: int, completion_tokens: int) -> Decimal | None:
        """Return the exact cost in US dollars, or None if the price is unknown."""
        price = self.price(model)
        if price is None:
            return None
        # Converted from text, so that the price is the decimal number as written, not the nearest binary fraction.
        per_input, per_output = Decimal(str(price.input)), Decimal(str(price.output))
        return (prompt_tokens * per_input + completion_tokens * per_output) / _PER

    def cost(self, model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the cost in US dollars as a float, or None if the price is unknown."""
        cost = self.cost_of(model, prompt_tokens, completion_tokens)
        return None if cost is None else float(cost)


def _parse(document: Mapping[str, Any]) -> _PriceList:
    entries = dict(document)
    as_of, source = entries.pop("as_of", None), entries.pop("source", None)
    # A datetime is also a date, so the exact type is compared.
    if as_of is not None and type(as_of) is not date:
        raise ValueError("as_of must be a date, such as 2026-01-31")
    if source is not None and not isinstance(source, str):
        raise ValueError("source must be text")
    return _PriceList({name: _price(name, entry) for name, entry in entries.items()}, as_of, source)


def _price(name: str, entry: Any) -> Price:
    if not isinstance(entry, dict) or entry.keys() != {"input", "output"}:
        raise ValueError(f"{name!r} must have input and output, and nothing else")
    for key, value in entry.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(f"{name!r}: {key} must be a number of dollars, zero or more")
    return Price(input=float(entry["input"]), output=float(entry["output"]))


@cache
def _built_in() -> _PriceList:
    return _parse(tomllib.loads((files("judges.llm") / "prices.toml").read_text("utf-8")))
