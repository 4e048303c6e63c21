"""Rebuilds the JSON of a reply from known fields, so that no text leaves under a name that nobody reads.

Each API has tables of its fields. A table entry is one of

- a *kind*: a function that returns the value as it may leave, or ``UNFIT``;
- a mapping of names to entries: an object;
- a list of one entry: a list of those;
- ``ByType``: an object whose fields depend on its ``type``;
- a tuple of entries: the first that fits the value's JSON type.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

_log = structlog.stdlib.get_logger(__name__)

UNFIT: Any = object()
"""What a kind returns for a value that is not of it."""

Kind = Callable[[Any], Any]
Entry = Any
"""An entry of a table: its forms nest, so no type describes it better."""

_IDENTIFIER = re.compile(r"[\w.:/@+=#~|-]{0,256}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)
_PATH = re.compile(r"[a-z][\w.-]{0,99}", re.ASCII | re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
_DEEP = 16
_NAMES_LOGGED = 32
_LARGEST = 2**53
OTHER = "other"
REASONING = "reasoning"
TOOL_CALLS = "tool_calls"
UNKNOWN = "unknown"
"""A name in place of one that cannot be a name, if clients count on one."""
_USUAL = frozenset(
    {
        "annotations", "citations", "comment", "content", "delta", "error", "images", "message", "metadata",
        "output_text", "parsed", "provider", "provider_specific_fields", "reasoning_details", "repeated_key",
        "search_results", "stop_reason", "text", "thinking_blocks", "title", "transcript", "type", "unreadable",
    }
)  # fmt: skip
"""Unknown fields that are common enough to be named in metrics; the others are ``other``."""


@dataclass(frozen=True, slots=True)
class ByType:
    """An object whose fields depend on its ``type``; one of another type is left out."""

    fields: Mapping[str, Mapping[str, Entry]]


def identifier(value: Any) -> Any:
    """An id, or the name of a model, a tool or a file: no white space, of bounded length; or empty."""
    return value if isinstance(value, str) and _IDENTIFIER.fullmatch(value) else UNFIT


def code(value: Any) -> Any:
    """The code of an error: a name or a number."""
    return identifier(value) if isinstance(value, str) else number(value)


def number(value: Any) -> Any:
    finite = isinstance(value, float) and math.isfinite(value)
    return value if finite or (isinstance(value, int) and not isinstance(value, bool)) else UNFIT


def count(value: Any) -> Any:
    """A count or a position."""
    return value if type(value) is int and 0 <= value < _LARGEST else UNFIT


def boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else UNFIT


def text(value: Any) -> Any:
    """Text that is judged, or decided about, elsewhere."""
    return value if isinstance(value, str) else UNFIT


def base64(value: Any) -> Any:
    return value if isinstance(value, str) and _BASE64.fullmatch(value) else UNFIT


def anything(value: Any) -> Any:
    """A value that does not leave as it is: other code reads it."""
    return value


def one_of(*values: str) -> Kind:
    """A value of a published enumeration."""
    known = frozenset(values)
    return lambda value: value if isinstance(value, str) and value in known else UNFIT


def always(standard: Any) -> Kind:
    """A field that has this value whatever the upstream says."""
    return lambda _: standard


def normalised(known: Collection[str], synonyms: Mapping[str, str], otherwise: str) -> Kind:
    """A published value; vendors' own ones are translated."""
    table = {**{value: value for value in known}, **synonyms, "": None}
    return lambda value: table.get(value, otherwise) if isinstance(value, str) else otherwise


def required(kind: Kind, default: Any) -> Kind:
    """A field that clients count on: an unfit value becomes ``default``."""

    def fit(value: Any) -> Any:
        known = kind(value)
        return default if known is UNFIT else known

    return fit


def padding(_: Any) -> Any:
    """A field that every reply of some upstream has and no client needs: left out, and not counted."""
    return None


