"""The fields of a plain completion that may be released: its envelope, the fields of its choices, and values without
text.

Anything else might be text that nobody judged, so it is left out and its name is reported.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.protocols.common.logprobs import number, spelling

ENVELOPE = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
_APART = frozenset({"choices", "usage"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_ID = re.compile(r"[!-~]{1,256}")
"""No white space, and only ASCII: an id or a model, not a sentence."""
_REASON = re.compile(r"[A-Za-z_-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredFields:
    """The fields of an object that may be released, and the names of those that may not."""

    kept: dict[str, Any]
    left: Sequence[str]


def sift_envelope(frame: Mapping[str, Any]) -> FilteredFields:
    """A frame, or a whole reply, without its choices and its usage."""
    kept: dict[str, Any] = {}
    left = []
    for name, value in frame.items():
        if name in _APART:
            continue
        if name in ENVELOPE and isinstance(value, str) and _ID.fullmatch(value):
            kept[name] = value
        elif _is_plain(name, value):
            kept[name] = _finite(value)
        else:
            left.append(_told(name))
    return FilteredFields(kept=kept, left=left)


def sift_choice(choice: Mapping[str, Any], index: int) -> FilteredFields:
    """A choice, with the index ``index``. A finish reason that is not a word becomes ``unknown``."""
    text = choice.get("text")
    text = text if isinstance(text, str) else ""
    kept: dict[str, Any] = {"index": index}
    left = []
    for name, value in choice.items():
        if name == "index":
            continue
        if name == "logprobs":
            kept[name] = spelling(value, text) if value else None
            whole = not value or kept[name] == value
        elif name == "finish_reason":
            kept[name] = _reason(value) if value else None
            whole = not value or kept[name] == value
        elif whole := isinstance(value, str | None) if name == "text" else _is_plain(name, value):
            kept[name] = _finite(value)
        if not whole:
            left.append(_told(name))
    return FilteredFields(kept=kept, left=left)


def sift_usage(usage: Mapping[str, Any]) -> FilteredFields:
    """Token counts: numbers, and objects of numbers."""
    kept = _counts(usage)
    return FilteredFields(kept=kept, left=() if kept == usage else ("usage",))


def index_of(choice: Mapping[str, Any], otherwise: int) -> int:
    """The index in a choice; ``otherwise`` if it has no valid one."""
    index = choice.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) and index >= 0 else otherwise


def indices_of(choices: Sequence[Any]) -> Sequence[int]:
    """The index of each choice of a whole reply: its own if all are distinct, otherwise its position."""
    places = list(range(len(choices)))
    said = [index_of(choice, -1) if isinstance(choice, dict) else -1 for choice in choices]
    return said if sorted(said) == places else places


def _is_plain(name: str, value: Any) -> bool:
    return (not value or isinstance(value, int | float)) and _NAME.fullmatch(name) is not None


def _finite(value: Any) -> Any:
    return number(value) if isinstance(value, float) else value


def _counts(usage: Mapping[str, Any], *, inner: bool = False) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in usage.items():
        if isinstance(value, dict) and not inner and _NAME.fullmatch(name):
            kept[name] = _counts(value, inner=True)
        elif _is_plain(name, value):
            kept[name] = _finite(value)
    return kept


def _reason(value: Any) -> str:
    return value if isinstance(value, str) and _REASON.fullmatch(value) else "unknown"


def _told(name: str) -> str:
    """A name that can be reported; anything else might be text itself."""
    return name if _NAME.fullmatch(name) else "unknown"
