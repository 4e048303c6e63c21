"""A tolerant reader for the gateway's JSON. A field with an unexpected type counts as missing."""

from collections.abc import Mapping
from typing import Any


class Fields:
    """The fields of a JSON object. Any other JSON value has no fields."""

    def __init__(self, data: Any) -> None:
        self.raw: Mapping[str, Any] = data if isinstance(data, Mapping) else {}

    def text(self, *names: str) -> str | None:
        """Return the first of the fields ``names`` that is a string, or None."""
        return next((value for name in names if isinstance(value := self.raw.get(name), str)), None)

    def number(self, name: str) -> float | None:
        value = self.raw.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def whole(self, name: str) -> int | None:
        value = self.raw.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def count(self, name: str) -> int:
        return self.whole(name) or 0

    def flag(self, name: str) -> bool:
        return self.raw.get(name) is True

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(value for value in self._list(name) if isinstance(value, str))

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(
            float(value) for value in self._list(name) if isinstance(value, int | float) and not isinstance(value, bool)
        )

    def within(self, name: str) -> "Fields":
        """Return the fields of the nested object ``name``."""
        return Fields(self.raw.get(name))

    def __bool__(self) -> bool:
        return bool(self.raw)

    def _list(self, name: str) -> list[Any]:
        value = self.raw.get(name)
        return value if isinstance(value, list) else []
