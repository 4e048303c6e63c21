"""Rebuilds the JSON of a reply from known fields, so that no text is sent in a field that isn't judged.

Each API has tables of its known fields. A table entry is one of

- a *kind*, which is a function that returns the value to send, or ``UNFIT``;
- a mapping of names to entries, for an object;
- a list with one entry, for a list of such values;
- ``ByType``, for an object whose fields depend on its ``type``;
- ``Unread``, for content that no judge reads;
- ``RequestField``, for a field that repeats a field of the request;
- a tuple of entries: the first one that fits the value's JSON type applies.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson
import structlog

_log = structlog.stdlib.get_logger(__name__)

UNFIT: Any = object()
"""The value that a kind returns for an invalid value."""

Kind = Callable[[Any], Any]
Entry = Any
"""An entry of a table. Entries are nested recursively, so a more precise type is not possible."""

_IDENTIFIER = re.compile(r"[\w.:/@+=#~|-]{0,256}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)
_PATH = re.compile(r"[a-z][\w.-]{0,99}", re.ASCII | re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
_BESIDE_THE_ANSWER = frozenset(
    {
        "function_call", "mcp_approval_request", "mcp_approval_response", "mcp_list_tools", "reasoning",
        "reasoning_content", "reasoning_details", "redacted_thinking", "thinking", "tool_calls", "tool_result",
        "tool_use",
    }
)  # fmt: skip
"""Kinds of content that aren't part of the answer: calls, their results, and reasoning."""
_CALL_ENDS = ("_call", "_call_output", "_tool_use", "_tool_result")
"""The name suffixes of other kinds of calls and results."""
_DEEP = 16
_NAMES_LOGGED = 32
_LARGEST = 2**53
_MOST_TOKENS = 100_000_000
"""The limit for token counts. Larger counts are rejected as implausible."""
_NOT_TEXT = frozenset({"audio", "call_id", "id", "logprobs", "model", "object", "role", "signature", "status", "type"})
_MEDIA = ("image", "image_url", "input_audio", "input_image", "video_url")
"""The types of parts whose number of tokens doesn't depend on the length of their encoded data."""
OTHER = "other"
REASONING = "reasoning"
TOOL_CALLS = "tool_calls"
UNREAD = "unread"
"""Content other than text and tool calls, such as audio."""
UNKNOWN = "unknown"
"""The replacement for an invalid name in a field that clients require."""
_USUAL = frozenset(
    {
        "annotations", "citations", "comment", "content", "delta", "error", "images", "message", "metadata",
        "output_text", "parsed", "provider", "provider_specific_fields", "reasoning_details", "repeated_key",
        "search_results", "stop_reason", "text", "thinking_blocks", "title", "transcript", "type", "unreadable",
    }
)  # fmt: skip
"""Unknown fields that are common enough to be named in metrics. All others are counted as ``other``."""


def is_beside_answer(kinds: Iterable[str]) -> bool:
    """Return whether all of these kinds of content are outside the answer: calls, their results, or reasoning."""
    return all(kind in _BESIDE_THE_ANSWER or kind.endswith(_CALL_ENDS) for kind in kinds)


@dataclass(frozen=True, slots=True)
class ByType:
    """An object whose fields depend on its ``type``. Objects of unknown types are left out."""

    fields: Mapping[str, Mapping[str, Entry]]


@dataclass(frozen=True, slots=True)
class Unread:
    """Content of a reply that isn't judged. If a policy drops ``UNREAD``, the content is left out."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field that repeats the field ``name`` of the request, where ``name`` is a dotted path. The upstream's value is
    ignored, so that it can't insert text. The client gets the value from the request, or ``default`` if the request has
    none."""

    name: str
    default: Any = None


def identifier(value: Any) -> Any:
    """Accept an id, or the name of a model, a tool or a file: a short string without whitespace, which may be
    empty."""
    return value if isinstance(value, str) and _IDENTIFIER.fullmatch(value) else UNFIT


def code(value: Any) -> Any:
    """Accept an error code, which is a name or a number."""
    return identifier(value) if isinstance(value, str) else number(value)


def number(value: Any) -> Any:
    finite = isinstance(value, float) and math.isfinite(value)
    return value if finite or (isinstance(value, int) and not isinstance(value, bool)) else UNFIT


def count(value: Any) -> Any:
    """Accept a count or a position."""
    return value if type(value) is int and 0 <= value < _LARGEST else UNFIT


def token_count(value: Any) -> int | None:
    """Return ``value`` if it is a plausible token count, otherwise None."""
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else None


def boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else UNFIT


def text(value: Any) -> Any:
    """Accept any text. Other code judges the text or decides on it."""
    return value if isinstance(value, str) else UNFIT


def base64(value: Any) -> Any:
    return value if isinstance(value, str) and _BASE64.fullmatch(value) else UNFIT


def anything(value: Any) -> Any:
    """Accept any value. Other code processes the field before it is sent."""
    return value


def one_of(*values: str) -> Kind:
    """Accept only these values of a published enumeration."""
    known = frozenset(values)
    return lambda value: value if isinstance(value, str) and value in known else UNFIT


def always(standard: Any) -> Kind:
    """Replace the upstream's value with ``standard``."""
    return lambda _: standard


def normalised(known: Collection[str], synonyms: Mapping[str, str], otherwise: str) -> Kind:
    """Accept the values in ``known``, and translate vendor-specific ``synonyms`` of them. Replace any other value with
    ``otherwise``."""
    table = {**{value: value for value in known}, **synonyms, "": None}
    return lambda value: table.get(value, otherwise) if isinstance(value, str) else otherwise


