"""Collects the documents of a request. The documents are in a separate list, or in content blocks whose type marks them
as evidence. Such blocks are Anthropic's and Cohere's document blocks, and ``grounding_source`` parts.

A block without readable text, such as a PDF or a link, is not evidence and is sent upstream unchanged.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from app.errors import InvalidRequestError
from app.protocols.documents.document import misspelt, read_document
from app.protocols.documents.json_body import SHARE, refuse
from app.settings import Settings
from judges.types import Chunk

_MOST_NAMES = 200
"""The maximum number of distinct field names per request that are checked for misspellings. Documents usually share
their field names.
"""


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on the documents of a request. Sizes are in code points."""

    documents: int = 1_000
    document_chars: int = 1_000_000
    total_chars: int = 4_000_000

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        return cls(
            documents=settings.max_documents,
            document_chars=settings.max_document_chars,
            total_chars=settings.max_documents_chars,
        )


class Documents:
    """Collects the documents of one request. All methods may raise InvalidRequestError.

    A document without an id gets an id that begins with ``prefix``. With ``any_scale``, a relevance score outside 0 to
    1 is recorded in ``unscaled``. Otherwise, such a score is refused.
    """

    def __init__(self, limits: Limits, *, prefix: str = "doc", any_scale: bool = False) -> None:
        self._limits = limits
        self._prefix = prefix
        self._now = datetime.now(UTC)
        self.chunks: list[Chunk] = []
        self.paths: list[str] = []
        """The path in the request of each document in ``chunks``."""
        self.notes: list[str] = []
        """Warnings about field names in the documents that look misspelt."""
        self._chars = 0
        self._named = 0
        self._any_scale = any_scale
        self.unscaled: tuple[str, Any] | None = None
        """The path in the request of the first score outside 0 to 1, and the score."""

    def take_all(self, value: Any, path: str = "documents") -> None:
        """Add a list of documents. None counts as an empty list."""
        if value is None:
            return
        if not isinstance(value, list):
            refuse(path, "a list of objects or strings", value)
        self._check_count(len(value), path)
        for index, document in enumerate(value):
            self.take(document, f"{path}[{index}]")

    def take(self, document: Any, path: str) -> None:
        """Add one document: an object of any format, or a plain string."""
        if isinstance(document, str):
            if not document.strip():
                raise InvalidRequestError(f"{path}: the text is empty.", param=path)
            self.add(Chunk(id=self.next_id, text=document), path)
            return
        if not isinstance(document, dict):
            refuse(path, "an object or a string", document)
        if self._named < _MOST_NAMES:
            self._named += len(document)
            self.notes += misspelt(document, path)
        found = read_document(document, path, default_id=self.next_id, now=self._now)
        if found.unscaled is not None and self.unscaled is None:
            if not self._any_scale:
                refuse(found.unscaled[0], SHARE, found.unscaled[1])
            self.unscaled = found.unscaled
        self.add(found.chunk, path, text_path=found.text_path)

    def add(self, chunk: Chunk, path: str, *, text_path: str | None = None) -> None:
        """Add a parsed document."""
        self._check_count(1, path)
        where = text_path or path
        size = len(chunk.text)
        if size > self._limits.document_chars:
            raise _too_long(where, size, self._limits.document_chars)
        if self._chars + size > self._limits.total_chars:
            raise InvalidRequestError(
                f"{where}: the documents exceed the total limit of {self._limits.total_chars} characters.",
                param=where,
            )
        self._chars += size
        self.chunks.append(chunk)
        self.paths.append(path)

    @property
    def next_id(self) -> str:
        """The id for the next document if it has no id."""
        return f"{self._prefix}-{len(self.chunks) + 1}"

    def _check_count(self, more: int, path: str) -> None:
        count = len(self.chunks) + more
        if count > self._limits.documents:
            raise InvalidRequestError(
                f"{path}: {count} documents exceed the limit of {self._limits.documents}.", param=path
            )


def _too_long(path: str, size: int, limit: int) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {size} characters exceed the limit of {limit}.", param=path)


GROUNDING_SOURCE = "grounding_source"
TOOL_RESULT = "tool_result"
EVIDENCE = ("document", "search_result")
"""The types of blocks that are documents."""


def take_blocks(documents: Documents, content: Any, path: str) -> None:
    """Add each block of ``content`` that is evidence, including blocks in tool results. Raises InvalidRequestError."""
    for part, where in parts_of(content, path):
        kind = part.get("type")
        if kind == GROUNDING_SOURCE:
            documents.take({name: value for name, value in part.items() if name != "type"}, where)
        elif kind == "document" and isinstance(part.get("document"), dict):  # Cohere's
            documents.take({"document": part["document"]}, where)
        elif kind in EVIDENCE and (text := text_of_block(part)).strip():
            named = {name: part[name] for name in ("source", "title") if isinstance(part.get(name), str)}
            documents.take({"text": text, **named}, where)
        elif kind == TOOL_RESULT:
            take_blocks(documents, part.get("content"), f"{where}.content")


def parts_of(content: Any, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the typed parts of ``content``, each with its path. A string has no parts."""
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, dict):
            yield part, f"{path}[{index}]"


def plain_text(content: Any, types: Collection[str] = ("text",)) -> str:
    """Return the text of a string, or the joined text of all parts whose type is in ``types``."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part, _ in parts_of(content, "") if part.get("type") in types)
    return "\n".join(text for text in texts if isinstance(text, str))


def text_of_block(part: Mapping[str, Any]) -> str:
    """Return the text of a ``document`` or ``search_result`` block, or "" if it has none (a PDF, for example)."""
    if part.get("type") == "search_result":
        return plain_text(part.get("content"))
    source = part.get("source")
    if not isinstance(source, dict):
        return ""
    return plain_text(source.get("data") if source.get("type") == "text" else source.get("content"))
