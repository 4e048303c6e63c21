"""Finds the models that a forwarded request names in its path, query or body. An upstream may use any of them."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.auth import is_model_field

_PART_HEADERS = frozenset({"content-disposition", "content-type", "content-length", "content-transfer-encoding"})
_MULTIPART = "multipart/form-data"
_FORM = "application/x-www-form-urlencoded"


class UnreadableFormError(ValueError):
    """Another parser might read the form differently."""


def models_in_url(path: str, query: str) -> Iterator[str]:
    """Yield the models that a URL names. ``path`` is the part after ``/v1``, such as ``/deployments/NAME/…``,
    ``/engines/NAME/…`` or ``/models/NAME:verb``."""
    segments = unquote(path).split("/")
    for kind, name in pairwise(segments):
        if kind.lower() in ("deployments", "engines"):
            yield name
        elif kind.lower() == "models" and ":" in name:
            yield name.rpartition(":")[0]
    for field, value in parse_qsl(query, keep_blank_values=True):
        if _is_model(field):
            yield value


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in (_MULTIPART, _FORM)


def models_in_form(content_type: str, raw: bytes) -> list[str]:
    """Return the models that a form names. Raises UnreadableFormError."""
    if content_type.partition(";")[0].strip().lower() == _FORM:
        fields = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True)
    else:
        fields = _parts(content_type, raw)
    return [value for name, value in fields if _is_model(name)]


def _is_model(name: str) -> bool:
    return is_model_field(name.strip().removesuffix("[]"))


def _parts(content_type: str, raw: bytes) -> list[tuple[str, str]]:
    """Return the name and value of each part of a multipart form."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not boundary or not raw.startswith(b"--" + boundary):
        raise UnreadableFormError
    reader = _PartReader()
    try:
        parser = MultipartParser(boundary, reader.callbacks)
        parser.write(raw)
        parser.finalize()
    except FormParserError:
        raise UnreadableFormError from None
    return [_read_part(headers, value) for headers, value in reader.parts]


def _read_part(headers: list[tuple[str, str]], value: bytes) -> tuple[str, str]:
    names = [name for name, _ in headers]
    if names.count("content-disposition") != 1 or not _PART_HEADERS.issuperset(names):
        raise UnreadableFormError
    disposition = dict(headers)["content-disposition"]
    if disposition.lower().count("name=") - disposition.lower().count("filename=") != 1 or "name*" in disposition:
        raise UnreadableFormError
    _, options = parse_options_header(disposition)
    return options.get(b"name", b"").decode("utf-8", "replace"), value.decode("utf-8", "replace").strip()


class _PartReader:
    """Collects the headers and the value of each part."""

    def __init__(self) -> None:
        self.parts: list[tuple[list[tuple[str, str]], bytes]] = []
        self._headers: list[tuple[str, str]] = []
        self._name = self._value = b""
        self._data = bytearray()

    @property
    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._more,
            "on_header_end": self._header,
            "on_part_data": self._collect,
            "on_part_end": self._end,
        }

    def _begin(self) -> None:
        self._headers, self._data = [], bytearray()
        self._name = self._value = b""

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _more(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self._headers.append((self._name.decode("latin-1").strip().lower(), self._value.decode("latin-1")))
        self._name = self._value = b""

    def _collect(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def _end(self) -> None:
        self.parts.append((self._headers, bytes(self._data)))


def collections_in(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the collection of each document in a JSON body, with the document's path in the body."""
    documents = body.get("documents")
    for index, document in enumerate(documents if isinstance(documents, list) else ()):
        if isinstance(document, dict) and document.get("collection") is not None:
            yield f"documents[{index}]", str(document["collection"])