def required(kind: Kind, default: Any) -> Kind:
    """Accept the values that ``kind`` accepts, and replace any other value with ``default``. Use this for fields that
    clients require."""

    def fit(value: Any) -> Any:
        known = kind(value)
        return default if known is UNFIT else known

    return fit


def padding(_: Any) -> Any:
    """Leave out a field that no client needs. It isn't counted as left out, because some upstreams always send it."""
    return None


class KnownFields:
    """Rebuilds the frames of one reply from tables of known fields, and counts the fields that it leaves out.

    ``keep`` lists the dotted names of unknown fields that are forwarded. ``drop`` lists the kinds of content that a
    policy removes: ``REASONING``, ``TOOL_CALLS`` or ``UNREAD``. ``judges_reasoning`` means that reasoning in separate
    fields is judged like text. ``request`` is the body of the request, whose fields a reply may repeat. ``observe`` is
    called with a label for each field that is left out. The set of labels is limited.
    """

    def __init__(
        self,
        *,
        keep: Collection[str] = (),
        drop: Collection[str] = (),
        judges_reasoning: bool = False,
        request: Mapping[str, Any] = MappingProxyType({}),
        observe: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.left_out: Counter[str] = Counter()
        self.drops = frozenset(drop)
        self.judges_reasoning = judges_reasoning
        self.dropped: Counter[str] = Counter()
        """The amounts of content that a policy left out: characters of reasoning, and tool calls."""
        self._keep = frozenset(keep)
        self._request = request
        self._observe = observe
        self._logged: set[str] = set()
        self._worded: set[str] = set()
        self._reported: set[str] = set()

    def news(self) -> list[str]:
        """Return the names of fields that were left out and may have contained text. Each name is returned only by the
        first call after the field was left out."""
        names = sorted(self._worded - self._reported)
        self._reported.update(names)
        return names

    def rebuild(self, value: Any, entry: Entry, path: str = "") -> Any:
        """Return ``value`` rebuilt from the fields in ``entry``, or ``UNFIT`` if nothing is left. ``path`` is the
        dotted name of the field that contains ``value``."""
        if isinstance(entry, Unread):
            if UNREAD in self.drops:
                return self.leave_out(path, value)
            entry = entry.entry
        if isinstance(entry, tuple):
            entry = next((each for each in entry if _suits(value, each)), None)
        if isinstance(entry, ByType):
            kind = value.get("type") if isinstance(value, dict) else None
            entry = entry.fields.get(kind) if isinstance(kind, str) else None
            if entry is not None:
                return {"type": kind, **self._object(value, {**entry, "type": anything}, path)}
        if not callable(entry) and isinstance(entry, Mapping):  # most are functions, and Mapping tests slowly
            return self._object(value, entry, path) if isinstance(value, dict) else self.leave_out(path, value)
        if isinstance(entry, list):
            if not isinstance(value, list):
                return self.leave_out(path, value)
            rebuilt = (self.rebuild(each, entry[0], path) for each in value)
            return [each for each in rebuilt if each is not UNFIT]
        known = self._fit(value, entry)
        if known is not value and known != value and entry is not padding:
            self.leave_out(path, value)
        return known

    def _fit(self, value: Any, entry: Entry) -> Any:
        if isinstance(entry, RequestField):
            said: Any = self._request
            for name in entry.name.split("."):
                said = said.get(name) if isinstance(said, Mapping) else said
            return entry.default if said is None else said
        return UNFIT if entry is None else entry(value)

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
        """Count a field that is left out, and return ``UNFIT``. ``known`` means that the name of the field is known,
        but its value is invalid."""
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
    """Return whether a value contains only numbers, booleans and nulls, at any depth."""
    if isinstance(value, str) or depth > _DEEP:
        return False
    if isinstance(value, Mapping):
        return all(_NAME.fullmatch(name) and wordless(inner, depth + 1) for name, inner in value.items())
    return not isinstance(value, list) or all(wordless(inner, depth + 1) for inner in value)


def text_length(value: Any) -> int:
    """Return the number of characters in the strings of a JSON value, at any depth. Ids, images and audio don't
    count."""
    length, inner = 0, [value]
    while inner:
        one = inner.pop()
        if isinstance(one, str):
            length += len(one)
        elif isinstance(one, list):
            inner += one
        elif isinstance(one, Mapping) and one.get("type") not in _MEDIA:
            inner += [each for name, each in one.items() if name not in _NOT_TEXT]
    return length


def _suits(value: Any, entry: Entry) -> bool:
    if isinstance(entry, list):
        return isinstance(value, list)
    return isinstance(value, dict) == isinstance(entry, Mapping | ByType | RequestField) and not isinstance(value, list)


def repeats_a_key(data: bytes, value: Any) -> bool:
    """Return whether the JSON in ``data``, which parses to ``value``, has a duplicate key. In that case, ``data``
    contains more quotes than the JSON of ``value``. Counting quotes is faster than parsing the JSON again, but isn't
    possible if ``data`` contains escaped backslashes."""
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
    """Return the number of quotes that delimit strings, or None if escaped backslashes make the number uncertain."""
    if b"\\" not in data:
        return data.count(b'"')
    return None if b"\\\\" in data else data.count(b'"') - data.count(b'\\"')


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("repeated key")
    return value
