"""From a request body to documents and options: every way in which clients attach retrieved documents.

Bad input raises InvalidRequestError that names the field and what was expected; nothing is sent upstream then.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal, NoReturn

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import InvalidRequestError
from judges.types import Chunk

_SECONDS_PER_DAY = 86_400
_CLOCK_SKEW = timedelta(days=1)

_TEXT = ("text", "content", "snippet", "page_content", "chunk", "data")
_SCORE = ("relevance_score", "score", "similarity", "relevance")
_SOURCE = ("source", "filename", "file_id")
_DATES = ("updated_at", "published_at", "created_at")


class Reported(BaseModel):
    """What the caller's own pipeline found out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    grounding_scores: list[Annotated[float, Field(ge=0, le=1)]] = []
    citations: list[str] = []
    unsupported_claims: list[str] = []
    output_confidence: Annotated[float, Field(ge=0, le=1)] | None = None


class Options(BaseModel):
    """The ``grounding`` field of a request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    agent: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    run_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    query: str | None = None
    inject: Literal["none", "system", "user"] = "none"
    include: list[Literal["claims", "decisions", "documents"]] | None = None
    reported: Reported = Reported()

    def shows(self, part: str) -> bool:
        """Whether the client asked to see this part of the result; left out means all."""
        return self.include is None or part in self.include

    @property
    def silent(self) -> bool:
        """The client wants a byte-clean reply."""
        return self.include == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A request, read. ``body`` goes upstream, without our fields; ``raw`` is its bytes where they need no change."""

    body: dict[str, Any]
    raw: bytes | None
    chunks: tuple[Chunk, ...]
    options: Options
    model: str | None
    stream: bool
    include_usage: bool
    choices: int = 1
    """How many choices the reply will have (``n``)."""


