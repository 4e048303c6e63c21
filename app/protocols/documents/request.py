"""A parsed request of any API, and readers of the fields that all of them have."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from app.protocols.documents.collection import Documents
from app.protocols.documents.fields import read_flag, refuse
from app.protocols.documents.options import Options
from judges.types import Chunk

_MOST_CHOICES = 128
"""OpenAI's own limit."""

_LONGEST_MODEL = 512
"""Characters: the event log has an index on it, and no index takes a name of thousands."""

_JSON_FORMS = ("json_object", "json_schema")
OUR_FIELDS = ("documents", "grounding")
Path = tuple[str | int, ...]
"""A place in a body: names of fields and positions in lists."""


class ParsedRequest(Struct, frozen=True, kw_only=True):
    """A parsed request. ``body`` goes upstream, without our fields; ``raw`` is its bytes if they need no change.

    ``paths`` says where in the request each of ``chunks`` is. ``from_tools`` reads tool results, which are evidence
    only if a setting or a policy says so. ``query`` is the query that the documents were retrieved for.
    """

    body: dict[str, Any]
    raw: bytes | None
    chunks: tuple[Chunk, ...]
    options: Options
    model: str | None
    stream: bool
    include_usage: bool
    choices: int | None = None
    """How many choices the reply will have (``n``); None if it is one, of any number of parts."""
    paths: tuple[str, ...] = ()
    from_tools: Callable[[], Documents] | None = None
    standing: int = 0
    """How many of the last ``chunks`` are in the prompt and cannot be removed from it."""
    blocks: Mapping[int, Path] = field(default_factory=dict)
    """Where in ``body`` those of ``chunks`` are, by position, that are content blocks and can be removed."""
    late: bool = False
    """The reply may contain documents: results of a search by the upstream."""
    notes: Sequence[str] = ()
    """Notes for the client about how its documents were read."""
    query: str | None = None
    documents: Any = None
    """The field of that name as it was given, for an upstream that reads it."""
    is_json: bool = False
    """The reply is to be JSON."""

    def path_of(self, index: int) -> str:
        """Where in the request the document at ``index`` of ``chunks`` is."""
        return self.paths[index] if index < len(self.paths) else f"documents[{index}]"

    @property
    def injectable(self) -> bool:
        """The gateway controls what the model sees of every document, so a dropped document stays out of the prompt."""
        if self.standing:
            return False
        return self.options.inject != "none" or 0 < len(self.chunks) == len(self.blocks)

    def drop(self, positions: Collection[int]) -> "ParsedRequest":
        """The request without the content blocks that are the documents at ``positions``."""
        body = self.body
        for path in sorted((self.blocks[position] for position in positions if position in self.blocks), reverse=True):
            body = _removed(body, path)
        return self if body is self.body else replace(self, body=body, raw=None)

    def with_tools(self) -> "ParsedRequest":
        """The request with tool results among its documents. Raises InvalidRequestError."""
        found = self.from_tools() if self.from_tools is not None else None
        if found is None or not found.chunks:
            return self
        return self.with_chunks(found.chunks, found.paths)

    def with_chunks(self, chunks: Sequence[Chunk], paths: Sequence[str]) -> "ParsedRequest":
        """The request with ``chunks`` among its documents; they cannot be removed from the prompt."""
        standing = self.standing + len(chunks)
        known = tuple(self.path_of(index) for index in range(len(self.chunks)))
        return replace(self, chunks=(*self.chunks, *chunks), paths=(*known, *paths), standing=standing)


def read_model(body: Mapping[str, Any]) -> str | None:
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        refuse("model", "a string", model)
    if model is not None and len(model) > _LONGEST_MODEL:
        refuse("model", f"at most {_LONGEST_MODEL} characters", model)
    return model


def read_stream(body: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether to stream, and whether to include the usage (``stream_options.include_usage``)."""
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        refuse("stream_options", "an object", options)
    return read_flag(body.get("stream"), "stream"), bool(options and options.get("include_usage"))


def read_choices(body: Mapping[str, Any]) -> int:
    """How many choices ``n`` asks for, exactly: any further choice would go unjudged.

    Raises InvalidRequestError.
    """
    choices = body.get("n")
    if choices is None:
        return 1
    if isinstance(choices, bool) or not isinstance(choices, int) or not 1 <= choices <= _MOST_CHOICES:
        refuse("n", f"a whole number from 1 to {_MOST_CHOICES}", choices)
    return choices


def wants_json(form: Any) -> bool:
    """Whether a response format is JSON."""
    return isinstance(form, dict) and form.get("type") in _JSON_FORMS


def without(body: dict[str, Any], names: Sequence[str] = OUR_FIELDS) -> dict[str, Any]:
    """``body`` itself if it has none of ``names``, otherwise a copy without them."""
    if not any(name in body for name in names):
        return body
    return {name: value for name, value in body.items() if name not in names}


def _removed(value: Any, path: Path) -> Any:
    """A copy of ``value`` without the value at ``path``; everything beside the path is shared."""
    first, rest = path[0], path[1:]
    copy = value.copy()
    if rest:
        copy[first] = _removed(value[first], rest)
    else:
        del copy[first]
    return copy
