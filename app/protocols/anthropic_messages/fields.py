"""The fields of the Messages API that may be sent under a grounding policy."""

from collections.abc import Mapping
from typing import Any

from app.protocols.common.known_fields import (
    UNFIT,
    UNKNOWN,
    ByType,
    Entry,
    KnownFields,
    Unread,
    always,
    anything,
    base64,
    boolean,
    count,
    identifier,
    normalised,
    one_of,
    required,
    text,
)

STOP_REASON = normalised(
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
"""The fields of a tool result. The arguments and results of tools are unrestricted, because other code decides whether
tool calls are sent at all."""
_BLOCKS: Mapping[str, Mapping[str, Entry]] = {
    "text": {"text": text, "citations": always([])},
    "thinking": {"thinking": text, "signature": base64},
    "redacted_thinking": {"data": base64},
    "container_upload": {"file_id": identifier},
    "compaction": {"content": Unread(text), "encrypted_content": base64},
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
    "compaction_delta": {"content": Unread(text), "encrypted_content": base64},
    "citations_delta": {"citation": _CITATION},
}
_END: Mapping[str, Entry] = {
    "stop_reason": STOP_REASON,
    "stop_sequence": text,
    "stop_details": {"type": one_of("refusal"), "category": identifier, "explanation": Unread(text)},
    "container": {"id": identifier, "expires_at": identifier},
}
_TOKENS: Mapping[str, Entry] = {
    **dict.fromkeys(("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), count),
    "cache_creation": dict.fromkeys(("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"), count),
    "server_tool_use": dict.fromkeys(
        ("web_search_requests", "web_fetch_requests", "code_execution_requests", "tool_search_requests"), count
    ),
}
USAGE: Entry = {
    **_TOKENS,
    "iterations": [{**_TOKENS, "type": one_of("message", "compaction", "advisor_message")}],
    "service_tier": one_of("standard", "priority", "batch"),
}
_CONTEXT: Entry = {
    "applied_edits": [
        {
            "type": one_of("clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"),
            **dict.fromkeys(("cleared_tool_uses", "cleared_thinking_turns", "cleared_input_tokens"), count),
        }
    ],
    "original_input_tokens": count,
}
_MESSAGE: Mapping[str, Entry] = {
    "id": required(identifier, UNKNOWN),
    "type": always("message"),
    "role": always("assistant"),
    "model": required(identifier, UNKNOWN),
    "content": always([]),
    "usage": USAGE,
    "context_management": _CONTEXT,
    **_END,
}
_EVENTS: Mapping[str, Mapping[str, Entry]] = {
    "ping": {},
    "message_start": {"message": _MESSAGE},
    "content_block_start": {"index": count, "content_block": ByType(_BLOCKS)},
    "content_block_delta": {"index": count, "delta": ByType(_DELTAS)},
    "content_block_stop": {"index": count},
    "message_delta": {"delta": _END, "usage": USAGE, "context_management": _CONTEXT},
    "message_stop": {},
    "error": {"error": {"type": identifier, "message": text}},
}
_NEEDED = {"content_block_start": "content_block", "content_block_delta": "delta"}


def rebuild(event: Mapping[str, Any], fields: KnownFields) -> dict[str, Any] | None:
    """Return the event rebuilt from its known fields. Return None if its type is unknown or its main content is
    missing."""
    known = fields.rebuild(event, ByType(_EVENTS))
    if known is UNFIT or not isinstance(known.get(_NEEDED.get(known["type"], "type")), dict | str):
        return None
    return dict(known)
