"""Request bodies of any API: their JSON, and what is known of a request once it is read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from app.errors import InvalidRequestError
from app.intake.documents import Documents
from app.intake.fields import join_path, kind, read_flag, refuse
from app.intake.options import Options
from judges.types import Chunk

OUR_FIELDS = ("documents", "grounding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A request, read. ``body`` goes upstream, without our fields; ``raw`` is its bytes where they need no change.

    ``paths`` says where in the request each of ``chunks`` stands. ``from_tools`` is what the results of tools say; it
    counts as evidence only where a setting or a policy wants it to.
    """

    body: dict[str, Any]
    raw: bytes | None
    chunks: tuple[Chunk, ...]
    options: Options
    model: str | None
    stream: bool
    include_usage: bool
    choices: int = 1
    """How many choices the reply will have (``n``)."""
    paths: tuple[str, ...] = ()
    from_tools: Documents | None = None
    documents: Any = None
    """The field of that name as it was given, for an upstream that reads it."""

    def path_of(self, index: int) -> str:
        """Where in the request the document at ``index`` of ``chunks`` stands."""
        return self.paths[index] if index < len(self.paths) else f"documents[{index}]"

    def with_tools(self) -> "Intake":
        """The request with the results of tools among its documents."""
        if self.from_tools is None or not self.from_tools.chunks:
            return self
        paths = tuple(self.path_of(index) for index in range(len(self.chunks)))
        return replace(
            self,
            chunks=self.chunks + self.from_tools.chunks,
            paths=paths + self.from_tools.paths,
            from_tools=None,
        )


def parse_json(raw: bytes) -> dict[str, Any]:
    """Decode a request body. Raises InvalidRequestError where it is no JSON object.

    NaN and infinities are read, so that ``refuse_constants`` can name the field that they stand in.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        body = _parse_leniently(raw, error)
    if not isinstance(body, dict):
        raise InvalidRequestError(f"The request body must be a JSON object, not {kind(body)}.")
    return body


def _parse_leniently(raw: bytes, error: orjson.JSONDecodeError) -> Any:
    """Integers beyond 64 bits are valid JSON that orjson refuses; NaN and Infinity are not, and are named."""
    try:
        return json.loads(raw, parse_constant=_Constant)
    except (ValueError, RecursionError):
        raise InvalidRequestError(f"The request body is not valid JSON: {error}.") from None


class _Constant(float):
    """NaN or an infinity in a request body."""

    def __new__(cls, name: str) -> "_Constant":
        return super().__new__(cls, name.replace("Infinity", "inf"))


def refuse_constants(value: Any) -> None:
    """Raise InvalidRequestError for NaN and infinities, wherever they stand, by name."""
    stack: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            stack.extend(((*path, name), inner) for name, inner in item.items())
        elif isinstance(item, list):
            stack.extend(((*path, index), inner) for index, inner in enumerate(item))
        elif isinstance(item, _Constant):
            refuse(join_path("", path), "a finite number", item)


def read_model(body: Mapping[str, Any]) -> str | None:
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        refuse("model", "a string", model)
    return model


def read_stream(body: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a stream is wanted, and whether its usage is (``stream_options.include_usage``)."""
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        refuse("stream_options", "an object", options)
    return read_flag(body.get("stream"), "stream"), bool(options and options.get("include_usage"))


def read_choices(body: Mapping[str, Any]) -> int:
    """How many choices ``n`` asks for; what is wrong with it is for the upstream to say."""
    choices = body.get("n")
    return choices if isinstance(choices, int) and choices > 0 else 1


def without(body: dict[str, Any], names: Sequence[str] = OUR_FIELDS) -> dict[str, Any]:
    """``body`` itself where it has none of ``names``, else a copy without them."""
    if not any(name in body for name in names):
        return body
    return {name: value for name, value in body.items() if name not in names}
