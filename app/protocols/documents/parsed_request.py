"""A parsed request of any API, with the fields that all APIs share, the caller's options, and the user's question."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import InvalidRequestError
from app.protocols.documents.document_extraction import Documents, plain_text
from app.protocols.documents.json_body import join_path, read_flag, refuse
from judges.claims.claim_context import last_question
from judges.types import Chunk


class Reported(BaseModel):
    """Values reported by the caller's own pipeline."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    grounding_scores: list[Annotated[float, Field(ge=0, le=1)]] = []
    citations: list[str] = []
    unsupported_claims: list[str] = []
    output_confidence: Annotated[float, Field(ge=0, le=1)] | None = None


class Options(BaseModel):
    """The caller's options for a request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    agent: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    run_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    query: str | None = None
    inject: Literal["none", "system", "user"] = "none"
    include: list[Literal["claims", "decisions", "documents"]] | None = None
    reported: Reported = Reported()

    def shows(self, part: str) -> bool:
        """Return whether the client wants this part of the result. By default, it receives all parts."""
        return self.include is None or part in self.include

    @property
    def silent(self) -> bool:
        """Whether the client wants a reply without added fields."""
        return self.include == []


_UNSAID = Options()
_FROM_HEADERS = (("agent", "x-groundlane-agent"), ("run_id", "x-groundlane-run-id"))


def read_options(value: Any, headers: Mapping[str, str], path: str = "grounding") -> Options:
    """Parse the ``grounding`` field. An agent or a run that the field doesn't name is read from the headers.

    ``headers`` must have lower-case names. ``path`` is the path of the field. Raises InvalidRequestError.
    """
    if value is None and not any(headers.get(header) for _, header in _FROM_HEADERS):
        return _UNSAID
    value = {} if value is None else value
    if not isinstance(value, dict):
        refuse(path, "an object", value)
    for name, header in _FROM_HEADERS:
        if value.get(name) is None and headers.get(header):
            value = {**value, name: headers[header]}
    if isinstance(value.get("reported"), dict):
        value = {**value, "reported": {k: v for k, v in value["reported"].items() if v is not None}}
    try:
        return Options.model_validate({k: v for k, v in value.items() if v is not None or k == "include"})
    except ValidationError as error:
        first = error.errors()[0]
        where = join_path(path, first["loc"])
        message = "unknown field" if first["type"] == "extra_forbidden" else first["msg"]
        raise InvalidRequestError(f"{where}: {message}.", param=where) from None


MAX_CONVERSATION_CHARS: Final = 20_000
"""The maximum number of characters kept from the user's messages. A reply may use names that occur in this text."""
_LONGEST: Final = 200
"""If a message without a question mark has at most this many characters, the whole message is treated as the question.
"""
_ASIDE: Final = 3
"""If at most this many words follow a question, such as "Thanks!", they are ignored."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?？])\s+")
_PROMPTED: Final = 600
"""A message of at least this many characters is assumed to be a prompt that contains more than a question. The question
is then in its last or first paragraph.
"""


def title_in(body: Mapping[str, Any], query: str | None = None) -> str:
    """Return the text that people recognize a request by: its question or, if there is none, the user's last
    message."""
    texts = user_texts(body, query)[-1:]
    return (question_of(texts[0]) or texts[0]) if texts else ""


def user_texts(body: Mapping[str, Any], query: str | None = None) -> list[str]:
    """Return the texts of the user's messages in a request to any of the APIs, in order, followed by ``query``.
    Messages without text are skipped, because they contain only tool results."""
    last = [query] if query else []
    turns = next((body[name] for name in ("messages", "input", "prompt") if body.get(name) is not None), None)
    if isinstance(turns, list) and len(turns) == 1 and isinstance(turns[0], str):
        turns = turns[0]
    if isinstance(turns, str):
        return [turns, *last]
    found = [
        plain_text(turn.get("content"), types=("text", "input_text"))
        for turn in (turns if isinstance(turns, list) else ())
        if isinstance(turn, dict) and turn.get("role") == "user"
    ]
    return [text for text in found if text.strip()] + last


def question_of(text: str) -> str:
    """Return the question in a user's message. If there is none and the message is short, return the whole message."""
    text = text.strip()
    if len(text) > _PROMPTED:
        paragraphs = text.split("\n\n")
        return last_question(paragraphs[-1][-_PROMPTED:]) or last_question(paragraphs[0][-_PROMPTED:])
    asked = last_question(text)
    behind = text.rpartition(asked)[2] if asked else text
    return text if len(text) <= _LONGEST and len(behind.split()) > _ASIDE else asked


def questions_of(text: str) -> str:
    """Return all questions in a user message. For a long message, return the same as ``question_of``."""
    if len(text) > _PROMPTED:
        return question_of(text)
    found = [part for part in _SENTENCE_END.split(text.strip()) if part.endswith(("?", "？"))]
    return " ".join(found) if len(found) > 1 else question_of(text)


