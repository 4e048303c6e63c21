"""The cost of a call, from a price table that users can extend."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

_PER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float


class PriceTable:
    """Prices by model name, which may be a shell glob. Entries of ``own`` take precedence over built-in ones, and
    longer globs over shorter ones."""

    def __init__(self, own: Mapping[str, Price] | None = None) -> None:
        self._tables = [dict(own or {}), _built_in()]

    @classmethod
    def read(cls, path: Path) -> "PriceTable":
        """Read the entries from a TOML file. Raises ValueError with a one-line message."""
        try:
            return cls(_parse(tomllib.loads(path.read_text("utf-8"))))
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

    def cost(self, model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the cost in US dollars, or None if the price is unknown."""
        price = self.price(model)
        if price is None:
            return None
        return (prompt_tokens * price.input + completion_tokens * price.output) / _PER


def _parse(document: Mapping[str, Any]) -> dict[str, Price]:
    return {name: _price(name, entry) for name, entry in document.items()}


def _price(name: str, entry: Any) -> Price:
    if not isinstance(entry, dict) or entry.keys() != {"input", "output"}:
        raise ValueError(f"{name!r} must have input and output, and nothing else")
    for key, value in entry.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(f"{name!r}: {key} must be a number of dollars, zero or more")
    return Price(input=float(entry["input"]), output=float(entry["output"]))


@cache
def _built_in() -> dict[str, Price]:
    return _parse(tomllib.loads((files("judges.llm") / "prices.toml").read_text("utf-8")))