class KnownFields:
    """Rebuilds the frames of one reply from tables of known fields, and counts what it leaves out.

    ``keep``: dotted names of unknown fields that may pass. ``drop``: the kinds of content that a policy leaves out,
    ``REASONING`` or ``TOOL_CALLS``. ``observe`` is called with the name of each field that is left out; the names are
    from a closed set.
    """

    def __init__(
        self,
        *,
        keep: Collection[str] = (),
        drop: Collection[str] = (),
        observe: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.left_out: Counter[str] = Counter()
        self.drops = frozenset(drop)
        self.dropped: Counter[str] = Counter()
        """What a policy left out: how many characters of reasoning, how many tool calls."""
        self._keep = frozenset(keep)
        self._observe = observe
        self._logged: set[str] = set()
        self._worded: set[str] = set()
        self._reported: set[str] = set()

    def news(self) -> list[str]:
        """The names of fields that could hold text and were left out for the first time since the last call."""
        names = sorted(self._worded - self._reported)
        self._reported.update(names)
        return names

    def rebuild(self, value: Any, entry: Entry, path: str = "") -> Any:
        """``value`` from what ``entry`` knows of it; ``UNFIT`` if nothing is left. ``path`` is its dotted name."""
        if isinstance(entry, tuple):
            entry = next((each for each in entry if _suits(value, each)), None)
        if isinstance(entry, ByType):
            kind = value.get("type") if isinstance(value, dict) else None
            entry = entry.fields.get(kind) if isinstance(kind, str) else None
            if entry is not None:
                return {"type": kind, **self._object(value, {**entry, "type": anything}, path)}
        if isinstance(entry, Mapping):
            return self._object(value, entry, path) if isinstance(value, dict) else self.leave_out(path, value)
        if isinstance(entry, list):
            if not isinstance(value, list):
                return self.leave_out(path, value)
            rebuilt = (self.rebuild(each, entry[0], path) for each in value)
            return [each for each in rebuilt if each is not UNFIT]
        known = UNFIT if entry is None else entry(value)
        if known is not value and known != value and entry is not padding:
            self.leave_out(path, value)
        return known

    def _object(self, value: Mapping[str, Any], fields: Mapping[str, Entry], path: str) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for name, inner in value.items():
            at = f"{path}.{name}" if path else name
            entry = fields.get(name)
            if at in self._keep:
                known[name] = inner
            elif inner is None:
                if entry is not None:
                    known[name] = None
            elif entry is None:
                self.leave_out(at, inner if _NAME.fullmatch(name) else name, known=False)
            elif (rebuilt := self.rebuild(inner, entry, at)) is not UNFIT and entry is not padding:
                known[name] = rebuilt
        return known

    def leave_out(self, path: str, value: Any = "", *, known: bool = True) -> Any:
        """Count a field that is left out. ``known``: its name is one of ours, the value is not. Return ``UNFIT``."""
        label = path
        if not known:
            name = path.rpartition(".")[2]
            label = name if name in _USUAL else OTHER
        self.left_out[label] += 1
        if not wordless(value):
            self._worded.add(label.rpartition(".")[2])
        self._observe(label)
        if path not in self._logged and len(self._logged) < _NAMES_LOGGED:
            self._logged.add(path)
            _log.debug("field_left_out", field=path if _PATH.fullmatch(path) else OTHER)
        return UNFIT


def wordless(value: Any, depth: int = 0) -> bool:
    """Whether a value has only numbers and the like, at any depth."""
    if isinstance(value, str) or depth > _DEEP:
        return False
    if isinstance(value, Mapping):
        return all(_NAME.fullmatch(name) and wordless(inner, depth + 1) for name, inner in value.items())
    return not isinstance(value, list) or all(wordless(inner, depth + 1) for inner in value)


def _suits(value: Any, entry: Entry) -> bool:
    if isinstance(entry, list):
        return isinstance(value, list)
    return isinstance(value, dict) == isinstance(entry, Mapping | ByType) and not isinstance(value, list)


def repeats_a_key(data: bytes, value: Any) -> bool:
    """Whether the JSON in ``data``, which reads as ``value``, gives some key of an object twice.

    A key that is given twice takes two quotes more than ``value`` needs; without escaped backslashes they are counted
    without reading the JSON a second time.
    """
    try:
        given, needed = _quotes(data), _quotes(orjson.dumps(value))
    except (TypeError, orjson.JSONEncodeError):
        given = needed = None
    if given is not None and needed is not None:
        return given != needed
    try:
        json.loads(data.decode("utf-8", "replace"), strict=False, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        return True
    return False


def _quotes(data: bytes) -> int | None:
    """How many quotes delimit strings; None if escaped backslashes make that uncertain."""
    if b"\\" not in data:
        return data.count(b'"')
    return None if b"\\\\" in data else data.count(b'"') - data.count(b'\\"')


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("repeated key")
    return value
