"""Rebuilds upstream events from known fields, because unknown fields might contain unjudged text."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from app.protocols.anthropic_messages.event_types import block_of, delta_of, index_of
from app.protocols.anthropic_messages.fields import STOP_REASON

_Json = dict[str, Any]

_NAME = re.compile(r"[a-z_]{1,40}")
_WORD = re.compile(r"\S{1,128}")

_CALL = ("id", "name", "input", "server_name", "caller")
_RESULT = ("tool_use_id", "content", "is_error", "caller")
_BLOCKS: Mapping[str, tuple[str, ...]] = {
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "container_upload": ("file_id",),
    "compaction": ("content", "encrypted_content"),
}
_DELTAS: Mapping[str, tuple[str, ...]] = {
    "input_json_delta": ("partial_json",),
    "thinking_delta": ("thinking", "estimated_tokens"),
    "signature_delta": ("signature",),
    "compaction_delta": ("content", "encrypted_content"),
}
_CITATION = (
    "type", "cited_text", "document_index", "document_title", "file_id", "start_char_index", "end_char_index",
    "start_page_number", "end_page_number", "start_block_index", "end_block_index", "search_result_index", "source",
    "title", "url", "encrypted_index",
)  # fmt: skip
_MESSAGE = ("id", "type", "role", "usage", "container", "context_management")


def name_of(value: Any) -> str:
    """Return ``value`` if it looks like one of this API's type names, otherwise ``unknown``."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else "unknown"


def word_of(value: Any) -> str | None:
    """Return ``value`` if it is a string without whitespace, such as an id or a model name."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def plain(value: Any, depth: int = 8) -> Any:
    """Return ``value`` without strings that contain whitespace. Token counts, ids and dates remain."""
    if isinstance(value, dict) and depth:
        return {name: plain(inner, depth - 1) for name, inner in value.items() if word_of(name)}
    if isinstance(value, list) and depth:
        return [plain(inner, depth - 1) for inner in value]
    return value if isinstance(value, int | float) else word_of(value)


def says_more(event: Any, clean: Any) -> bool:
    """Return whether ``event`` contains a string that is not in ``clean``."""
    return not set(_strings(event)) <= {"", *_strings(clean)}


def _strings(value: Any) -> Iterator[str]:
    rest = [value]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)


def message_start(event: Mapping[str, Any], model: str | None, stops: Collection[str]) -> _Json:
    """Rebuild the start of a message, without its content. If the model name is invalid, it is replaced by ``model``.
    ``stops`` contains the stop sequences of the request."""
    message = event.get("message")
    if not isinstance(message, dict):
        message = {}
    clean = {name: plain(message[name]) for name in _MESSAGE if name in message}
    if "model" in message:
        clean["model"] = word_of(message["model"]) or model
    return {"type": "message_start", "message": {**clean, "content": [], **_end(message, stops)}}


def message_delta(event: Mapping[str, Any], stops: Collection[str]) -> _Json:
    """Rebuild the end of a message: the stop reason and the token counts."""
    more = {name: plain(event[name]) for name in ("usage", "context_management") if name in event}
    return {"type": "message_delta", "delta": _end(delta_of(event), stops), **more}


def _end(said: Mapping[str, Any], stops: Collection[str]) -> _Json:
    end: _Json = {}
    if "stop_reason" in said:
        end["stop_reason"] = STOP_REASON(said["stop_reason"]) if said["stop_reason"] is not None else None
    if "stop_sequence" in said:
        stop = said["stop_sequence"]
        end["stop_sequence"] = stop if isinstance(stop, str) and stop in stops else None
    details = said.get("stop_details")
    if isinstance(details, dict):
        end["stop_details"] = {name: word_of(details[name]) for name in ("type", "category") if name in details}
        if isinstance(explanation := details.get("explanation", 0), str | None):
            end["stop_details"]["explanation"] = explanation
    elif "stop_details" in said:
        end["stop_details"] = None
    if "container" in said:
        end["container"] = plain(said["container"])
    return end


def other_block(event: Mapping[str, Any]) -> _Json | None:
    """Rebuild the start of a non-text block, such as a tool call. Return None if its type is unknown."""
    block = block_of(event)
    kind = name_of(block.get("type"))
    fields = _CALL if kind.endswith("tool_use") else _RESULT if kind.endswith("tool_result") else _BLOCKS.get(kind)
    if fields is None:
        return None
    start = {"type": kind, **{name: block[name] for name in fields if name in block}}
    return {"type": "content_block_start", "index": index_of(event), "content_block": start}


def text_start(block: Mapping[str, Any]) -> _Json:
    """Rebuild the start of a text block, without its text and citations."""
    start: _Json = {"type": "text", "text": ""}
    if "citations" in block:
        start["citations"] = None if block["citations"] is None else []
    return start


def citations_of(block: Mapping[str, Any]) -> list[_Json]:
    """Return the citations in the start of a text block."""
    citations = block.get("citations")
    return [citation for citation in citations if isinstance(citation, dict)] if isinstance(citations, list) else []


def cited_delta(index: int, citation: Mapping[str, Any]) -> _Json:
    """Build the event for a citation."""
    said = {name: citation[name] for name in _CITATION if isinstance(citation.get(name, ()), str | int | None)}
    return {"type": "content_block_delta", "index": index, "delta": {"type": "citations_delta", "citation": said}}


def other_delta(event: Mapping[str, Any]) -> _Json | None:
    """Rebuild a delta of a block other than text. Return None if its type is unknown."""
    delta = delta_of(event)
    kind = name_of(delta.get("type"))
    if kind not in _DELTAS:
        return None
    said = {name: delta[name] for name in _DELTAS[kind] if name in delta}
    return {"type": "content_block_delta", "index": index_of(event), "delta": {"type": kind, **said}}


def error(event: Mapping[str, Any]) -> _Json:
    """Rebuild an upstream error from its type and message."""
    said = event.get("error")
    kind, message = (said.get("type"), said.get("message")) if isinstance(said, dict) else (None, said)
    kind = kind if isinstance(kind, str) and _NAME.fullmatch(kind) else "api_error"
    if not isinstance(message, str):
        message = "The upstream reported an error."
    return {"type": "error", "error": {"type": kind, "message": message}}
