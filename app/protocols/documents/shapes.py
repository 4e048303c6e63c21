"""The shapes in which ecosystems write a retrieved document, as one: layers of fields, the outermost first.

A field is looked for in the document itself, then in the object that holds its content, last in its metadata.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.protocols.documents.fields import join_path, refuse

_INNER = ("node", "document", "data", "text_resource")
"""LlamaIndex's node, a document beside its score, Cohere's data, LlamaIndex's text."""
_METADATA = ("metadata", "meta", "attributes")
"""LangChain's and LlamaIndex's, Haystack's, OpenAI's vector stores'."""


@dataclass(frozen=True, slots=True)
class FieldLayer:
    """Some of a document's fields, and where in the request they stand."""

    fields: Mapping[str, Any]
    path: str


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """A document: ``own`` layers hold what it is, ``metadata`` what is said of it."""

    own: Sequence[FieldLayer]
    metadata: Sequence[FieldLayer]

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str) -> "DocumentFields":
        """Raises InvalidRequestError where metadata is no object."""
        own = list(_own(document, path))
        return cls(own, [layer for outer in own for layer in _metadata(outer)])

    @property
    def layers(self) -> Sequence[FieldLayer]:
        return (*self.own, *self.metadata)


def find(layers: Sequence[FieldLayer], names: Sequence[str], *, blank: bool = False) -> tuple[str, Any] | None:
    """Path and value of the first field of ``names`` that is there. An empty string counts only if ``blank``."""
    for layer in layers:
        for name in names:
            value = layer.fields.get(name)
            if value is None or (value == "" and not blank) or (name in _INNER and isinstance(value, dict)):
                continue
            return join_path(layer.path, [name]), value
    return None


def _own(document: Mapping[str, Any], path: str) -> Iterator[FieldLayer]:
    # LangChain's serialised objects: what they were made of stands in ``kwargs``, and ``id`` names their class.
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
