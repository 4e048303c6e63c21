"""The names of events, items and fields in the Responses API. A field under any other name might contain text."""

from collections.abc import Mapping

from app.protocols.openai_responses.event_types import (
    ANNOTATION,
    ITEM_ADDED,
    ITEM_DONE,
    LIFECYCLE,
    PART_ADDED,
    PART_DONE,
    TERMINAL,
    TEXT_DELTA,
    TEXT_DONE,
)

_EVERY = frozenset({"type", "sequence_number"})
_ITEM = _EVERY | {"output_index", "item"}
_PART = _EVERY | {"item_id", "output_index", "content_index"}

EVENT_FIELDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(LIFECYCLE | TERMINAL, _EVERY | {"response"}),
    **dict.fromkeys((ITEM_ADDED, ITEM_DONE), _ITEM),
    **dict.fromkeys((PART_ADDED, PART_DONE), _PART | {"part"}),
    TEXT_DELTA: _PART | {"delta", "logprobs", "obfuscation"},
    TEXT_DONE: _PART | {"text", "logprobs"},
    ANNOTATION: _PART | {"annotation", "annotation_index"},
}
"""The events that can contain reply text, with their fields."""

_CALLS = {
    "code_interpreter_call": "in_progress interpreting completed",
    "file_search_call": "in_progress searching completed",
    "image_generation_call": "in_progress generating partial_image completed",
    "mcp_call": "in_progress completed failed",
    "mcp_list_tools": "in_progress completed failed",
    "web_search_call": "in_progress searching completed",
    "compaction": "compacting",
    **dict.fromkeys(
        (
            "audio",
            "audio.transcript",
            "code_interpreter_call_code",
            "custom_tool_call_input",
            "function_call_arguments",
            "mcp_call_arguments",
            "reasoning",
            "reasoning_summary",
            "reasoning_summary_text",
            "reasoning_text",
            "refusal",
            "shell_call_output_content",
        ),
        "delta done",
    ),
    "reasoning_part": "added done",
    "reasoning_summary_part": "added done",
    "shell_call_command": "added delta done",
    "steer": "accepted failed pending",
}

OTHER_EVENTS = frozenset(f"response.{name}.{step}" for name, steps in _CALLS.items() for step in steps.split())
"""The events for content other than reply text: calls, reasoning, refusals and audio."""

ITEMS = frozenset(
    {
        "additional_tools",
        "compaction",
        "configuration_update",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_list_tools",
        "program",
        "program_output",
        "reasoning",
        "tool_search_output",
    }
)
"""The types of items other than messages, calls and call outputs."""

MESSAGE_FIELDS = frozenset({"id", "type", "role", "status", "content", "phase"})
TEXT_FIELDS = frozenset({"type", "text", "annotations", "logprobs"})
OTHER_PARTS: Mapping[str, frozenset[str]] = {
    "refusal": frozenset({"type", "refusal"}),
    "reasoning_text": frozenset({"type", "text"}),
    "output_audio": frozenset({"type", "data", "transcript"}),
}
ANNOTATION_FIELDS = frozenset(
    {"type", "file_id", "filename", "container_id", "index", "url", "title", "start_index", "end_index"}
)
ERROR_FIELDS = frozenset({"code", "message", "param", "type"})

NUMBERS = frozenset(
    {"sequence_number", "output_index", "content_index", "annotation_index", "index", "start_index", "end_index"}
)
WORDS = frozenset(
    {"id", "item_id", "type", "role", "status", "phase", "object", "reason", "code", "param", "file_id", "container_id"}
)
"""Fields whose values are always names rather than text."""

RESPONSE_FIELDS = frozenset(
    {
        "access_programs",
        "background",
        "billing",
        "completed_at",
        "conversation",
        "created_at",
        "error",
        "id",
        "image",
        "incomplete_details",
        "input_transformations",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "object",
        "output",
        "output_text",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_diagnostics",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "status",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tool_usage",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "usage",
        "user",
    }
)
