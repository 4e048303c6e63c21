"""The fields of the Responses API that may be sent under a grounding policy. Events are rebuilt from these fields."""

from collections.abc import Mapping
from typing import Any

from app.protocols.common.known_fields import (
    UNFIT,
    UNKNOWN,
    UNREAD,
    ByType,
    Entry,
    KnownFields,
    RequestField,
    Unread,
    always,
    anything,
    base64,
    boolean,
    code,
    count,
    identifier,
    number,
    one_of,
    padding,
    required,
    text,
)
from app.protocols.common.logprobs import spell
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
    is_text,
    object_of,
    objects_in,
)
from app.protocols.openai_responses.field_names import OTHER_EVENTS

_NAME = required(identifier, UNKNOWN)
_LABEL = required(identifier, "")
"""The name of a file or page. It is kept only if it is a single word."""
_SCHEMA_NAME = RequestField("text.format.name", default=UNKNOWN)
_STATUS = one_of(
    "in_progress", "completed", "incomplete", "failed", "cancelled", "queued", "searching", "interpreting",
    "generating", "calling",
)  # fmt: skip

_TOKEN: Entry = {"token": text, "logprob": number, "bytes": [count], "top_logprobs": always([])}
_NOTE: Entry = ByType(
    {
        "url_citation": {"url": _LABEL, "title": _LABEL, "start_index": count, "end_index": count},
        "file_citation": {"file_id": _NAME, "filename": _LABEL, "index": count},
        "container_file_citation": {
            "container_id": _NAME,
            "file_id": _NAME,
            "filename": _LABEL,
            "start_index": count,
            "end_index": count,
        },
        "file_path": {"file_id": _NAME, "index": count},
    }
)
_TEXT: Entry = {"text": required(text, ""), "annotations": [_NOTE], "logprobs": [_TOKEN]}
_PART_TYPES: Mapping[str, Mapping[str, Entry]] = {
    "output_text": _TEXT,
    "text": _TEXT,
    "refusal": {"refusal": text},
    "reasoning_text": {"text": text},
    "output_audio": {"data": Unread(base64), "transcript": always("")},
}
_PART: Entry = ByType(_PART_TYPES)
_MESSAGE_PART: Entry = ByType({kind: fields for kind, fields in _PART_TYPES.items() if kind != "reasoning_text"})
_SUMMARY: Entry = ByType({"summary_text": {"text": text}})
_REASONING_PART: Entry = ByType({"reasoning_text": {"text": text}, "summary_text": {"text": text}})

_OF_A_CALL: Mapping[str, Entry] = {
    "id": identifier,
    "call_id": identifier,
    "status": _STATUS,
    "name": identifier,
    "namespace": identifier,
    "server_label": identifier,
    "approval_request_id": identifier,
    "container_id": identifier,
    "environment": anything,
    "arguments": anything,
    "input": anything,
    "action": anything,
    "actions": anything,
    "operation": anything,
    "pending_safety_checks": anything,
    "queries": [text],
    "results": anything,
    "code": text,
    "outputs": anything,
    "output": anything,
    "error": anything,
    "tools": anything,
    "result": base64,
    "max_output_length": count,
    "approve": boolean,
    "execution": one_of("client", "server"),
    "revised_prompt": text,
    "background": one_of("transparent", "opaque", "auto"),
    "output_format": one_of("png", "webp", "jpeg"),
    "quality": one_of("low", "medium", "high", "auto"),
    "size": identifier,
}
"""The fields of a tool call. The arguments and results of tools are unrestricted, because other code decides whether
tool calls are sent at all."""
CALLS = (
    "apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "computer_call", "computer_call_output",
    "custom_tool_call", "custom_tool_call_output", "file_search_call", "function_call", "function_call_output",
    "image_generation_call", "local_shell_call", "local_shell_call_output", "mcp_approval_request",
    "mcp_approval_response", "mcp_call", "mcp_list_tools", "shell_call", "shell_call_output", "tool_search_call",
    "tool_search_output", "web_search_call",
)  # fmt: skip
_ITEM_TYPES: Mapping[str, Mapping[str, Entry]] = {
    "message": {
        "id": identifier,
        "role": always("assistant"),
        "status": _STATUS,
        "phase": one_of("commentary", "final_answer"),
        "content": [_MESSAGE_PART],
    },
    "reasoning": {
        "id": identifier,
        "status": _STATUS,
        "summary": [_SUMMARY],
        "content": [_PART],
        "encrypted_content": base64,
    },
    "compaction": {"id": identifier, "encrypted_content": base64},
    **dict.fromkeys(CALLS, _OF_A_CALL),
}
_ITEM: Entry = ByType(_ITEM_TYPES)

