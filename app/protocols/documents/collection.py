"""The documents of a request, wherever they are in it."""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from app.errors import InvalidRequestError
from app.protocols.documents.document import read_document
from app.protocols.documents.fields import refuse
from app.settings import Settings
from judges.types import Chunk


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on the documents of a request; sizes in code points."""

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
    """Collects the documents of one request. Every method raises InvalidRequestError.

    ``prefix`` begins the ids of documents without one.
    """

    def __init__(self, limits: Limits, *, prefix: str = "doc") -> None:
        self._limits = limits
        self._prefix = prefix
        self._now = datetime.now(UTC)
        self._chunks: list[Chunk] = []
        self._paths: list[str] = []
        self._chars = 0

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        return tuple(self._chunks)

    @property
    def paths(self) -> tuple[str, ...]:
        """Where in the request each of ``chunks`` is."""
        return tuple(self._paths)

    def take_all(self, value: Any, path: str = "documents") -> None:
        """A list of documents; nothing if it is missing."""
        if value is None:
            return
        if not isinstance(value, list):
            refuse(path, "a list of objects or strings", value)
        self._check_count(len(value), path)
        for index, document in enumerate(value):
            self.take(document, f"{path}[{index}]")

    def take(self, document: Any, path: str) -> None:
        """One document: an object of any format, or a plain string."""
        if isinstance(document, str):
            if not document.strip():
                raise InvalidRequestError(f"{path}: the text is empty.", param=path)
            self.add(Chunk(id=self.next_id, text=document), path)
            return
        if not isinstance(document, dict):
            refuse(path, "an object or a string", document)
        found = read_document(document, path, default_id=self.next_id, now=self._now)
        self.add(found.chunk, path, text_path=found.text_path)

    def add(self, chunk: Chunk, path: str, *, text_path: str | None = None) -> None:
        """A document that was read already."""
        self._check_count(1, path)
        where = text_path or path
        size = len(chunk.text)
        if size > self._limits.document_chars:
            raise _too_long(where, size, self._limits.document_chars)
        if self._chars + size > self._limits.total_chars:
            raise InvalidRequestError(
                f"{where}: all documents together have more than {self._limits.total_chars} characters.", param=where
            )
        self._chars += size
        self._chunks.append(chunk)
        self._paths.append(path)

    @property
    def next_id(self) -> str:
        """The id for the next document without one."""
        return f"{self._prefix}-{len(self._chunks) + 1}"

    def _check_count(self, more: int, path: str) -> None:
        count = len(self._chunks) + more
        if count > self._limits.documents:
            raise InvalidRequestError(
                f"{path}: {count} documents were given, at most {self._limits.documents} are taken.", param=path
            )


def _too_long(path: str, size: int, limit: int) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: the text has {size} characters, at most {limit} are taken.", param=path)
