"""Replies of the Responses API, whole and streamed, and a bench that requests them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.auth import GatewayKey
from app.gateway.types import GatewayRequest, GatewayResponse
from app.protocols.documents import Limits
from app.protocols.openai_responses import ResponsesAdapter
from app.protocols.openai_responses.request import read_responses
from tests.support.gateways.in_process_gateway import DOCUMENTS, Bench

USAGE = {
    "input_tokens": 50,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 70,
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "look_up",
    "arguments": '{"a": 1}',
}
REASONING = {"id": "rs_1", "type": "reasoning", "summary": []}
Event = dict[str, Any]


def message(*texts: str, item_id: str = "msg_1", status: str = "completed", **part: Any) -> dict[str, Any]:
    """Return an output message with a text part for each of ``texts``."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": [], **part} for text in texts]
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def refusal(text: str) -> dict[str, Any]:
    part = {"type": "refusal", "refusal": text}
    return {"id": "msg_r", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def response(*items: Mapping[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    """Return a whole response."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1790000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": "test-model-1",
        "output": [dict(item) for item in items],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
        "x_vendor": {"kept": True},
        **fields,
    }


def words(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+$", text)


def events(body: Mapping[str, Any], *, pieces: Mapping[tuple[int, int], Sequence[str]] | None = None) -> list[Event]:
    """Return the stream of ``body``. ``pieces`` maps text parts to their deltas, which are otherwise the words."""
    begun = {**body, "status": "in_progress", "output": [], "usage": None}
    made: list[Event] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(body["output"]):
        made += _item_events(index, item, pieces or {})
    made.append({"type": f"response.{body['status']}", "response": dict(body)})
    return [{**event, "sequence_number": number} for number, event in enumerate(made)]


def _item_events(index: int, item: Mapping[str, Any], pieces: Mapping[tuple[int, int], Sequence[str]]) -> list[Event]:
    begun = {**item, "status": "in_progress"}
    if item["type"] == "message":
        begun["content"] = []
    if item["type"] == "function_call":
        begun["arguments"] = ""
    made: list[Event] = [{"type": "response.output_item.added", "output_index": index, "item": begun}]
    for place, part in enumerate(item.get("content", ())):
        where = {"item_id": item["id"], "output_index": index, "content_index": place}
        if part["type"] == "refusal":
            made.append({"type": "response.content_part.added", **where, "part": {**part, "refusal": ""}})
            made.append({"type": "response.refusal.delta", **where, "delta": part["refusal"]})
            made.append({"type": "response.refusal.done", **where, "refusal": part["refusal"]})
        else:
            empty = {**part, "text": "", "annotations": []}
            made.append({"type": "response.content_part.added", **where, "part": empty})
            for piece in pieces.get((index, place), words(part["text"])):
                made.append({"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []})
            for number, annotation in enumerate(part["annotations"]):
                added = {"annotation_index": number, "annotation": annotation}
                made.append({"type": "response.output_text.annotation.added", **where, **added})
            made.append({"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []})
        made.append({"type": "response.content_part.done", **where, "part": part})
    if item["type"] == "function_call":
        where = {"item_id": item["id"], "output_index": index}
        made.append({"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]})
        made.append({"type": "response.function_call_arguments.done", **where, "arguments": item["arguments"]})
    made.append({"type": "response.output_item.done", "output_index": index, "item": dict(item)})
    return made


def frame(event: Mapping[str, Any], *, named: bool = True, end: str = "\n") -> bytes:
    name = f"event: {event['type']}{end}" if named else ""
    return f"{name}data: {json.dumps(event, ensure_ascii=False)}{end}{end}".encode()


def sse(made: Iterable[Mapping[str, Any]], *, named: bool = True, end: str = "\n") -> bytes:
    return b"".join(frame(event, named=named, end=end) for event in made)


def said(*texts: str, **fields: Any) -> bytes:
    """Return a stream of one message with a part for each of ``texts``."""
    return sse(events(response(message(*texts), **fields)))


def read(data: bytes) -> list[Event]:
    """Return the events of a stream. An ``event`` line, if present, must match the event's type."""
    found = []
    for block in data.decode().replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            event = json.loads(fields["data"])
            assert fields.get("event", event["type"]) == event["type"]
            found.append(event)
    return found


def types(found: Iterable[Event]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in found]


def of(found: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in found if event["type"] == f"response.{kind}"]


def shown(found: Iterable[Event], place: tuple[int, int] | None = None) -> str:
    """Return the text of the deltas of one part, or of all parts."""
    deltas = of(found, "output_text.delta")
    return "".join(d["delta"] for d in deltas if place in (None, (d["output_index"], d["content_index"])))


def output_text(body: Mapping[str, Any]) -> str:
    """Return all text in a whole response."""
    parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts if part["type"] in ("output_text", "text"))


def consistent(found: Sequence[Event]) -> None:
    """Check that sequence numbers increase from 0 without gaps, and that repeated text equals the text shown before."""
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    for event in of(found, "output_text.done"):
        assert event["text"] == shown(found, (event["output_index"], event["content_index"]))
    for event in of(found, "content_part.done"):
        if event["part"]["type"] in ("output_text", "text"):
            place = (event["output_index"], event["content_index"])
            assert event["part"]["text"] == shown(found, place)
            added = of(found, "output_text.annotation.added")
            added = [a for a in added if (a["output_index"], a["content_index"]) == place]
            assert [a["annotation_index"] for a in added] == list(range(len(added)))
            assert event["part"]["annotations"] == [a["annotation"] for a in added]
    if found[-1]["type"] in ("response.completed", "response.incomplete"):
        last = found[-1]["response"]
        done = [event["item"] for event in of(found, "output_item.done")]
        assert last["output"] == done
        assert output_text(last) == shown(found)


async def ask(
    at: Bench, *, documents: Any = DOCUMENTS, key: GatewayKey | None = None, **fields: Any
) -> GatewayResponse:
    body: dict[str, Any] = {"model": "m", "input": "How much leave?", **fields}
    if documents is not None:
        body["documents"] = documents
    parsed = read_responses(json.dumps(body).encode(), {}, Limits())
    return await at.gateway.respond(GatewayRequest(adapter=ResponsesAdapter(), parsed=parsed, headers=[], key=key))


async def stream_bytes(at: Bench, **fields: Any) -> bytes:
    reply = await ask(at, stream=True, **fields)
    assert reply.stream is not None
    data = b"".join([part async for part in reply.stream])
    await reply.stream.aclose()
    return data


async def stream(at: Bench, **fields: Any) -> list[Event]:
    return read(await stream_bytes(at, **fields))


async def unary(at: Bench, **fields: Any) -> dict[str, Any]:
    return dict(json.loads((await ask(at, **fields)).body))
