"""Validates replies against the schemas that OpenAI and Anthropic publish with their SDKs, more strictly than the SDKs
do.

The SDKs build their objects without validating them. Clients built on them (pydantic-ai, LiteLLM, AI SDK) do validate,
and reject a whole reply because of one value. ``faults`` lists each value that a schema doesn't allow, and each unknown
field that the gateway doesn't document.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anthropic.types import ErrorResponse, Message, RawMessageStreamEvent
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.shared import ErrorObject
from pydantic import BaseModel, TypeAdapter, ValidationError

WHOLE: Mapping[str, Any] = {
    "chat.completions": ChatCompletion,
    "completions": Completion,
    "responses": Response,
    "messages": Message,
}
STREAMED: Mapping[str, Any] = {
    "chat.completions": ChatCompletionChunk,
    "completions": Completion,
    "responses": ResponseStreamEvent,
    "messages": RawMessageStreamEvent,
}
OURS: Mapping[str, frozenset[str]] = {
    "chat.completions": frozenset(
        {
            *("grounding", "choices.delta.annotations"),
            *(
                "choices.message.reasoning_content",
                "choices.delta.reasoning_content",
            ),  # from DeepSeek, since adopted by others
        }
    ),
    "completions": frozenset({"grounding", "choices.annotations"}),
    "responses": frozenset(
        {
            *("grounding", "response.grounding", "violations"),
            *(
                f"{place}.{name}"
                for place in (
                    "annotation",
                    "part.annotations",
                    "item.content.annotations",
                    "output.content.annotations",
                    "response.output.content.annotations",
                )
                for name in ("start_index", "end_index")
            ),
        }
    ),
    "messages": frozenset({"grounding"}),
}
"""The gateway's documented fields, by their paths without indices."""


def faults(
    api: str, replies: Sequence[Mapping[str, Any]], *, streamed: bool, unknown_fields: bool = False
) -> list[str]:
    """Return the schema errors in the JSON objects of a reply: its body, or its events in order. ``unknown_fields`` are
    allowed."""
    adapter: TypeAdapter[Any] = TypeAdapter((STREAMED if streamed else WHOLE)[api])
    found = []
    for reply in replies:
        try:
            model = _validated(api, reply, adapter, streamed=streamed)
        except ValidationError as error:
            found += [f"{_path(one['loc'])}: {one['msg']}, not {one['input']!r}" for one in error.errors()]
        else:
            unknown = (path for path in _extras(model) if path not in OURS[api])
            found += [f"{path}: unknown field" for path in unknown if not unknown_fields]
    return found


def _validated(api: str, reply: Mapping[str, Any], adapter: TypeAdapter[Any], *, streamed: bool) -> Any:
    """Return the validated model of a body or an event. Some documented fields are missing from the SDKs."""
    if reply.get("type") == "ping":
        return None
    if reply.get("error") and api != "responses":
        model = ErrorResponse if api == "messages" else ErrorObject
        model.model_validate(reply if api == "messages" else reply["error"])
        return None
    if api == "completions" and streamed:  # only the last chunk has a reason
        choices = [
            {**choice, "finish_reason": "stop"} if choice.get("finish_reason", "") is None else choice
            for choice in reply["choices"]
        ]
        reply = {**reply, "choices": choices}
    return adapter.validate_python(reply)


def _path(loc: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in loc)


def _extras(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that aren't in a model."""
    if isinstance(value, BaseModel):
        for name in value.model_extra or {}:
            yield f"{path}{name}"
        for name in value.model_fields_set & type(value).model_fields.keys():
            yield from _extras(getattr(value, name), f"{path}{type(value).model_fields[name].alias or name}.")
    elif isinstance(value, list):
        for item in value:
            yield from _extras(item, path)