_MOST_CHOICES = 128
"""The maximum number of choices per request, which is also OpenAI's limit."""

_LONGEST_MODEL = 512
"""The maximum length of a model name, in characters. The event log has an index on the model name, and indexes can't
contain very long values."""

_JSON_FORMS = ("json_object", "json_schema")
OUR_FIELDS = ("documents", "grounding")
Path = tuple[str | int, ...]
"""A path in a body, consisting of field names and list positions."""


class ParsedRequest(Struct, frozen=True, kw_only=True):
    """A parsed request. ``body`` is sent upstream and doesn't contain the gateway's fields. ``raw`` contains the bytes
    of the body, or None if it was changed. ``paths`` contains the path in the request of each document in ``chunks``.
    ``from_tools`` parses tool results, which are evidence only if a setting or policy says so. ``query`` is the query
    for which the documents were retrieved."""

    body: dict[str, Any]
    raw: bytes | None
    chunks: tuple[Chunk, ...]
    options: Options
    model: str | None
    stream: bool
    include_usage: bool
    choices: int | None = None
    """The number of choices in the reply (``n``), or None for an API whose reply is a single choice with any number of
    parts."""
    paths: tuple[str, ...] = ()
    unscaled: tuple[str, Any] | None = None
    """The path in the request of the first relevance score outside 0 to 1, and the score."""
    from_tools: Callable[[], Documents] | None = None
    standing: int = 0
    """The number of documents in the prompt that cannot be removed from it. They are at the end of ``chunks``."""
    blocks: Mapping[int, Path] = field(default_factory=dict)
    """For documents that are removable content blocks, maps their positions in ``chunks`` to their paths in
    ``body``."""
    late: bool = False
    """Whether the reply may contain documents, such as the results of a search by the upstream."""
    notes: Sequence[str] = ()
    """Notes for the client about how its documents were parsed."""
    query: str | None = None
    documents: Any = None
    """The original ``documents`` field, for an upstream that reads it."""
    is_json: bool = False
    """Whether the reply must be JSON."""

    def path_of(self, index: int) -> str:
        """Return the path in the request of the document at ``index`` in ``chunks``."""
        return self.paths[index] if index < len(self.paths) else f"documents[{index}]"

    @property
    def injectable(self) -> bool:
        """Whether the gateway controls which documents are in the prompt, so that a dropped document doesn't reach
        it."""
        if self.standing:
            return False
        return self.options.inject != "none" or 0 < len(self.chunks) == len(self.blocks)

    def drop(self, positions: Collection[int]) -> "ParsedRequest":
        """Return the request without the documents at ``positions``, if they are content blocks."""
        body = self.body
        for path in sorted((self.blocks[position] for position in positions if position in self.blocks), reverse=True):
            body = _removed(body, path)
        return self if body is self.body else replace(self, body=body, raw=None)

    def with_tools(self) -> "ParsedRequest":
        """Return the request with tool results added to its documents. Raises InvalidRequestError."""
        found = self.from_tools() if self.from_tools is not None else None
        if found is None or not found.chunks:
            return self
        return self.with_chunks(found.chunks, found.paths)

    def with_chunks(self, chunks: Sequence[Chunk], paths: Sequence[str]) -> "ParsedRequest":
        """Return the request with ``chunks`` added to its documents. They cannot be removed from the prompt."""
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
    """Return whether the client wants a stream, and whether the stream should report the usage
    (``stream_options.include_usage``)."""
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        refuse("stream_options", "an object", options)
    return read_flag(body.get("stream"), "stream"), bool(options and options.get("include_usage"))


def read_choices(body: Mapping[str, Any]) -> int:
    """Return the number of choices that the field ``n`` asks for. Any further choices in the reply are not judged.

    Raises InvalidRequestError.
    """
    choices = body.get("n")
    if choices is None:
        return 1
    if isinstance(choices, bool) or not isinstance(choices, int) or not 1 <= choices <= _MOST_CHOICES:
        refuse("n", f"a whole number from 1 to {_MOST_CHOICES}", choices)
    return choices


def wants_json(form: Any) -> bool:
    """Return whether a response format is JSON."""
    return isinstance(form, dict) and form.get("type") in _JSON_FORMS


def without(body: dict[str, Any], names: Sequence[str] = OUR_FIELDS) -> dict[str, Any]:
    """Return a copy of ``body`` without the fields ``names``, or ``body`` itself if it has none of them."""
    if body.keys().isdisjoint(names):
        return body
    return {name: value for name, value in body.items() if name not in names}


def _removed(value: Any, path: Path) -> Any:
    """Return a copy of ``value`` without the value at ``path``. The copy shares everything outside the path."""
    first, rest = path[0], path[1:]
    copy = value.copy()
    if rest:
        copy[first] = _removed(value[first], rest)
    else:
        del copy[first]
    return copy
