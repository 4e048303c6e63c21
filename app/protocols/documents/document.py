"""One retrieved document, under any of the names that frameworks use for its fields.

A field is looked up in the document itself, then in the object with its content, and finally in its metadata.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.errors import InvalidRequestError
from app.protocols.documents.fields import join_path, read_number, read_share, read_stamp, read_string, refuse
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
"""LlamaIndex's node, a document beside its score, Cohere's data, LlamaIndex's text."""
_METADATA = ("metadata", "meta", "attributes")
"""LangChain's and LlamaIndex's, Haystack's, OpenAI's vector stores'."""


@dataclass(frozen=True, slots=True)
class FieldLayer:
    """Some fields of a document, and where in the request they are."""

    fields: Mapping[str, Any]
    path: str


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """A document: ``own`` layers describe it, ``metadata`` annotates it."""

    own: Sequence[FieldLayer]
    metadata: Sequence[FieldLayer]

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str) -> "DocumentFields":
        """Raises InvalidRequestError if the metadata is not an object."""
        own = list(_own(document, path))
        return cls(own, [layer for outer in own for layer in _metadata(outer)])

    @property
    def layers(self) -> Sequence[FieldLayer]:
        return (*self.own, *self.metadata)


@dataclass(frozen=True, slots=True)
class DocumentAt:
    """A document, and where in the request its text is."""

    chunk: Chunk
    text_path: str


def read_document(
    document: Mapping[str, Any], path: str, *, default_id: str, now: datetime, needs_text: bool = True
) -> DocumentAt:
    """The document at ``path`` of the request; ``now`` dates it. Without ``needs_text``, its text may be missing and is
    empty then. Raises InvalidRequestError."""
    fields = DocumentFields.of(document, path)
    text_path, text = _text(fields, path) if needs_text or find(fields.layers, _TEXT) else (path, "")
    source = _string(fields.layers, _SOURCE)
    chunk = Chunk(
        id=_identifier(fields) or default_id,
        text=text,
        source=source,
        collection=_string(fields.layers, ("collection",)),
        relevance_score=_score(fields.layers),
        age_days=_age(fields.layers, now),
        title=_string(fields.layers, ("title",)),
        url=_string(fields.layers, ("url",)) or (source if source and source.startswith(_WEB) else None),
        metadata=fields.metadata[0].fields if fields.metadata else {},
    )
    return DocumentAt(chunk, text_path)


_WEB = ("https://", "http://")


def _text(fields: DocumentFields, path: str) -> tuple[str, str]:
    found = find(fields.layers, _TEXT, blank=True) or _described(fields)
    if found is None:
        raise InvalidRequestError(f"{path}.text: a document needs a text.", param=f"{path}.text")
    where, value = found
    text = join_texts(value, where) if isinstance(value, list) else value
    if not isinstance(text, str):
        refuse(where, "a string", text)
    if not text.strip():
        raise InvalidRequestError(f"{where}: the text is empty.", param=where)
    return where, text


def _described(fields: DocumentFields) -> tuple[str, str] | None:
    """Cohere's ``data`` may have any keys: each is a line of the text."""
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
    """The text of a list of strings and text parts; other parts have none. Raises InvalidRequestError."""
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


def _score(layers: Sequence[FieldLayer]) -> float | None:
    found = find(layers, _SCORE, blank=True)
    return read_share(found[1], found[0]) if found else None


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
        raise InvalidRequestError(f"{path}: {value!r} lies in the future.", param=path)
    return float(max(0, int((now - stamp).total_seconds() // _SECONDS_PER_DAY)))


def find(layers: Sequence[FieldLayer], names: Sequence[str], *, blank: bool = False) -> tuple[str, Any] | None:
    """Path and value of the first of ``names`` that exists. An empty string counts only if ``blank``."""
    for layer in layers:
        for name in names:
            value = layer.fields.get(name)
            if value is None or (value == "" and not blank) or (name in _INNER and isinstance(value, dict)):
                continue
            return join_path(layer.path, [name]), value
    return None


def _own(document: Mapping[str, Any], path: str) -> Iterator[FieldLayer]:
    # LangChain's serialised objects: ``kwargs`` has their arguments, and ``id`` names their class.
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