def parse_json(raw: bytes) -> dict[str, Any]:
    """Decode a request body. Raises InvalidRequestError where it is no JSON object."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        body = _parse_leniently(raw, error)
    if not isinstance(body, dict):
        raise InvalidRequestError(f"The request body must be a JSON object, not {_kind(body)}.")
    return body


def _parse_leniently(raw: bytes, error: orjson.JSONDecodeError) -> Any:
    """Integers beyond 64 bits are valid JSON that orjson refuses; NaN and Infinity are not, and are named."""
    import json

    try:
        return json.loads(raw, parse_constant=_Constant)
    except (ValueError, RecursionError):
        raise InvalidRequestError(f"The request body is not valid JSON: {error}.") from None


class _Constant(float):
    """NaN or an infinity in a request body: read, so that the field it stands in can be named, and refused there."""

    def __new__(cls, name: str) -> "_Constant":
        return super().__new__(cls, name.replace("Infinity", "inf"))


def read_chat(raw: bytes, headers: Mapping[str, str], *, max_documents: int) -> Intake:
    """Read a Chat Completions request with our extension. Raises InvalidRequestError."""
    body = parse_json(raw)
    chunks = read_documents(body.get("documents"), max_documents=max_documents)
    options = read_options(body.get("grounding"), headers)
    _refuse_constants(body)
    _check_messages(body.get("messages"))
    model, stream, stream_options = body.get("model"), body.get("stream"), body.get("stream_options")
    if model is not None and not isinstance(model, str):
        _refuse("model", "a string", model)
    if stream is not None and not isinstance(stream, bool):
        _refuse("stream", "true or false", stream)
    if stream_options is not None and not isinstance(stream_options, dict):
        _refuse("stream_options", "an object", stream_options)
    choices = body.get("n")
    ours = {name for name in ("documents", "grounding") if name in body}
    return Intake(
        body={name: value for name, value in body.items() if name not in ours} if ours else body,
        raw=None if ours else raw,
        chunks=chunks,
        options=options,
        model=model,
        stream=bool(stream),
        choices=choices if isinstance(choices, int) and choices > 0 else 1,
        include_usage=bool(stream_options and stream_options.get("include_usage")),
    )


def read_options(value: Any, headers: Mapping[str, str]) -> Options:
    """The ``grounding`` field, with agent and run from the headers where the body does not name them."""
    value = {} if value is None else value
    if not isinstance(value, dict):
        _refuse("grounding", "an object", value)
    for name, header in (("agent", "x-groundlane-agent"), ("run_id", "x-groundlane-run-id")):
        if value.get(name) is None and headers.get(header):
            value = {**value, name: headers[header]}
    if isinstance(value.get("reported"), dict):
        value = {**value, "reported": {k: v for k, v in value["reported"].items() if v is not None}}
    try:
        return Options.model_validate({k: v for k, v in value.items() if v is not None or k == "include"})
    except ValidationError as error:
        first = error.errors()[0]
        param = _path("grounding", first["loc"])
        message = "unknown field" if first["type"] == "extra_forbidden" else first["msg"]
        raise InvalidRequestError(f"{param}: {message}.", param=param) from None


def read_documents(value: Any, *, max_documents: int) -> tuple[Chunk, ...]:
    """The ``documents`` field: objects or plain strings, by any of the names in use for their fields."""
    if value is None:
        return ()
    if not isinstance(value, list):
        _refuse("documents", "a list of objects or strings", value)
    if len(value) > max_documents:
        raise InvalidRequestError(
            f"documents: {len(value)} documents were given, at most {max_documents} are taken.", param="documents"
        )
    now = datetime.now(UTC)
    return tuple(_read_document(document, index, now) for index, document in enumerate(value))


def _read_document(document: Any, index: int, now: datetime) -> Chunk:
    where = f"documents[{index}]"
    if isinstance(document, str):
        document = {"text": document}
    if not isinstance(document, dict):
        _refuse(where, "an object or a string", document)
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        _refuse(f"{where}.metadata", "an object", metadata)
    identifier = document.get("id")
    if identifier is not None and (isinstance(identifier, bool) or not isinstance(identifier, str | int)):
        _refuse(f"{where}.id", "a string", identifier)
    return Chunk(
        id=str(identifier) if identifier not in (None, "") else f"doc-{index + 1}",
        text=_read_text(document, where),
        source=_read_string(document, _SOURCE, where),
        collection=_read_string(document, ("collection",), where),
        relevance_score=_read_score(document, where),
        age_days=_read_age(document, where, now),
        title=_read_string(document, ("title",), where),
        url=_read_string(document, ("url",), where),
        metadata=metadata or {},
    )


def _read_text(document: Mapping[str, Any], where: str) -> str:
    name, text = _first(document, _TEXT)
    if isinstance(text, dict):  # Cohere: {"data": {"text" | "snippet": ...}}
        inner, text = _first(text, _TEXT)
        name = f"{name}.{inner}"
    if text is None:
        raise InvalidRequestError(f"{where}.text: a document needs a text.", param=f"{where}.text")
    if not isinstance(text, str):
        _refuse(f"{where}.{name}", "a string", text)
    if not text.strip():
        raise InvalidRequestError(f"{where}.{name}: the text is empty.", param=f"{where}.{name}")
    return text


def _read_string(document: Mapping[str, Any], names: Sequence[str], where: str) -> str | None:
    name, value = _first(document, names)
    if value is not None and not isinstance(value, str):
        _refuse(f"{where}.{name}", "a string", value)
    return value or None


def _read_score(document: Mapping[str, Any], where: str) -> float | None:
    name, value = _first(document, _SCORE)
    if value is None:
        return None
    score = _number(value, f"{where}.{name}", "a number from 0 to 1")
    if not 0 <= score <= 1:
        _refuse(f"{where}.{name}", "a number from 0 to 1", value)
    return score


def _read_age(document: Mapping[str, Any], where: str, now: datetime) -> float | None:
    value = document.get("age_days")
    if value is not None:
        age = _number(value, f"{where}.age_days", "a number of days, 0 or more")
        if age < 0:
            _refuse(f"{where}.age_days", "a number of days, 0 or more", value)
        return age
    name, value = _first(document, _DATES)
    if value is None:
        return None
    stamp = _read_stamp(value, f"{where}.{name}")
    if stamp > now + _CLOCK_SKEW:
        raise InvalidRequestError(f"{where}.{name}: {value!r} lies in the future.", param=f"{where}.{name}")
    return float(max(0, int((now - stamp).total_seconds() // _SECONDS_PER_DAY)))


def _read_stamp(value: Any, where: str) -> datetime:
    expected = "an RFC 3339 date or date-time"
    if not isinstance(value, str):
        _refuse(where, expected, value)
    try:
        if len(value) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(value), time(), UTC)
        stamp = datetime.fromisoformat(value)
    except ValueError:
        _refuse(where, expected, value)
    return stamp if stamp.tzinfo is not None else stamp.replace(tzinfo=UTC)


def _number(value: Any, where: str, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(where, expected, value)
    try:
        number = float(value)
    except OverflowError:
        _refuse(where, expected, value)
    if not math.isfinite(number):
        _refuse(where, expected, value)
    return number


def _first(mapping: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any]:
    for name in names:
        if mapping.get(name) is not None:
            return name, mapping[name]
    return names[0], None


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list):
        _refuse("messages", "a list of messages", messages)
    if not messages:
        raise InvalidRequestError("messages: the list is empty, at least one message is needed.", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            _refuse(f"messages[{index}]", "an object", message)


def _refuse_constants(value: Any) -> None:
    """Refuse NaN and infinities wherever they stand, by name; only a body that orjson could not read has them."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            stack.extend((f"{path}.{name}" if path else name, inner) for name, inner in item.items())
        elif isinstance(item, list):
            stack.extend((f"{path}[{index}]", inner) for index, inner in enumerate(item))
        elif isinstance(item, _Constant):
            _refuse(path, "a finite number", item)


def _refuse(param: str, expected: str, value: Any) -> NoReturn:
    shown = f"{value!r:.60}" if isinstance(value, str | int | float) else _kind(value)
    raise InvalidRequestError(f"{param}: expected {expected}, got {shown}.", param=param)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "nothing"}
    return names.get(type(value), "a number")


def _path(root: str, parts: Sequence[Any]) -> str:
    return root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
