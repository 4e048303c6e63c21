"""Converts a whole message from the upstream to stream events, and assembles a whole message for the client from stream
events."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.errors import UpstreamConnectError
from app.protocols.anthropic_messages.allowlist import citations_of
from app.protocols.anthropic_messages.event_types import block_of, delta_of, index_of, object_of
from app.protocols.common.sse import SSEParser

_OF_THE_END = ("stop_reason", "stop_sequence", "stop_details", "container")


def events_of(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Convert the message to the events of a stream. Raises UpstreamConnectError if it is not a message."""
    content = message.get("content")
    if message.get("type") == "error" or ("error" in message and not isinstance(content, list)):
        yield {**message, "type": "error"}
        return
    if not isinstance(content, list):
        raise UpstreamConnectError("The upstream's reply is not a message: it has no content list.")
    yield {"type": "message_start", "message": {**message, "content": []}}
    for index, block in enumerate(content):
        yield from _block_events(index, block)
    ended = {name: message[name] for name in _OF_THE_END if name in message}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", **ended}, "usage": message.get("usage")}
    yield {"type": "message_stop"}


def _block_events(index: int, block: Any) -> Iterator[dict[str, Any]]:
    is_text = isinstance(block, dict) and block.get("type") == "text"
    start = block
    if is_text:
        start = {**block, "text": "", **({"citations": []} if block.get("citations") else {})}
    yield {"type": "content_block_start", "index": index, "content_block": start}
    if is_text:
        deltas = [{"type": "text_delta", "text": block.get("text")}]
        deltas += ({"type": "citations_delta", "citation": citation} for citation in citations_of(block))
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def message_of(data: bytes) -> dict[str, Any] | None:
    """Assemble the message from the events in ``data``. Return None if they don't start a message."""
    message: dict[str, Any] | None = None
    blocks: dict[int, _Block] = {}
    parser = SSEParser()
    for parsed in [*parser.feed(data), *parser.close()]:
        event = object_of(parsed.data) or {}
        match event.get("type"):
            case "message_start":
                begun = event.get("message")
                message = dict(begun) if isinstance(begun, dict) else message
            case "content_block_start":
                blocks[index_of(event)] = _Block(block_of(event))
            case "content_block_delta" if index_of(event) in blocks:
                blocks[index_of(event)].take(delta_of(event))
            case "message_delta" if message is not None:
                _end(message, event)
    if message is not None:
        message["content"] = [block.value() for _, block in sorted(blocks.items())]
    return message


def _end(message: dict[str, Any], event: Mapping[str, Any]) -> None:
    message.update(delta_of(event))
    if isinstance(event.get("usage"), dict):
        message["usage"] = {**(message.get("usage") or {}), **event["usage"]}
    if "grounding" in event:
        message["grounding"] = event["grounding"]


class _Block:
    """A content block to which deltas are added."""

    _JOINED: Mapping[str, str] = {
        "text_delta": "text",
        "thinking_delta": "thinking",
        "signature_delta": "signature",
        "compaction_delta": "content",
    }

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._value = dict(start)
        self._json: list[str] = []

    def take(self, delta: Mapping[str, Any]) -> None:
        name = self._JOINED.get(str(delta.get("type")))
        if name is not None and isinstance(delta.get(name), str):
            self._value[name] = f"{self._value.get(name) or ''}{delta[name]}"
        if isinstance(delta.get("citation"), dict):
            self._value["citations"] = [*(self._value.get("citations") or ()), delta["citation"]]
        if isinstance(delta.get("partial_json"), str):
            self._json.append(delta["partial_json"])

    def value(self) -> dict[str, Any]:
        given = object_of("".join(self._json).encode()) if self._json else None
        return self._value if given is None else {**self._value, "input": given}