_EFFORT = one_of("none", "minimal", "low", "medium", "high", "xhigh")
_CACHED: Entry = dict.fromkeys(("cached_tokens", "cache_write_tokens", "reasoning_tokens"), count)
_USAGE: Entry = {
    "input_tokens": count,
    "input_tokens_details": _CACHED,
    "output_tokens": count,
    "output_tokens_details": _CACHED,
    "total_tokens": count,
}


RESPONSE: Entry = {
    "background": boolean,
    "billing": {"payer": one_of("developer", "openai")},
    "completed_at": number,
    "conversation": {"id": RequestField("conversation.id", default=UNFIT)},
    "created_at": number,
    "error": {"code": code, "message": text, "param": identifier, "type": identifier},
    "id": _NAME,
    "incomplete_details": {"reason": one_of("max_output_tokens", "content_filter")},
    "instructions": padding,
    "max_output_tokens": count,
    "max_tool_calls": count,
    "model": _NAME,
    "object": always("response"),
    "output": [_ITEM],
    "output_text": text,
    "parallel_tool_calls": boolean,
    "reasoning": {
        "effort": _EFFORT,
        "summary": one_of("auto", "concise", "detailed"),
        "generate_summary": one_of("auto", "concise", "detailed"),
    },
    "service_tier": one_of("auto", "default", "flex", "scale", "priority"),
    "status": _STATUS,
    "store": boolean,
    "temperature": number,
    "text": {
        "format": ByType({"text": {}, "json_object": {}, "json_schema": {"name": _SCHEMA_NAME, "schema": always({})}}),
        "verbosity": one_of("low", "medium", "high"),
    },
    "tool_choice": (one_of("none", "auto", "required"), RequestField("tool_choice")),
    "tools": always([]),
    "top_logprobs": count,
    "top_p": number,
    "truncation": one_of("auto", "disabled"),
    "usage": _USAGE,
    **{name: RequestField(name) for name in ("previous_response_id", "prompt_cache_key", "safety_identifier", "user")},
    "metadata": RequestField("metadata", default={}),
    "prompt_cache_retention": one_of("in-memory", "in_memory", "24h"),
}
"""The known fields of a response. A response also repeats the instructions, tools and schemas of the request. These may
contain text, so they are left out."""

