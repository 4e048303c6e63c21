"""Parses a retrieved document, which may have the field names of any common framework.

Each field is looked up in the document, then in a nested object with the content, and finally in the metadata.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from app.errors import InvalidRequestError
from app.protocols.documents.json_body import SHARE, join_path, read_number, read_stamp, read_string, refuse
from judges.types import Chunk

_SECONDS_PER_DAY = 86_400
_CLOCK_SKEW = timedelta(days=1)

_TEXT = ("text", "content", "snippet", "page_content", "chunk", "data")
_ID = ("id", "id_", "node_id", "doc_id", "document_id")
_SOURCE = ("source", "filename", "file_id", "file_name", "file_path")
_SCORE = ("relevance_score", "score", "similarity", "relevance")
_AGE = ("age_days",)
_DATES = ("updated_at", "published_at", "created_at", "last_modified_date", "creation_date")
_UNSAID = frozenset({"id", "_excludes"})
"""Keys of Cohere's ``data`` that are not content."""
_INNER = ("node", "document", "data", "text_resource")
"""The fields that may contain an object with the content: LlamaIndex's ``node``, a ``document`` next to its score,
Cohere's ``data``, and LlamaIndex's ``text_resource``."""
_METADATA = ("metadata", "meta", "attributes")
"""The metadata fields of LangChain and LlamaIndex, of Haystack, and of OpenAI's vector stores."""


@dataclass(frozen=True, slots=True)
class FieldLayer:
    """Some fields of a document, with their path in the request."""

    fields: Mapping[str, Any]
    path: str


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """The objects in which the fields of a document are looked up. ``own`` contains the document and its nested
    objects, and ``metadata`` contains their metadata. ``layers`` contains both, in this order."""

    own: Sequence[FieldLayer]
    metadata: Sequence[FieldLayer]
    layers: Sequence[FieldLayer]

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str) -> "DocumentFields":
        """Find the layers of ``document``. Raises InvalidRequestError if the metadata is not an object."""
        own = list(_own(document, path))
        metadata = [layer for outer in own for layer in _metadata(outer)]
        return cls(own, metadata, [*own, *metadata])


@dataclass(frozen=True, slots=True)
class DocumentAt:
    """A document, and the path of its text in the request. If its relevance score is outside 0 to 1, ``unscaled``
    contains the path of the score and the score."""

    chunk: Chunk
    text_path: str
    unscaled: tuple[str, Any] | None = None


def read_document(
    document: Mapping[str, Any], path: str, *, default_id: str, now: datetime, needs_text: bool = True
) -> DocumentAt:
    """Parse the document at ``path`` in the request. Its age is relative to ``now``. Without ``needs_text``, missing
    text counts as empty. Raises InvalidRequestError.
    """
    fields = DocumentFields.of(document, path)
    text_path, text = _text(fields, path) if needs_text or find(fields.layers, _TEXT) else (path, "")
    source = _string(fields.layers, _SOURCE)
    scored = find(fields.layers, _SCORE, blank=True)
    score = read_number(scored[1], scored[0], SHARE) if scored else None
    chunk = Chunk(
        id=_identifier(fields) or default_id,
        text=text,
        source=source,
        collection=_string(fields.layers, ("collection",)),
        relevance_score=score,
        age_days=_age(fields.layers, now),
        title=_string(fields.layers, ("title",)),
        url=_string(fields.layers, ("url",)) or (source if source and source.startswith(_WEB) else None),
        metadata=fields.metadata[0].fields if fields.metadata else {},
    )
    return DocumentAt(chunk, text_path, None if score is None or 0 <= score <= 1 else scored)


_WEB = ("https://", "http://")


