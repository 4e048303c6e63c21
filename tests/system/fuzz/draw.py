"""Turns a fuzzer's bytes into choices: structures that look real, with something wrong."""

import copy
import json
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

LEAVES: Sequence[Any] = (
    None, True, False, 0, 1, -1, 7, 2**63, -(2**70), 0.5, -0.0, 1e308, 1.7e9, "", " ", "\0", "\ud800", "\u2028",
    "😀", "text", "A fact.", "[1]", "{}", "2026-01-31", "2026-01-31T10:00:00Z", "9999-12-31T23:59:59-14:00",
    "a" * 300, "\r\n", "data: x", [], {}, [None], [[]], {"": ""}, {"text": "A fact."},
    {"type": "text", "text": "A fact."},
)  # fmt: skip
"""Values in place of expected ones."""


class Draw:
    """Reads choices from ``data``; after its end, every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._data)

    def byte(self) -> int:
        value = 0 if self.ended else self._data[self._at]
        self._at += 1
        return value

    def below(self, limit: int) -> int:
        return self.byte() % limit

    def flag(self) -> bool:
        return self.byte() % 2 == 1

    def pick(self, choices: Sequence[T]) -> T:
        value = self.byte() if len(choices) <= 256 else self.byte() << 8 | self.byte()
        return choices[value % len(choices)]

    def bytes(self, most: int) -> bytes:
        """Up to ``most`` bytes, unchanged."""
        taken = self._data[self._at : self._at + self.below(most + 1)]
        self._at += len(taken)
        return taken

    def rest(self) -> bytes:
        taken = self._data[self._at :]
        self._at = len(self._data)
        return taken

    def text(self, most: int) -> str:
        return self.bytes(most).decode("utf-8", "replace")

    def cut(self, whole: bytes) -> list[bytes]:
        """``whole`` in pieces."""
        step = 4096 >> self.below(13)
        return [whole[at : at + step] for at in range(0, len(whole), step)]

    def value(self, names: Sequence[str], depth: int = 3) -> Any:
        """A JSON value whose objects have fields of ``names``."""
        match self.below(8):
            case 0 | 1 | 2 | 3:
                return copy.deepcopy(self.pick(LEAVES))
            case 4:
                return self.text(12)
            case 5:
                return self.pick(names)
            case 6 if depth:
                return [self.value(names, depth - 1) for _ in range(self.below(4))]
            case 7 if depth:
                return {self.pick(names): self.value(names, depth - 1) for _ in range(self.below(5))}
        return self.byte()

    def edited(self, template: Any, names: Sequence[str]) -> Any:
        """A copy of ``template`` with up to seven values replaced, removed, duplicated or inserted."""
        root = [copy.deepcopy(template)]
        for _ in range(self.below(8)):
            self._edit(root, names)
        return root[0] if root else None

    def _edit(self, root: list[Any], names: Sequence[str]) -> None:
        at: Any = root
        place: Any = 0
        while at and isinstance(at[place], dict | list) and at[place] and not (at is not root and self.below(4) == 0):
            at = at[place]
            place = self.pick(list(at)) if isinstance(at, dict) else self.below(len(at))
        match self.below(5) if at else 0:
            case 0 | 1:
                at[place if at else slice(0)] = self.value(names) if at else [self.value(names)]
            case 2 if at is not root:
                del at[place]
            case 3 if isinstance(at, list):
                at.insert(self.below(len(at) + 1), copy.deepcopy(at[place]))
            case _ if isinstance(at, dict):
                at[self.pick(names)] = self.value(names)


def names_in(*values: Any) -> list[str]:
    """The names of all fields, and all short strings, in ``values``: the vocabulary of edits."""
    found: dict[str, None] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.update(dict.fromkeys(value))
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, str) and len(value) < 40:
            found[value] = None
    return list(found)


def encoded(value: Any) -> bytes:
    """JSON, including halves of surrogate pairs, as some clients write it."""
    return json.dumps(value).encode()
