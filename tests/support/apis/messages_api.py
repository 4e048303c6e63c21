"""Anthropic's Messages API for the in-process bench: builds an upstream's answers, sends requests and reads replies."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.gateway.types import GatewayRequest, GatewayResponse
from app.protocols.anthropic_messages import MessagesAdapter
from app.protocols.anthropic_messages.request import read_messages
from app.protocols.anthropic_messages.whole_reply import message_of
from app.protocols.documents import Limits
from tests.support.gateways.in_process_gateway import DOCUMENTS, Bench

Json = dict[str, Any]


def text(*pieces: str, citations: Sequence[Json] = (), first: bool = False) -> list[Json]:
    """Return a text block as its deltas. With ``first``, the citations come before the text."""
    cited = [{"type": "citations_delta", "citation": citation} for citation in citations]
    said = [{"type": "text_delta", "text": piece} for piece in pieces]
    start = {"type": "text", "text": "", **({"citations": []} if citations else {})}
    return [start, *(cited + said if first else said + cited)]


def tool_use(name: str = "look_up") -> list[Json]:
    return [
        {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}},
        {"type": "input_json_delta", "partial_json": '{"q": '},
        {"type": "input_json_delta", "partial_json": '"leave"}'},
    ]


def thinking(thought: str = "Let me see.") -> list[Json]:
    return [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": thought},
        {"type": "signature_delta", "signature": "c2ln"},
    ]


def events(*blocks: list[Json], stop: str | None = "end_turn", pings: bool = True) -> list[Json]:
    """Return the events of a message with ``blocks``. If ``stop`` is None, the stream breaks off before the end of the
    message."""
    usage = {"input_tokens": 40, "cache_read_input_tokens": 2, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    made: list[Json] = [{"type": "message_start", "message": message}]
    for index, (start, *deltas) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": start})
        made += [{"type": "ping"}] if pings and not index else []
        made += ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        made.append({"type": "content_block_stop", "index": index})
    if stop:
        delta = {"stop_reason": stop, "stop_sequence": None}
        made.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}})
        made.append({"type": "message_stop"})
    return made


def sse(made: Sequence[Json]) -> bytes:
    return b"".join(frame(event) for event in made)


def frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def streamed(*blocks: list[Json], **how: Any) -> bytes:
    return sse(events(*blocks, **how))


def whole(*blocks: list[Json], **how: Any) -> Json:
    """Return the message that the stream of ``blocks`` contains."""
    message = message_of(streamed(*blocks, **how))
    assert message is not None
    return message


async def ask(
    bench: Bench, *, documents: Any = DOCUMENTS, content: Any = "How much leave?", **fields: Any
) -> GatewayResponse:
    body: Json = {"model": "claude-1", "max_tokens": 99, "messages": [{"role": "user", "content": content}], **fields}
    if documents is not None:
        body["documents"] = documents
    request = read_messages(json.dumps(body).encode(), {}, Limits())
    return await bench.gateway.respond(
        GatewayRequest(adapter=MessagesAdapter(request), parsed=request.parsed, headers=[])
    )


async def stream_bytes(bench: Bench, **fields: Any) -> bytes:
    reply = await ask(bench, stream=True, **fields)
    assert reply.stream is not None
    data = b"".join([part async for part in reply.stream])
    await reply.stream.aclose()
    return data


async def stream(bench: Bench, **fields: Any) -> list[Json]:
    return parsed(await stream_bytes(bench, **fields))


async def unary(bench: Bench, **fields: Any) -> Json:
    return dict(json.loads((await ask(bench, **fields)).body))


def parsed(data: bytes) -> list[Json]:
    """Return the events of a stream. Each ``event`` line must match the event's type."""
    made = []
    for block in data.decode().split("\n\n"):
        if block:
            name, line = block.split("\n")
            made.append(json.loads(line.removeprefix("data: ")))
            assert name == f"event: {made[-1]['type']}"
    return made


def text_of(message: Mapping[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def is_well_formed(made: Sequence[Json]) -> bool:
    """Return whether the blocks are numbered from zero without gaps, sent one at a time and all closed, with nothing
    outside them."""
    opened, number = False, -1
    for event in made:
        match event["type"]:
            case "content_block_start":
                if opened or event["index"] != number + 1:
                    return False
                opened, number = True, event["index"]
            case "content_block_delta" | "content_block_stop":
                if not opened or event["index"] != number:
                    return False
                opened = event["type"] == "content_block_delta"
            case "message_delta" | "message_stop" if opened:
                return False
    return [event["type"] for event in made if event["type"].startswith("message")] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