def misspelt(document: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield a warning for each unknown field whose name resembles a known field that is missing."""
    for name in document:
        if name not in _NAMES and len(name) <= _LONGEST_NAME and (meant := _close_to(name)) and meant not in document:
            yield f"{path}: unknown field {name!r}; did you mean {meant!r}?"


_PLAIN = ("text", "source", "collection", "relevance_score", "age_days", "title", "url", "metadata")
_NAMES = frozenset({*_PLAIN, *_TEXT, *_ID, *_SOURCE, *_SCORE, *_DATES, *_INNER, *_METADATA})
_LONGEST_NAME = 30
_SIMILAR = 0.8


@lru_cache(maxsize=1024)
def _close_to(name: str) -> str | None:
    return next(iter(get_close_matches(name.lower(), (*_PLAIN, *_DATES, *_SCORE), n=1, cutoff=_SIMILAR)), None)


def _text(fields: DocumentFields, path: str) -> tuple[str, str]:
    found = find(fields.layers, _TEXT, blank=True) or _described(fields)
    if found is None:
        raise InvalidRequestError(f"{path}.text: missing; a document must have text.", param=f"{path}.text")
    where, value = found
    text = join_texts(value, where) if isinstance(value, list) else value
    if not isinstance(text, str):
        refuse(where, "a string", text)
    if not text.strip():
        raise InvalidRequestError(f"{where}: the text is empty.", param=where)
    return where, text


def _described(fields: DocumentFields) -> tuple[str, str] | None:
    """Return the text of Cohere's ``data``, which may have any keys. Each key and its value form one line."""
    for layer in fields.own:
        if layer.path.endswith(".data"):
            excluded = layer.fields.get("_excludes")
            left_out = _UNSAID.union(name for name in excluded if isinstance(name, str)) if excluded else _UNSAID
            lines = [
                f"{name}: {value}"
                for name, value in layer.fields.items()
                if name not in left_out and isinstance(value, str | int | float)
            ]
            return layer.path, "\n".join(lines)
    return None


def join_texts(parts: Sequence[Any], path: str) -> str:
    """Return the text of a list of strings and text parts. Other parts are ignored. Raises InvalidRequestError."""
    texts = []
    for index, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type", "text") == "text":
            text = part.get("text")
            if not isinstance(text, str):
                refuse(f"{path}[{index}].text", "a string", text)
            texts.append(text)
        elif isinstance(part, str):
            texts.append(part)
        elif not isinstance(part, dict):
            refuse(f"{path}[{index}]", "a text part or a string", part)
    return "\n".join(texts)


def _identifier(fields: DocumentFields) -> str | None:
    found = find(fields.own, _ID)
    if found is None:
        return None
    path, value = found
    if isinstance(value, bool) or not isinstance(value, str | int):
        refuse(path, "a string", value)
    return str(value)


def _string(layers: Sequence[FieldLayer], names: Sequence[str]) -> str | None:
    found = find(layers, names)
    return read_string(found[1], found[0]) if found else None


def _age(layers: Sequence[FieldLayer], now: datetime) -> float | None:
    found = find(layers, (*_AGE, *_DATES), blank=True)
    if found is None:
        return None
    path, value = found
    if not path.endswith(_AGE):
        return _days_since(read_stamp(value, path), now, path, value)
    expected = "a number of days, 0 or more"
    age = read_number(value, path, expected)
    if age < 0:
        refuse(path, expected, value)
    return age


def _days_since(stamp: datetime, now: datetime, path: str, value: Any) -> float:
    if stamp > now + _CLOCK_SKEW:
        raise InvalidRequestError(f"{path}: {value!r} is in the future.", param=path)
    return float(max(0, int((now - stamp).total_seconds() // _SECONDS_PER_DAY)))


def find(layers: Sequence[FieldLayer], names: Sequence[str], *, blank: bool = False) -> tuple[str, Any] | None:
    """Return the path and value of the first of ``names`` that exists. An empty string counts as missing unless
    ``blank`` is set."""
    for layer in layers:
        for name in names:
            value = layer.fields.get(name)
            if value is None or (value == "" and not blank) or (name in _INNER and isinstance(value, dict)):
                continue
            return join_path(layer.path, [name]), value
    return None


def _own(document: Mapping[str, Any], path: str) -> Iterator[FieldLayer]:
    # In LangChain's serialized objects, ``kwargs`` contains the fields, and ``id`` names the class.
    if "lc" in document and isinstance(document.get("kwargs"), dict):
        document, path = document["kwargs"], join_path(path, ["kwargs"])
    yield FieldLayer(document, path)
    for name in _INNER:
        if isinstance(document.get(name), dict):
            yield from _own(document[name], join_path(path, [name]))


def _metadata(layer: FieldLayer) -> Iterator[FieldLayer]:
    for name in _METADATA:
        value = layer.fields.get(name)
        if value is not None and not isinstance(value, dict):
            refuse(join_path(layer.path, [name]), "an object", value)
        if value:
            yield FieldLayer(value, join_path(layer.path, [name]))
