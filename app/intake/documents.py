"""Retrieved documents, by any of the names that clients have for their fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from app.errors import InvalidRequestError
from app.intake.fields import first_of, read_number, read_share, read_stamp, read_string, refuse
from app.settings import Settings
from judges.types import Chunk

_SECONDS_PER_DAY = 86_400
_CLOCK_SKEW = timedelta(days=1)

_TEXT = ("text", "content", "snippet", "page_content", "chunk", "data")
_SCORE = ("relevance_score", "score", "similarity", "relevance")
_SOURCE = ("source", "filename", "file_id")
_DATES = ("updated_at", "published_at", "created_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a request may bring along."""

    documents: int = 1_000

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        return cls(documents=settings.max_documents)


class Documents:
    """Collects the documents of one request, wherever in it they stand. Every method raises InvalidRequestError."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._now = datetime.now(UTC)
        self._chunks: list[Chunk] = []
        self._paths: list[str] = []

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        return tuple(self._chunks)

    @property
    def paths(self) -> tuple[str, ...]:
        """Where in the request each of ``chunks`` stands."""
        return tuple(self._paths)

    def take_all(self, value: Any, path: str = "documents") -> None:
        """A list of documents; nothing where there is none."""
        if value is None:
            return
        if not isinstance(value, list):
            refuse(path, "a list of objects or strings", value)
        if len(value) > self._limits.documents:
            raise InvalidRequestError(
                f"{path}: {len(value)} documents were given, at most {self._limits.documents} are taken.", param=path
            )
        for index, document in enumerate(value):
            self.take(document, f"{path}[{index}]")

    def take(self, document: Any, path: str) -> None:
        """One document: an object or a plain string."""
        if isinstance(document, str):
            document = {"text": document}
        if not isinstance(document, dict):
            refuse(path, "an object or a string", document)
        self._chunks.append(_read(document, path, f"doc-{len(self._chunks) + 1}", self._now))
        self._paths.append(path)


def read_documents(value: Any, limits: Limits) -> tuple[Chunk, ...]:
    """The documents of the field ``documents``. Raises InvalidRequestError."""
    documents = Documents(limits)
    documents.take_all(value)
    return documents.chunks


def _read(document: Mapping[str, Any], path: str, default_id: str, now: datetime) -> Chunk:
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        refuse(f"{path}.metadata", "an object", metadata)
    identifier = document.get("id")
    if identifier is not None and (isinstance(identifier, bool) or not isinstance(identifier, str | int)):
        refuse(f"{path}.id", "a string", identifier)
    return Chunk(
        id=str(identifier) if identifier not in (None, "") else default_id,
        text=_read_text(document, path),
        source=_read_named(document, _SOURCE, path),
        collection=_read_named(document, ("collection",), path),
        relevance_score=_read_score(document, path),
        age_days=_read_age(document, path, now),
        title=_read_named(document, ("title",), path),
        url=_read_named(document, ("url",), path),
        metadata=metadata or {},
    )


def _read_text(document: Mapping[str, Any], path: str) -> str:
    name, text = first_of(document, _TEXT)
    if isinstance(text, dict):  # Cohere: {"data": {"text" | "snippet": ...}}
        inner, text = first_of(text, _TEXT)
        name = f"{name}.{inner}"
    if text is None:
        raise InvalidRequestError(f"{path}.text: a document needs a text.", param=f"{path}.text")
    if not isinstance(text, str):
        refuse(f"{path}.{name}", "a string", text)
    if not text.strip():
        raise InvalidRequestError(f"{path}.{name}: the text is empty.", param=f"{path}.{name}")
    return text


def _read_named(document: Mapping[str, Any], names: Sequence[str], path: str) -> str | None:
    name, value = first_of(document, names)
    return read_string(value, f"{path}.{name}")


def _read_score(document: Mapping[str, Any], path: str) -> float | None:
    name, value = first_of(document, _SCORE)
    return None if value is None else read_share(value, f"{path}.{name}")


def _read_age(document: Mapping[str, Any], path: str, now: datetime) -> float | None:
    value = document.get("age_days")
    if value is not None:
        age = read_number(value, f"{path}.age_days", "a number of days, 0 or more")
        if age < 0:
            refuse(f"{path}.age_days", "a number of days, 0 or more", value)
        return age
    name, value = first_of(document, _DATES)
    if value is None:
        return None
    stamp = read_stamp(value, f"{path}.{name}")
    if stamp > now + _CLOCK_SKEW:
        raise InvalidRequestError(f"{path}.{name}: {value!r} lies in the future.", param=f"{path}.{name}")
    return float(max(0, int((now - stamp).total_seconds() // _SECONDS_PER_DAY)))
