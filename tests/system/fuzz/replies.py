"""Upstream answers to all four APIs, through the whole gateway: the client always gets a well-formed reply or an error,
the call leaves one storable event, and withheld text isn't shown."""

import asyncio
import atexit
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from app.errors import GatewayError
from app.events.serialization import dump, event_rows
from app.gateway.types import GatewayResponse
from app.protocols.common.sse import SSEParser, load
from policies.types import Policy
from tests.support.apis import completions_api as text_harness
from tests.support.apis import messages_api as messages_harness
from tests.support.apis import responses_api as responses_harness
from tests.support.gateways.in_process_gateway import (
    DOCUMENTS,
    FALSE,
    TRUE,
    UNKNOWN,
    USAGE,
    Bench,
    bench,
    chunk,
    policy,
    whole,
)
from tests.system.fuzz.draw import Draw, encoded, names_in

Ask = Callable[..., Awaitable[GatewayResponse]]
WITHHOLD: Mapping[str, Any] = {"min_citations": 0, "contradiction_action": "block", "unverifiable_action": "strip"}
TOOLS = [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
ENTRY = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
CITED = {
    "type": "url_citation",
    "url_citation": {"url": "https://docs.test", "title": "T", "start_index": 0, "end_index": 5},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """``streams`` and ``wholes`` are valid upstream answers; ``named``: the frames have an ``event``."""

    ask: Ask
    streams: Sequence[Sequence[Any]]
    wholes: Sequence[Mapping[str, Any]]
    named: bool = False
    names: Sequence[str] = field(default_factory=tuple)


def _chat(at: Bench, **fields: Any) -> Awaitable[GatewayResponse]:
    return at.ask(**fields)


APIS: Sequence[Api] = (
    Api(
        ask=_chat,
        streams=[
            [
                chunk({"role": "assistant", "content": ""}),
                *(chunk({"content": text}) for text in (TRUE + " ", FALSE, " See [1]. ")),
                chunk({"content": UNKNOWN, "annotations": [CITED]}, logprobs={"content": [ENTRY]}),
                chunk({}, "stop"),
                USAGE,
                "[DONE]",
            ],
            [
                chunk({"role": "assistant"}),
                chunk({"reasoning_content": "Hm."}),
                chunk({"refusal": "No."}),
                chunk({"content": [{"type": "text", "text": TRUE}]}),
                chunk({"content": FALSE}, index=1),
                chunk({"tool_calls": TOOLS}, "tool_calls"),
                {"error": {"message": "overloaded", "code": 529}},
            ],
        ],
        wholes=[
            whole(TRUE, FALSE),
            whole(f"{UNKNOWN} {TRUE} [1]", tool_calls=TOOLS, annotations=[CITED], refusal=None),
        ],
    ),
    Api(
        ask=responses_harness.ask,
        streams=[
            responses_harness.events(
                responses_harness.response(responses_harness.message(TRUE, FALSE), responses_harness.CALL)
            ),
            responses_harness.events(
                responses_harness.response(
                    responses_harness.REASONING,
                    responses_harness.message(f"{UNKNOWN} {TRUE}"),
                    responses_harness.refusal("No."),
                )
            ),
        ],
        wholes=[responses_harness.response(responses_harness.message(TRUE, FALSE), responses_harness.CALL)],
        named=True,
    ),
    Api(
        ask=messages_harness.ask,
        streams=[
            messages_harness.events(
                messages_harness.thinking(), messages_harness.text(TRUE, " ", FALSE), messages_harness.tool_use()
            ),
            messages_harness.events(
                messages_harness.text(
                    UNKNOWN,
                    TRUE,
                    citations=[
                        {
                            "type": "search_result_location",
                            "source": "hr.pdf",
                            "search_result_index": 0,
                            "start_block_index": 0,
                            "end_block_index": 1,
                            "cited_text": TRUE,
                            "title": "T",
                        }
                    ],
                )
            ),
        ],
        wholes=[messages_harness.whole(messages_harness.text(TRUE, " ", FALSE), messages_harness.tool_use())],
        named=True,
    ),
    Api(
        ask=text_harness.ask,
        streams=[
            [
                text_harness.part(TRUE + " "),
                text_harness.part(FALSE, logprobs=text_harness.logprobs("a", "b")),
                text_harness.part(UNKNOWN, "stop"),
                {**text_harness.HEAD, "choices": [], "usage": text_harness.USAGE},
                "[DONE]",
            ]
        ],
        wholes=[text_harness.whole(TRUE, FALSE, echo=None), text_harness.whole(f"{UNKNOWN} {TRUE}")],
    ),
)
NAMES = [[*names_in(*api.streams, *api.wholes), TRUE, FALSE, UNKNOWN, "null", "error"] for api in APIS]

MODES: Sequence[Sequence[Policy]] = (
    [],
    [policy(**WITHHOLD, stream_mode="hold", abstention_response="Please ask HR.")],
    [policy(**WITHHOLD, stream_mode="live")],
    [policy(**WITHHOLD, stream_mode="final", on_block="error")],
    [policy(min_citations=1, unverifiable_action="strip", max_unverifiable_ratio=1.0)],
)
HOLDING = (MODES[1], MODES[3])
CODES = (200, 200, 200, 200, 200, 200, 429, 500)
KINDS = ("text/event-stream", "text/event-stream; charset=utf-8", "application/json", "text/html", "")


def check(data: bytes) -> None:
    """A reply of one API under one policy, made from ``data``: a valid one with something wrong in it."""
    _RUNNER.run(_check(Draw(data)))


_RUNNER = asyncio.Runner()
atexit.register(_RUNNER.close)
_BENCHES: dict[int, Bench] = {}
_ANSWER: list[httpx.Response] = []


async def _bench(mode: int) -> Bench:
    if mode not in _BENCHES:
        _BENCHES[mode] = await bench(lambda _: _ANSWER.pop(), *MODES[mode])
    return _BENCHES[mode]


async def _check(draw: Draw) -> None:
    place = draw.below(len(APIS))
    api, policies = APIS[place], draw.pick(MODES)
    streamed, documents = draw.flag(), DOCUMENTS if draw.below(4) else None
    code, kind = draw.pick(CODES), "text/event-stream" if streamed else "application/json"
    kind = draw.pick(KINDS) if draw.below(8) == 0 else kind
    body = _body(draw, api, NAMES[place], streamed=streamed ^ (draw.below(16) == 0))
    pieces = draw.cut(body)

    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    at = await _bench(MODES.index(policies))
    at.events.written.clear()
    _ANSWER[:] = [httpx.Response(code, headers={"content-type": kind} if kind else {}, content=sent())]
    try:
        reply = await api.ask(at, documents=documents, stream=streamed)
    except GatewayError as error:
        json.dumps(error.body()).encode()
        if error.status == httpx.codes.INTERNAL_SERVER_ERROR:
            raise AssertionError("an error of ours") from error
    else:
        held = documents is not None and code == httpx.codes.OK and policies in HOLDING
        await _read(reply, held=held)
    (event,) = at.events.written
    dump(event_rows(event))


async def _read(reply: GatewayResponse, *, held: bool) -> None:
    said = reply.body
    if reply.stream is not None:
        said = b"".join([data async for data in reply.stream])
        await reply.stream.aclose()
    if b"gateway failed to complete" in said:
        raise AssertionError("the gateway failed to complete the reply")
    if not held:
        return
    parser = SSEParser()
    frames = [*parser.feed(said), *parser.close()] if reply.stream is not None else []
    bodies = [frame.data for frame in frames if frame.data not in (None, b"[DONE]")] if frames else [said]
    for body in bodies:
        if load(body) is None:
            raise AssertionError("what cannot be read was not held back")
        if FALSE in "".join(_shown(load(body))):
            raise AssertionError("what is withheld was said")


def _shown(value: Any) -> Iterator[str]:
    """The text in a frame or body that a client shows."""
    match value:
        case {"choices": [*choices]}:
            for choice in choices:
                match choice:
                    case {"delta": {"content": str(text)}} | {"message": {"content": str(text)}} | {"text": str(text)}:
                        yield text
        case {"type": "response.output_text.delta", "delta": str(text)}:
            yield text
        case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
            yield text


def _body(draw: Draw, api: Api, names: Sequence[str], *, streamed: bool) -> bytes:
    if not streamed:
        return encoded(draw.edited(draw.pick(api.wholes), names)) if draw.below(16) else draw.rest()
    events = draw.edited(draw.pick(api.streams), names)
    end = draw.pick((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    return b"".join(
        _frame(draw, event, end, named=api.named) for event in (events if isinstance(events, list) else [events])
    )


def _frame(draw: Draw, event: Any, end: bytes, *, named: bool) -> bytes:
    data = event.encode("utf-8", "replace") if isinstance(event, str) else encoded(event)
    lines = [b"data: " + data]
    if named and isinstance(event, dict):
        lines.insert(0, b"event: " + encoded(event.get("type")).strip(b'"'))
    match draw.byte():
        case 1:
            lines.insert(draw.below(len(lines) + 1), b": comment")
        case 2:
            lines.insert(draw.below(len(lines) + 1), b"id: " + draw.bytes(8))
        case 3:
            return draw.bytes(30)
        case 4:
            lines.pop()
        case 5:
            return end.join(lines) + end
        case 6:
            lines = [b"data:" + data[: draw.byte()], b"data:" + data[draw.byte() :]]
    return end.join(lines) + end + end