_EVERY: Mapping[str, Entry] = {"sequence_number": count}
_INDEXED: Mapping[str, Entry] = {**_EVERY, "item_id": identifier, "output_index": count, "content_index": count}
_SUMMARIZED: Entry = {**_INDEXED, "summary_index": count}
_PADDED: Entry = {**_INDEXED, "obfuscation": padding}
_OF_OTHERS: Mapping[str, Mapping[str, Entry]] = {
    "code_interpreter_call_code.delta": {**_PADDED, "delta": text},
    "code_interpreter_call_code.done": {**_INDEXED, "code": text},
    "custom_tool_call_input.delta": {**_PADDED, "delta": text},
    "custom_tool_call_input.done": {**_INDEXED, "input": text},
    "function_call_arguments.delta": {**_PADDED, "delta": text, "call_id": identifier},
    "function_call_arguments.done": {**_INDEXED, "arguments": text, "name": identifier, "call_id": identifier},
    "image_generation_call.partial_image": {
        **_INDEXED,
        "partial_image_index": count,
        "partial_image_b64": base64,
    },
    "mcp_call_arguments.delta": {**_PADDED, "delta": text},
    "mcp_call_arguments.done": {**_INDEXED, "arguments": text},
    "shell_call_command.added": {**_INDEXED, "command_index": count, "command": text},
    "shell_call_command.delta": {**_PADDED, "command_index": count, "delta": text},
    "shell_call_command.done": {**_INDEXED, "command_index": count, "command": text},
    "shell_call_output_content.delta": {**_PADDED, "command_index": count, "delta": text},
    "shell_call_output_content.done": {**_INDEXED, "command_index": count},
    "reasoning.delta": {**_PADDED, "delta": text},
    "reasoning.done": {**_INDEXED, "text": text},
    "reasoning_text.delta": {**_PADDED, "delta": text},
    "reasoning_text.done": {**_INDEXED, "text": text},
    "reasoning_summary.delta": {**_SUMMARIZED, "delta": text, "obfuscation": padding},
    "reasoning_summary.done": {**_SUMMARIZED, "text": text},
    "reasoning_summary_text.delta": {**_SUMMARIZED, "delta": text, "obfuscation": padding},
    "reasoning_summary_text.done": {**_SUMMARIZED, "text": text},
    "reasoning_part.added": {**_INDEXED, "part": _REASONING_PART},
    "reasoning_part.done": {**_INDEXED, "part": _REASONING_PART},
    "reasoning_summary_part.added": {**_SUMMARIZED, "part": _SUMMARY},
    "reasoning_summary_part.done": {**_SUMMARIZED, "part": _SUMMARY},
    "refusal.delta": {**_PADDED, "delta": text},
    "refusal.done": {**_INDEXED, "refusal": text},
    "audio.delta": {**_INDEXED, "delta": Unread(base64)},
}
"""Maps the part of an event name after ``response.`` to the fields of the event, for events with content other than
text. Events without an entry only report progress."""
_OF_A_RESPONSE: Mapping[str, Entry] = {**_EVERY, "response": RESPONSE}
_OF_AN_ITEM: Mapping[str, Entry] = {**_EVERY, "output_index": count, "item": _ITEM}
_OF_A_PART: Mapping[str, Entry] = {**_INDEXED, "part": _PART}
_EVENT_TYPES: Mapping[str, Mapping[str, Entry]] = {
    "keepalive": _EVERY,
    **dict.fromkeys((name for name in OTHER_EVENTS if "transcript" not in name), _INDEXED),
    **{f"response.{name}": fields for name, fields in _OF_OTHERS.items()},
    **dict.fromkeys(LIFECYCLE | TERMINAL, _OF_A_RESPONSE),
    **dict.fromkeys((ITEM_ADDED, ITEM_DONE), _OF_AN_ITEM),
    **dict.fromkeys((PART_ADDED, PART_DONE), _OF_A_PART),
    TEXT_DELTA: {**_INDEXED, "delta": required(text, ""), "logprobs": [_TOKEN], "obfuscation": padding},
    TEXT_DONE: {**_INDEXED, "text": required(text, ""), "logprobs": [_TOKEN]},
    ANNOTATION: {**_INDEXED, "annotation": _NOTE, "annotation_index": count},
}
_REFUSED = {"response.refusal.delta": (TEXT_DELTA, "delta"), "response.refusal.done": (TEXT_DONE, "text")}
"""Maps each refusal event to the corresponding text event and the name of its text field."""
_NEEDED = {ITEM_ADDED: "item", ITEM_DONE: "item", PART_ADDED: "part", PART_DONE: "part", ANNOTATION: "annotation"}


