"""The fields of the Messages API that may leave under a grounding policy."""

from collections.abc import Mapping
from typing import Any

from app.protocols.anthropic_messages.allowlist import plain
from app.protocols.anthropic_messages.event_types import event_bytes
from app.protocols.common.known_fields import (
    UNFIT,
    UNKNOWN,
    ByType,
    Entry,
    KnownFields,
    always,
    anything,
    base64,
    boolean,
    count,
    identifier,
    normalised,
    required,
    text,
)

_STOP_REASON = normalised(
    (
        "end_turn", "max_tokens", "model_context_window_exceeded", "pause_turn", "refusal", "stop_sequence", "tool_use",
    ),
    {},
    otherwise="end_turn",
)  # fmt: skip
_CALL: Mapping[str, Entry] = {
    "id": identifier,
    "name": identifier,
    "input": anything,
    "server_name": identifier,
    "caller": anything,
}
_RESULT: Mapping[str, Entry] = {
    "tool_use_id": identifier,
    "content": anything,
    "is_error": boolean,
    "caller": anything,
}
"""What a tool is called with and what comes of it is free: whether calls leave at all is decided elsewhere."""
_BLOCKS: Mapping[str, Mapping[str, Entry]] = {
    "text": {"text": text, "citations": always([])},
    "thinking": {"thinking": text, "signature": base64},
    "redacted_thinking": {"data": base64},
    "container_upload": {"file_id": identifier},
    "compaction": {"content": text, "encrypted_content": base64},
    **dict.fromkeys(("tool_use", "server_tool_use", "mcp_tool_use"), _CALL),
    **dict.fromkeys(
        (
            "bash_code_execution_tool_result", "code_execution_tool_result", "mcp_tool_result",
            "text_editor_code_execution_tool_result", "tool_search_tool_result", "web_fetch_tool_result",
            "web_search_tool_result",
        ),
        _RESULT,
    ),
}  # fmt: skip
_PLACES = (
    "document_index", "start_char_index", "end_char_index", "start_page_number", "end_page_number",
    "start_block_index", "end_block_index", "search_result_index",
)  # fmt: skip
_CITATION: Entry = {
    "type": identifier,
    **dict.fromkeys(_PLACES, count),
    **dict.fromkeys(("cited_text", "document_title", "title", "source", "url"), text),
    "file_id": identifier,
    "encrypted_index": base64,
}
_DELTAS: Mapping[str, Mapping[str, Entry]] = {
    "text_delta": {"text": required(text, "")},
    "input_json_delta": {"partial_json": text},
    "thinking_delta": {"thinking": text, "estimated_tokens": count},
    "signature_delta": {"signature": base64},
    "compaction_delta": {"content": text, "encrypted_content": base64},
    "citations_delta": {"citation": _CITATION},
}
_END: Mapping[str, Entry] = {
    "stop_reason": _STOP_REASON,
    "stop_sequence": text,
    "stop_details": {"type": identifier, "category": identifier, "explanation": text},
    "container": plain,
}
_MESSAGE: Mapping[str, Entry] = {
    "id": required(identifier, UNKNOWN),
    "type": always("message"),
    "role": always("assistant"),
    "model": required(identifier, UNKNOWN),
    "content": always([]),
    "usage": plain,
    "context_management": plain,
    **_END,
}
_EVENTS: Mapping[str, Mapping[str, Entry]] = {
    "ping": {},
    "message_start": {"message": _MESSAGE},
    "content_block_start": {"index": count, "content_block": ByType(_BLOCKS)},
    "content_block_delta": {"index": count, "delta": ByType(_DELTAS)},
    "content_block_stop": {"index": count},
    "message_delta": {"delta": _END, "usage": plain, "context_management": plain},
    "message_stop": {},
    "error": {"error": {"type": identifier, "message": text}},
}
_NEEDED = {"content_block_start": "content_block", "content_block_delta": "delta"}


def rebuilt_bytes(event: Mapping[str, Any], fields: KnownFields) -> bytes:
    """The event from its known fields; empty if it has none, or lacks what it is about."""
    known = fields.rebuild(event, ByType(_EVENTS))
    if known is UNFIT or not isinstance(known.get(_NEEDED.get(known["type"], "type")), dict | str):
        return b""
    return event_bytes(known)
