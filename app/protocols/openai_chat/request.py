"""Chat Completions requests.

The fields ``documents`` and ``grounding`` are removed before the request is sent upstream. The prompt may contain more
evidence:

- ``chat_template_kwargs.documents``, and ``search_result`` and ``document`` blocks. They are sent upstream unchanged
  or, if the gateway writes the documents into the prompt (``inject``), removed.
- ``grounding_source`` and ``query`` parts, which no model supports. They are sent upstream as text, except for sources
  that the gateway writes into the prompt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.errors import InvalidRequestError
from app.protocols.documents.document_extraction import (
    GROUNDING_SOURCE,
    TOOL_RESULT,
    Documents,
    Limits,
    parts_of,
    take_blocks,
)
from app.protocols.documents.json_body import inside, parse_json, refuse
from app.protocols.documents.parsed_request import (
    OUR_FIELDS,
    ParsedRequest,
    read_choices,
    read_model,
    read_options,
    read_stream,
    wants_json,
    without,
)
from app.protocols.documents.tool_results import tool_documents

_QUERY = "query"
_PROMPT_ROLES = ("system", "developer", "user")


def read_chat(raw: bytes, headers: Mapping[str, str], limits: Limits) -> ParsedRequest:
    """Read a Chat Completions request, which may contain the gateway's fields. Raises InvalidRequestError."""
    body = parse_json(raw)
    documents = Documents(limits, any_scale=True)
    documents.take_all(body.get("documents"))
    for name in ("extra_body", "chat_template_kwargs"):
        documents.take_all(inside(body, name, "documents"), f"{name}.documents")
    if (nested := inside(body, "extra_body", "grounding")) is not None and body.get("grounding") is None:
        options = read_options(nested, headers, path="extra_body.grounding")
    else:
        options = read_options(body.get("grounding"), headers)
    messages = _messages(body.get("messages"))
    typed = [
        (message["content"], f"messages[{index}].content")
        for index, message in enumerate(messages)
        if isinstance(message.get("content"), list)
    ]
    for content, path in typed:
        take_blocks(documents, content, path)
    query = _query(typed)
    model = read_model(body)
    stream, include_usage = read_stream(body)
    forwarded = _without_fields(body, written=options.inject != "none")
    if typed:
        texts = {path: chunk.text for path, chunk in zip(documents.paths, documents.chunks, strict=True)}
        forwarded = _with_plain_messages(forwarded, messages, _Prompt(texts, written=options.inject != "none"))
    return ParsedRequest(
        body=forwarded,
        raw=raw if forwarded is body else None,
        chunks=tuple(documents.chunks),
        paths=tuple(documents.paths),
        unscaled=documents.unscaled,
        notes=documents.notes,
        from_tools=partial(tool_documents, messages, limits),
        documents=body.get("documents"),
        query=options.query or query,
        options=options,
        model=model,
        stream=stream,
        choices=read_choices(body),
        include_usage=include_usage,
        is_json=wants_json(body.get("response_format")),
    )


def _messages(messages: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(messages, list):
        refuse("messages", "a list of messages", messages)
    if not messages:
        raise InvalidRequestError("messages: the list is empty; at least one message is required.", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            refuse(f"messages[{index}]", "an object", message)
    return messages


def _query(typed: Sequence[tuple[Any, str]]) -> str | None:
    """Return the text of the ``query`` parts in ``typed``, which are contents with their paths."""
    texts = []
    for content, at in typed:
        for part, path in parts_of(content, at):
            if part.get("type") == _QUERY:
                if not isinstance(part.get("text"), str):
                    refuse(f"{path}.text", "a string", part.get("text"))
                texts.append(part["text"])
    return "\n".join(texts) or None


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Rewrites messages to the standard format. A message that needs no change is returned unchanged. ``texts``
    contains the texts of the documents by path. ``written`` means that the gateway writes the documents into the
    prompt."""

    texts: Mapping[str, str]
    written: bool

    def messages(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        changed = [self._message(message, f"messages[{index}]") for index, message in enumerate(messages)]
        if all(new is old for new, old in zip(changed, messages, strict=True)):
            return messages
        return [message for message in changed if message is not None]

    def _message(self, message: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
        """Return the rewritten message, or None if a message of the prompt contained only evidence."""
        content = message.get("content")
        kept = self._content(content, f"{path}.content")
        if kept is content:
            return message
        if not kept and message.get("role") in _PROMPT_ROLES:
            return None
        return {**message, "content": kept or ""}

    def _content(self, content: Any, path: str) -> Any:
        if not isinstance(content, list):
            return content
        parts = [self._part(part, f"{path}[{index}]") for index, part in enumerate(content)]
        if all(new is old for new, old in zip(parts, content, strict=True)):
            return content
        return [part for part in parts if part is not None]

    def _part(self, part: Any, path: str) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == _QUERY:
            return {"type": "text", "text": part["text"]}
        if kind == TOOL_RESULT:
            content = self._content(part.get("content"), f"{path}.content")
            return part if content is part.get("content") else {**part, "content": content}
        if path not in self.texts or not (self.written or kind == GROUNDING_SOURCE):
            return part
        return None if self.written else {"type": "text", "text": self.texts[path]}


def _without_fields(body: dict[str, Any], *, written: bool) -> dict[str, Any]:
    """Return ``body`` without the gateway's fields, or ``body`` itself if it has none of them. ``written`` means that
    the gateway writes the documents into the prompt."""
    forwarded = _without_inside(without(body), "extra_body", OUR_FIELDS)
    return _without_inside(forwarded, "chat_template_kwargs", ("documents",)) if written else forwarded


def _with_plain_messages(
    body: dict[str, Any], messages: Sequence[Mapping[str, Any]], prompt: _Prompt
) -> dict[str, Any]:
    plain = prompt.messages(messages)
    return body if plain is messages else {**body, "messages": plain}


def _without_inside(body: dict[str, Any], outer: str, names: Sequence[str]) -> dict[str, Any]:
    """Return ``body`` with the fields ``names`` removed from the object in the field ``outer``. If the object is then
    empty, it is removed too."""
    value = body.get(outer)
    if not isinstance(value, dict):
        return body
    kept = without(value, names)
    if kept is value:
        return body
    return {**body, outer: kept} if kept else without(body, (outer,))
