"""Parses requests to the runs API: start, documents, grounding reports, completion.

Invalid input raises InvalidRequestError, which names the field.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import InvalidRequestError
from app.protocols.documents.document import read_document
from app.protocols.documents.json_body import SHARE, join_path, parse_json, refuse
from app.protocols.documents.parsed_request import Reported
from judges.types import Chunk

LARGEST_BODY = 1024 * 1024
_LONGEST_NAME = 2_000

Name = Annotated[str, Field(min_length=1, max_length=200)]
T = TypeVar("T", bound=BaseModel)


class RunStart(BaseModel):
    """The start of a run."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    agent: Name | None = None
    model: Name | None = None


class RunCompletion(BaseModel):
    """The completion of a run, with its result."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    result: Any = None


def read_run_start(raw: bytes, headers: Mapping[str, str]) -> RunStart:
    """Parse the start of a run. ``headers``, whose names must be in lower case, may name the agent."""
    body = _object(raw)
    if body.get("agent") is None and headers.get("x-groundlane-agent"):
        body = {**body, "agent": headers["x-groundlane-agent"]}
    return _validated(RunStart, body)


def read_run_document(raw: bytes) -> Chunk:
    """Parse a document. All field names that are accepted in requests are accepted here. The text and the id are
    optional. A missing id becomes ""."""
    read = read_document(_object(raw), "", default_id="", now=datetime.now(UTC), needs_text=False)
    if read.unscaled is not None:
        refuse(read.unscaled[0], SHARE, read.unscaled[1])
    found = read.chunk
    for name in ("id", "source", "collection", "title", "url"):
        value = getattr(found, name)
        if value is not None and len(value) > _LONGEST_NAME:
            raise InvalidRequestError(f"{name}: at most {_LONGEST_NAME} characters are allowed.", param=name)
    return found


def read_grounding_report(raw: bytes) -> dict[str, Any]:
    """Parse a report. The result contains every field. A null field counts as omitted."""
    body = {name: value for name, value in _object(raw).items() if value is not None}
    return _validated(Reported, body).model_dump()


def read_run_completion(raw: bytes) -> RunCompletion:
    """Parse the completion of a run. The result must be portable JSON, with integers of at most 64 bits."""
    closing = _validated(RunCompletion, _object(raw))
    try:
        orjson.dumps(closing.result)
    except TypeError as error:
        raise InvalidRequestError(f"result: the value cannot be stored ({error}).", param="result") from None
    return closing


def _object(raw: bytes) -> dict[str, Any]:
    """Parse the body as a JSON object. An empty body counts as an empty object."""
    return parse_json(raw) if raw.strip() else {}


def _validated(model: type[T], body: Mapping[str, Any]) -> T:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = join_path("", first["loc"])
        message = "unknown field" if first["type"] == "extra_forbidden" else first["msg"]
        raise InvalidRequestError(f"{where}: {message}.", param=where) from None
