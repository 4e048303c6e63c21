"""Describes the governed APIs in the same form: how to call each, and how its upstream sends the same content, streamed
and whole."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.apis import messages_api, responses_api, scripted_answers
from tests.support.apis.responses_api import words
from tests.support.gateways.mock_upstream import Reply, json_reply

Json = dict[str, Any]

TEXT, CALL, REASONING, REFUSAL = "text", "call", "reasoning", "refusal"
Item = tuple[str, str]
"""A piece of a reply: its kind, and its text or the arguments of a tool call."""
TOOL = "look_up"
ARGUMENTS = '{"a": 1}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCase:
    """An API.

    ``whole`` builds the upstream's body from the items of a reply, ``events`` the JSON objects of its stream, and
    ``sse`` the bytes of these objects. ``kinds`` are the kinds of items that the API supports. ``form`` has the fields
    that request JSON.
    """

    api: str
    path: str
    asked: Mapping[str, Any]
    kinds: frozenset[str]
    form: Mapping[str, Any] | None
    whole: Callable[[Sequence[Item]], Json]
    events: Callable[[Sequence[Item]], list[Json]]
    sse: Callable[[Sequence[Mapping[str, Any]]], bytes]

    def reply(self, items: Sequence[Item], *, stream: bool) -> Reply:
        """Build the upstream's answer with the items."""
        if stream:
            return Reply(chunks=[self.sse([event]) for event in self.events(items)], pause_s=0)
        return json_reply(self.whole(items))


def read_objects(data: bytes) -> list[Json]:
    """Return the JSON objects of a reply: its body, or the events of its stream."""
    if data.startswith(b"{"):
        return [json.loads(data)]
    lines = (line.removeprefix("data:").strip() for line in data.decode().splitlines() if line.startswith("data:"))
    return [json.loads(line) for line in lines if line != "[DONE]"]


def _call(number: int, arguments: str) -> Json:
    return {"id": f"call_{number}", "type": "function", "function": {"name": TOOL, "arguments": arguments}}


def _chat_whole(items: Sequence[Item]) -> Json:
    texts = [text for kind, text in items if kind == TEXT]
    calls = [_call(number, text) for number, (kind, text) in enumerate(items) if kind == CALL]
    message: Json = {"refusal": "".join(text for kind, text in items if kind == REFUSAL) or None}
    message |= {"tool_calls": calls} if calls else {}
    for kind, text in items:
        if kind == REASONING:
            message["reasoning_content"] = text
    body = scripted_answers.whole("".join(texts), finish="tool_calls" if calls else "stop", message=message)
    body["choices"][0]["message"]["content"] = "".join(texts) or None
    return body


def _chat_events(items: Sequence[Item]) -> list[Json]:
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    for number, (kind, text) in enumerate(items):
        match kind:
            case "text":
                deltas += ({"content": word} for word in words(text))
            case "call":
                begun = {"index": number, **_call(number, "")}
                deltas += (
                    {"tool_calls": [begun]},
                    {"tool_calls": [{"index": number, "function": {"arguments": text}}]},
                )
            case "reasoning":
                deltas.append({"reasoning_content": text})
            case "refusal":
                deltas.append({"refusal": text})
    finish = "tool_calls" if any(kind == CALL for kind, _ in items) else "stop"
    chunks = [*(scripted_answers.chunk(0, delta) for delta in deltas), scripted_answers.chunk(0, {}, finish)]
    return [json.loads(chunk.removeprefix(b"data: ")) for chunk in chunks]


def _ended_sse(events: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the bytes of the events, with ``[DONE]`` after the one that ends the choice."""
    ends = any(choice["finish_reason"] for event in events for choice in event.get("choices", ()))
    return b"".join([*map(scripted_answers.event, events), *([b"data: [DONE]\n\n"] if ends else [])])


_COMPLETION = {"id": "cmpl-1", "object": "text_completion", "created": 1790000000, "model": "test-model-1"}


def _part(text: str, finish: str | None = None) -> Json:
    return {**_COMPLETION, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]}


def _plain_whole(items: Sequence[Item]) -> Json:
    return {**_part("".join(text for _, text in items), "stop"), "usage": scripted_answers.USAGE}


def _plain_events(items: Sequence[Item]) -> list[Json]:
    return [*(_part(word) for _, text in items for word in words(text)), _part("", "stop")]


def _response(items: Sequence[Item]) -> Json:
    made: list[Json] = []
    for number, (kind, text) in enumerate(items):
        match kind:
            case "text":
                made.append(responses_api.message(text, item_id=f"msg_{number}"))
            case "call":
                made.append(
                    {**responses_api.CALL, "id": f"fc_{number}", "call_id": f"call_{number}", "arguments": text}
                )
            case "reasoning":
                summary = [{"type": "summary_text", "text": text}]
                made.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary})
            case "refusal":
                made.append({**responses_api.refusal(text), "id": f"msg_{number}"})
    return responses_api.response(*made)


def _blocks(items: Sequence[Item]) -> list[list[Json]]:
    made = []
    for number, (kind, text) in enumerate(items):
        match kind:
            case "text":
                made.append(messages_api.text(*words(text)))
            case "call":
                begun = {"type": "tool_use", "id": f"toolu_{number}", "name": TOOL, "input": {}}
                made.append([begun, {"type": "input_json_delta", "partial_json": text}])
            case "reasoning":
                made.append(messages_api.thinking(text))
    return made


def _stop(items: Sequence[Item]) -> str:
    return "tool_use" if any(kind == CALL for kind, _ in items) else "end_turn"


CHAT = ApiCase(
    api="chat.completions",
    path="/v1/chat/completions",
    asked={"model": "m", "messages": [{"role": "user", "content": "What does it cost?"}]},
    kinds=frozenset({TEXT, CALL, REASONING, REFUSAL}),
    form={"response_format": {"type": "json_object"}},
    whole=_chat_whole,
    events=_chat_events,
    sse=_ended_sse,
)
COMPLETIONS = ApiCase(
    api="completions",
    path="/v1/completions",
    asked={"model": "m", "prompt": "What does it cost?"},
    kinds=frozenset({TEXT}),
    form=None,
    whole=_plain_whole,
    events=_plain_events,
    sse=_ended_sse,
)
RESPONSES = ApiCase(
    api="responses",
    path="/v1/responses",
    asked={"model": "m", "input": "What does it cost?"},
    kinds=frozenset({TEXT, CALL, REASONING, REFUSAL}),
    form={"text": {"format": {"type": "json_object"}}},
    whole=_response,
    events=lambda items: responses_api.events(_response(items)),
    sse=responses_api.sse,
)
MESSAGES = ApiCase(
    api="messages",
    path="/v1/messages",
    asked={"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "What does it cost?"}]},
    kinds=frozenset({TEXT, CALL, REASONING}),
    form={"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    whole=lambda items: messages_api.whole(*_blocks(items), stop=_stop(items)),
    events=lambda items: messages_api.events(*_blocks(items), stop=_stop(items)),
    sse=messages_api.sse,
)
APIS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
