"""Reads tool results as documents, in case a setting or policy counts them as evidence.

A tool result can have any format. If it isn't a list of documents, it is read as text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from app.errors import InvalidRequestError
from app.protocols.documents.document_extraction import Documents, Limits, plain_text
from judges.types import Chunk

_ROLES = ("tool", "function")
_LISTS = ("documents", "results")


def tool_documents(messages: Sequence[Mapping[str, Any]], limits: Limits) -> Documents:
    """Return the tool results among chat ``messages``. Raises InvalidRequestError if they exceed ``limits``."""
    documents = Documents(limits, prefix="tool")
    named: dict[Any, Any] = {}
    for index, message in enumerate(messages):
        named.update(_calls(message))
        if message.get("role") in _ROLES:
            call = message.get("tool_call_id")
            name = message.get("name") or (named.get(call) if isinstance(call, str) else None)
            take_result(documents, plain_text(message.get("content")), f"messages[{index}].content", tool=name)
    return documents


def take_result(documents: Documents, text: str, path: str, *, tool: Any = None) -> None:
    """Add a tool result. It is either a JSON list of documents, or text that becomes one document with the source
    ``tool``.

    Raises InvalidRequestError if it exceeds the limits.
    """
    if not text.strip():
        return
    source = tool if isinstance(tool, str) and tool else None
    for chunk in _listed(text, documents.next_id) or (Chunk(id=documents.next_id, text=text),):
        documents.add(chunk if chunk.source else replace(chunk, source=source), path)


def _listed(text: str, prefix: str) -> Sequence[Chunk]:
    """Return the documents in ``text``, if it is a JSON list, or a JSON object with a list in one of the usual fields.
    Otherwise, return no documents."""
    if text.lstrip()[0] not in "[{":
        return ()
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ()
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return ()
    documents = Documents(Limits(), prefix=prefix)
    try:
        documents.take_all(value)
    except InvalidRequestError:
        return ()
    return documents.chunks


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the id and function name of each call in an assistant's message."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(call.get("id"), str):
            yield call["id"], function.get("name")