def rebuild(event: Mapping[str, Any], fields: KnownFields) -> dict[str, Any] | None:
    """Return the event rebuilt from its known fields. Return None if its type is unknown or its main content is
    missing."""
    known = fields.rebuild(_typed_event(event, refusals=UNREAD not in fields.drops), ByType(_EVENT_TYPES))
    if known is UNFIT:
        return None
    kind = known["type"]
    if kind in _NEEDED and not isinstance(known.get(_NEEDED[kind]), dict):
        return None
    if kind in LIFECYCLE | TERMINAL:
        known["response"] = response = object_of(known.get("response"))
        if response.get("error") and response.get("status") != "failed":
            response["error"] = None
        if response.get("conversation") == {}:  # the request names no conversation
            del response["conversation"]
    if kind in (TEXT_DELTA, TEXT_DONE):
        _spell(known, "delta" if kind == TEXT_DELTA else "text", fields)
    for part in _parts_of(known):
        _spell(part, "text", fields)
    return dict(known)


def rebuild_error(event: Mapping[str, Any], fields: KnownFields) -> dict[str, Any]:
    """Rebuild an error event from its known fields."""
    inner = event.get("error")
    given = inner if isinstance(inner, dict) else {"message": inner} if isinstance(inner, str) else event
    known = {"code": code, "message": text, "param": identifier}
    return {"type": "error", **fields.rebuild({name: given.get(name) for name in known}, known, "error")}


def rebuild_usage(usage: Any, fields: KnownFields) -> Any:
    """Rebuild token counts from their known fields."""
    return fields.rebuild(usage, _USAGE, "response.usage")


def _typed_event(event: Mapping[str, Any], *, refusals: bool) -> dict[str, Any]:
    """Return the event with missing types added. An item with content becomes a message, and a part with text becomes a
    text part. Without ``refusals``, refusals become text, so that they are judged."""
    made = dict(event)
    of = made.get("type")
    if not refusals and isinstance(of, str) and of in _REFUSED:
        kind, name = _REFUSED[of]
        made.update({"type": kind, "logprobs": [], name: made.pop("refusal", made.get(name))})
    if isinstance(made.get("item"), dict):
        made["item"] = _typed_item(made["item"], refusals=refusals)
    if isinstance(made.get("part"), dict) and made.get("type") in (PART_ADDED, PART_DONE):
        made["part"] = _typed_part(made["part"], refusals=refusals)
    response = made.get("response")
    if isinstance(response, dict) and isinstance(response.get("output"), list):
        output = [_typed_item(item, refusals=refusals) for item in response["output"]]
        made["response"] = {**response, "output": output}
    return made


def _typed_item(item: Any, *, refusals: bool) -> Any:
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if not (isinstance(kind, str) and kind in _ITEM_TYPES) and "content" in item:
        item = {**item, "type": "message"}
    if item.get("type") == "message" and isinstance(item.get("content"), list):
        return {**item, "content": [_typed_part(part, refusals=refusals) for part in item["content"]]}
    return item


def _typed_part(part: Any, *, refusals: bool) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind == "refusal" and not refusals:
        return {"type": "output_text", "text": part.get("refusal"), "annotations": [], "logprobs": []}
    known = isinstance(kind, str) and kind in _PART_TYPES
    return part if known or not isinstance(part.get("text"), str) else {**part, "type": "output_text"}


def _parts_of(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the text parts in a rebuilt event."""
    items = [object_of(event.get("item"))]
    items += [item for _, item in objects_in(object_of(event.get("response")).get("output"))]
    parts = [object_of(event.get("part"))]
    parts += [part for item in items for _, part in objects_in(item.get("content"))]
    return [part for part in parts if is_text(part)]


def _spell(known: dict[str, Any], name: str, fields: KnownFields) -> None:
    """Leave out log-probabilities whose tokens do not spell the text under ``name``."""
    if known.get("logprobs") and not spell(known["logprobs"], str(known.get(name) or "")):
        fields.leave_out("logprobs")
        known["logprobs"] = []
