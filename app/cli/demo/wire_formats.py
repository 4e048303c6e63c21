"""The request and reply formats of the scripted upstream: Chat Completions, Completions, Responses and Messages."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

Json = dict[str, Any]
WORD = re.compile(r"(?<!\s)\s*+\S+")
"""A word and the whitespace before it. The demo counts each as one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """A reply, independent of the API's format. ``wants_usage`` means that a stream of Chat Completions or Completions
    ends with token counts."""

    id: str
    model: str
    text: str
    prompt_tokens: int
    wants_usage: bool

    @property
    def pieces(self) -> Sequence[str]:
        return WORD.findall(self.text)

    @property
    def usage(self) -> Json:
        completion = len(self.pieces)
        total = self.prompt_tokens + completion
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": completion, "total_tokens": total}


@dataclass(frozen=True, slots=True)
class WireFormat:
    """One API's format. ``messages`` returns the prompt of a request body as chat messages. ``whole`` and ``stream``
    serialize a reply."""

    messages: Callable[[Json], list[Json]]
    whole: Callable[[ScriptedReply], Json]
    stream: Callable[[ScriptedReply], Iterator[bytes]]


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message. Its content is a string or a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content if isinstance(part, dict))


def _now() -> int:
    return int(datetime.now(UTC).timestamp())


def _data(body: Json) -> bytes:
    return b"data: %s\n\n" % orjson.dumps(body)


def _event(body: Json) -> bytes:
    return f"event: {body['type']}\n".encode() + _data(body)


def _chat_head(reply: ScriptedReply, kind: str) -> Json:
    return {"id": reply.id, "created": _now(), "model": reply.model, "object": kind}


def _whole_chat(reply: ScriptedReply) -> Json:
    message = {"role": "assistant", "content": reply.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {**_chat_head(reply, "chat.completion"), "choices": [choice], "usage": reply.usage}


def _streamed_chat(reply: ScriptedReply) -> Iterator[bytes]:
    head = _chat_head(reply, "chat.completion.chunk")

    def choices(delta: Json, finish_reason: str | None = None) -> list[Json]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]

    yield _data({**head, "choices": choices({"role": "assistant", "content": ""})})
    for piece in reply.pieces:
        yield _data({**head, "choices": choices({"content": piece})})
    yield _data({**head, "choices": choices({}, "stop")})
    if reply.wants_usage:
        yield _data({**head, "choices": [], "usage": reply.usage})
    yield b"data: [DONE]\n\n"


def _completion(reply: ScriptedReply, text: str, finish_reason: str | None) -> Json:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
    return {**_chat_head(reply, "text_completion"), "choices": [choice]}


def _whole_completion(reply: ScriptedReply) -> Json:
    return {**_completion(reply, reply.text, "stop"), "usage": reply.usage}


def _streamed_completion(reply: ScriptedReply) -> Iterator[bytes]:
    for piece in reply.pieces:
        yield _data(_completion(reply, piece, None))
    yield _data(_completion(reply, "", "stop"))
    if reply.wants_usage:
        yield _data({**_chat_head(reply, "text_completion"), "choices": [], "usage": reply.usage})
    yield b"data: [DONE]\n\n"


def _prompt_messages(body: Json) -> list[Json]:
    prompt = body.get("prompt")
    texts = [prompt] if isinstance(prompt, str) else [each for each in prompt or () if isinstance(each, str)]
    return [{"role": "user", "content": text} for text in texts]


def _input_messages(body: Json) -> list[Json]:
    given = body.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    instructions = body.get("instructions")
    system = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    return [*system, *(item for item in items if isinstance(item, dict) and "role" in item)]


def _response(reply: ScriptedReply, status: str, output: list[Json]) -> Json:
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.usage["total_tokens"],
    }
    return {
        "id": reply.id,
        "object": "response",
        "created_at": _now(),
        "model": reply.model,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if status == "completed" else None,
    }


def _item(reply: ScriptedReply, status: str, parts: list[Json]) -> Json:
    return {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "status": status, "content": parts}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _whole_response(reply: ScriptedReply) -> Json:
    return _response(reply, "completed", [_item(reply, "completed", [_part(reply.text)])])


def _streamed_response(reply: ScriptedReply) -> Iterator[bytes]:
    place = {"item_id": f"msg_{reply.id}", "output_index": 0, "content_index": 0}
    whole = _item(reply, "completed", [_part(reply.text)])
    events: list[Json] = [
        {"type": "response.created", "response": _response(reply, "in_progress", [])},
        {"type": "response.in_progress", "response": _response(reply, "in_progress", [])},
        {"type": "response.output_item.added", "output_index": 0, "item": _item(reply, "in_progress", [])},
        {"type": "response.content_part.added", **place, "part": _part("")},
        *({"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in reply.pieces),
        {"type": "response.output_text.done", **place, "text": reply.text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": _part(reply.text)},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": _response(reply, "completed", [whole])},
    ]
    for number, event in enumerate(events):
        yield _event({**event, "sequence_number": number})


def _messages(body: Json) -> list[Json]:
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    return [*system, *(body.get("messages") or [])]


def _message(reply: ScriptedReply, content: list[Json], stop_reason: str | None) -> Json:
    usage = {"input_tokens": reply.prompt_tokens, "output_tokens": reply.usage["completion_tokens"]}
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _whole_message(reply: ScriptedReply) -> Json:
    return _message(reply, [{"type": "text", "text": reply.text}], "end_turn")


def _streamed_message(reply: ScriptedReply) -> Iterator[bytes]:
    yield _event({"type": "message_start", "message": _message(reply, [], None)})
    yield _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for piece in reply.pieces:
        delta = {"type": "text_delta", "text": piece}
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    usage = {"output_tokens": reply.usage["completion_tokens"]}
    yield _event({"type": "message_delta", "delta": stop, "usage": usage})
    yield _event({"type": "message_stop"})


FORMATS: Mapping[str, WireFormat] = {
    "/v1/chat/completions": WireFormat(lambda body: body.get("messages") or [], _whole_chat, _streamed_chat),
    "/v1/completions": WireFormat(_prompt_messages, _whole_completion, _streamed_completion),
    "/v1/responses": WireFormat(_input_messages, _whole_response, _streamed_response),
    "/v1/messages": WireFormat(_messages, _whole_message, _streamed_message),
}
"""The formats by path."""
