"""Replies that don't follow the Responses API: no unjudged or withheld text is sent."""

import copy
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.errors import UpstreamConnectError
from app.protocols.common.logprobs import spell
from app.protocols.openai_responses.normalisation import Shapes
from tests.support.apis.responses_api import (
    CALL,
    ask,
    consistent,
    events,
    frame,
    message,
    of,
    output_text,
    read,
    response,
    shown,
    sse,
    stream_bytes,
    unary,
)
from tests.support.gateways.in_process_gateway import FALSE, TRUE, UNKNOWN, bench, policy

pytestmark = pytest.mark.anyio

Change = Callable[[Any], Any]

RULES: dict[str, Any] = {"contradiction_action": "block", "unverifiable_action": "strip", "max_unverifiable_ratio": 1}
PLACE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
BOTH = f"{TRUE} {UNKNOWN}"
SPOKEN = {"type": "output_text", "text": FALSE}

in_modes = pytest.mark.parametrize("mode", ["hold", "final"])


def first(body: Any) -> Any:
    """The first part of the first item."""
    return body["output"][0]["content"][0]


def changed(kind: str, change: Change, text: str = TRUE) -> bytes:
    """A stream with ``text``, and a change to its events of one kind."""
    made = copy.deepcopy(events(response(message(text))))
    for event in of(made, kind):
        change(event)
    return sse(made)


def among(*odd: bytes) -> bytes:
    """A stream with frames between the start of its text and its first delta."""
    made = events(response(message(TRUE)))
    return sse(made[:4]) + b"".join(odd) + sse(made[4:])


def data(event: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(event).encode()


async def got(answer: bytes, mode: str = "hold") -> bytes:
    """What a client receives from a stream; nothing in it was withheld or unjudged."""
    left = await stream_bytes(await bench(answer, policy(stream_mode=mode, **RULES)))
    assert b"40 days" not in left
    assert b"Bicycles" not in left
    assert "The gateway failed" not in left.decode()
    return left


def body_of(answer: Any) -> Callable[[httpx.Request], httpx.Response]:
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return lambda _: httpx.Response(200, headers={"content-type": "application/json"}, content=content)


class TestUnreadable:
    """Frames that a strict parser rejects and clients accept."""

    @in_modes
    async def test_invalid_byte_is_replaced_in_every_event_that_repeats_the_text(self, mode: str) -> None:
        stream = sse(events(response(message(f"{BOTH} QQQ")))).replace(b"QQQ", b"\xff")
        found = read(await got(stream, mode))
        consistent(found)
        assert shown(found).startswith(TRUE)

    @in_modes
    @pytest.mark.parametrize("kind", ["output_text.done", "content_part.done", "output_item.done", "completed"])
    async def test_numbers_outside_json_are_handled(self, kind: str, mode: str) -> None:
        stream = changed(kind, lambda event: event.update(x=float("nan")), BOTH)
        assert shown(read(await got(stream, mode))) == TRUE

    async def test_lone_surrogate_does_not_end_the_reply(self) -> None:
        stream = sse(events(response(message(f"{TRUE} abcQ")))).replace(b"Q", b"\\ud83d")
        at = await bench(stream)
        left = read(await stream_bytes(at))
        assert left[-1]["type"] == "response.completed"
        whole = json.dumps(response(message(f"{TRUE} abc\ud83d"))).encode()
        assert output_text(await unary(await bench(body_of(whole)))).startswith(TRUE)

    async def test_duplicate_name_is_resolved(self) -> None:
        twice = sse(events(response(message(TRUE)))).replace(
            b'"text": "P', b'"text": "%b", "text": "P' % FALSE.encode()
        )
        assert shown(read(await got(twice))) == TRUE

    async def test_text_in_sse_fields_is_left_out(self) -> None:
        made = events(response(CALL, message(TRUE)))
        said = FALSE.encode()
        odd = b"".join(b"id: %b\n: %b\n" % (said, said) + frame(event) for event in made)
        assert shown(read(await got(odd))) == TRUE


SHAPES: dict[str, Change] = {
    "output a string": lambda b: b.update(output=FALSE),
    "output an object": lambda b: b.update(output={"0": message(FALSE)}),
    "output of strings": lambda b: b["output"].append(FALSE),
    "content a string": lambda b: b["output"][0].update(content=FALSE),
    "content of strings": lambda b: b["output"][0].update(content=[FALSE]),
    "content an object": lambda b: b["output"][0].update(content=SPOKEN),
    "an item without a type": lambda b: (b["output"][0].pop("type"), first(b).update(text=FALSE)),
    "an item of another type": lambda b: (b["output"][0].update(type="Message"), first(b).update(text=FALSE)),
    "an item without content": lambda b: b["output"].append({"type": "note", "text": FALSE}),
    "a part without a type": lambda b: (first(b).pop("type"), first(b).update(text=FALSE)),
    "a part of another type": lambda b: first(b).update(type="summary_text", text=FALSE),
    "a text of strings": lambda b: first(b).update(text=[FALSE]),
    "a text in an object": lambda b: first(b).update(text={"value": FALSE}),
    "output_text alone": lambda b: (b.pop("output"), b.update(output_text=FALSE)),
    "choices": lambda b: (b.pop("output"), b.update(choices=[{"message": {"content": FALSE}}])),
    "words for a status": lambda b: b.update(status=FALSE),
    "words for a reason": lambda b: b.update(incomplete_details={"reason": FALSE}),
    "words for an identifier": lambda b: b["output"][0].update(id=[FALSE]),
    "text beside the settings": lambda b: b.update(text=FALSE),
}


class TestShapes:
    @pytest.mark.parametrize("shape", SHAPES)
    async def test_unknown_fields_of_a_whole_response_are_left_out(self, shape: str) -> None:
        body = response(message(TRUE))
        SHAPES[shape](body)
        try:
            left = (await ask(await bench(body_of(body), policy(**RULES)))).body
        except UpstreamConnectError:
            left = b""
        assert b"40 days" not in left

    @in_modes
    @pytest.mark.parametrize("shape", SHAPES)
    async def test_unknown_fields_of_the_final_event_are_left_out(self, shape: str, mode: str) -> None:
        await got(changed("completed", lambda event: SHAPES[shape](event["response"])), mode)

    @pytest.mark.parametrize("kind", ["output_item.added", "output_item.done"])
    @pytest.mark.parametrize(
        "change",
        [
            {"content": FALSE},
            {"content": [FALSE]},
            {"type": None, "content": [SPOKEN]},
            {"type": "assistant_message", "content": [SPOKEN]},
            {"type": ["message"], "content": [SPOKEN]},
        ],
    )
    async def test_unknown_fields_of_an_item_are_left_out(self, kind: str, change: dict[str, Any]) -> None:
        await got(changed(kind, lambda event: event["item"].update(change)))
        await got(changed(kind, lambda event: event.update(item=FALSE)))

    @pytest.mark.parametrize("kind", ["content_part.added", "content_part.done"])
    @pytest.mark.parametrize("change", [{"type": None, "text": FALSE}, {"type": "x", "text": FALSE}, {"text": [FALSE]}])
    async def test_unknown_fields_of_a_part_are_left_out(self, kind: str, change: dict[str, Any]) -> None:
        await got(changed(kind, lambda event: event["part"].update(change)))
        await got(changed(kind, lambda event: event.update(part=FALSE)))

    async def test_text_without_a_type_is_judged_as_text(self) -> None:
        body = response(message(f"{TRUE} {UNKNOWN}"))
        del body["output"][0]["type"], first(body)["type"]
        for answer in (body_of(body), sse([{"type": "response.completed", "response": body}])):
            reply = await unary(await bench(answer, policy(**RULES)))
            assert output_text(reply) == TRUE

    @pytest.mark.parametrize(
        "event",
        [
            {**PLACE, "type": "response.text.delta", "delta": FALSE},
            {**PLACE, "type": "response.output_text.snapshot", "text": FALSE},
            {**PLACE, "type": "response.output_text.Delta", "delta": FALSE},
            {**PLACE, "delta": FALSE},
            {**PLACE, "type": ["response.output_text.delta"], "delta": FALSE},
            {"type": FALSE},
            {"type": "note", "n": [{"x": {FALSE: 1}}]},
        ],
    )
    async def test_unknown_event_is_left_out_and_named(self, event: dict[str, Any]) -> None:
        left = read(await got(among(data(event))))
        consistent(left)
        assert left[-1]["response"]["grounding"]["not_checked"] == ["unknown"]

    async def test_keepalive_passes(self) -> None:
        left = await got(among(b'data: {"type": "keepalive"}\n\n'))
        assert b'{"type":"keepalive"}' in left

    async def test_live_streams_leave_unknown_fields_out(self) -> None:
        odd = data({**PLACE, "type": "response.text.delta", "delta": FALSE})
        assert FALSE.encode() not in await stream_bytes(await bench(among(odd), policy(stream_mode="live")))

    async def test_untouched_streams_pass_unchanged(self) -> None:
        answer = among(data({**PLACE, "type": "response.text.delta", "delta": FALSE}))
        assert await stream_bytes(await bench(answer), documents=None) == answer

    @pytest.mark.parametrize("mode", ["hold", "live", "final"])
    @pytest.mark.parametrize(
        "odd",
        [
            f": {FALSE}\n\n".encode(),
            f"data: {FALSE}\n\n".encode(),
            data({"type": "keepalive", "note": FALSE}),
            data({"type": "keepalive", "n": 8888, "m": {FALSE: 1}}),
            data({"type": "response.audio.transcript.delta", "delta": FALSE}),
            data({**PLACE, "type": "response.output_text.delta", "delta": "", "item_id": FALSE}),
            f'data: {{"type":"response.refusal.delta","delta":"{FALSE}","delta":""}}\n\n'.encode(),
            f'data: {{"type":"response.in_progress","response":{{"status":"{FALSE}","instructions":"{FALSE}",'
            f'"metadata":{{"a":"{FALSE}"}},"tools":["{FALSE}"],"service_tier":"{FALSE}"}}}}\n\n'.encode(),
        ],
    )
    async def test_extra_text_in_frames_is_left_out(self, odd: bytes, mode: str) -> None:
        left = await stream_bytes(await bench(among(odd), policy(stream_mode=mode, **RULES)))
        assert b"40 days" not in left
        assert b"8888" not in left
        assert shown(read(left)) == TRUE

    async def test_alternative_tokens_are_left_out(self) -> None:
        token = {
            "token": TRUE,
            "logprob": -1,
            "bytes": [],
            "top_logprobs": [{"token": FALSE, "logprob": -2, "bytes": []}],
        }
        body = response(message(TRUE, logprobs=[token]))
        for answer in (body, sse(events(body))):
            assert b"40 days" not in await stream_bytes(await bench(answer, policy(**RULES)))

    async def test_configured_extra_fields_are_kept(self) -> None:
        body = {**response(message(TRUE)), "x_vendor": {"kept": True}, "note": 1}
        for answer in (body, sse(events(body))):
            at = await bench(answer, policy(**RULES), settings={"keep_fields": "response.x_vendor"})
            reply = read(await stream_bytes(at))[-1]["response"]
            assert (reply["x_vendor"], "note" in reply) == ({"kept": True}, False)


class TestErrors:
    @pytest.mark.parametrize(
        "body", [b"{}", b'{"error": {"message": "no"}}', b"data: hello\n\ndata: [DONE]\n\n", b'{"output": "x"}']
    )
    async def test_whole_reply_without_output_is_a_bad_gateway(self, body: bytes) -> None:
        kind = "text/event-stream" if body.startswith(b"data") else "application/json"
        at = await bench(lambda _: httpx.Response(200, headers={"content-type": kind}, content=body))
        with pytest.raises(UpstreamConnectError):
            await ask(at)

    @pytest.mark.parametrize(
        "event",
        [
            {"type": "error", "code": "c", "message": "bad", "output": [message(FALSE)]},
            {"error": {"code": "c", "message": "bad", "note": FALSE}, "text": FALSE},
        ],
    )
    async def test_error_has_only_known_fields(self, event: dict[str, Any]) -> None:
        left = read(await got(sse(events(response(message(TRUE)))[:-1]) + data(event)))
        said = {"type": "error", "code": "c", "message": "bad", "param": None}
        assert left[-1] == {**said, "sequence_number": len(left) - 1}


class TestBesides:
    """Copies of the text, its tokens, and what quotes it."""

    @in_modes
    @pytest.mark.parametrize(
        ("kind", "change"),
        [
            ("completed", lambda e: e.update(text=UNKNOWN)),
            ("completed", lambda e: e["response"].update(output_text=[UNKNOWN])),
            ("completed", lambda e: e["response"].update(content=UNKNOWN)),
            ("completed", lambda e: e["response"]["output"][0].update(text=UNKNOWN)),
            ("output_item.done", lambda e: e["item"].update(output_text=UNKNOWN)),
            ("content_part.done", lambda e: e["part"].update(parsed={"a": UNKNOWN})),
            ("output_text.done", lambda e: e.update(parsed=UNKNOWN)),
            ("output_text.delta", lambda e: e.update(snapshot=BOTH)),
            ("output_text.delta", lambda e: e.update(obfuscation=BOTH)),
            ("in_progress", lambda e: e["response"].update(text_so_far=UNKNOWN)),
            ("output_text.delta", lambda e: e.update(logprobs=[{"token": FALSE, "logprob": -1}])),
            ("output_text.done", lambda e: e.update(logprobs=[{"token": FALSE, "logprob": -1}])),
            ("content_part.added", lambda e: e.update(output_index=UNKNOWN)),
            ("content_part.added", lambda e: e["part"].update(logprobs=[{"token": FALSE}])),
            ("content_part.done", lambda e: e["part"].update(logprobs=[{"token": FALSE}])),
        ],
    )
    async def test_copy_of_the_text_is_removed(self, kind: str, change: Change, mode: str) -> None:
        found = read(await got(changed(kind, change, BOTH), mode))
        consistent(found)
        assert shown(found) == TRUE

    async def test_quotation_in_an_annotation_is_removed(self) -> None:
        note = {"type": "file_citation", "file_id": "f", "filename": "x", "index": 2, "quote": UNKNOWN}
        body = response(message(BOTH, annotations=[note]))
        await got(sse(events(body)))
        reply = await unary(await bench(body_of(body), policy(**RULES)))
        assert UNKNOWN not in json.dumps(reply)
        assert first(reply)["annotations"][0] == {name: note[name] for name in note if name != "quote"}


def test_documented_fields_are_unchanged() -> None:
    for event in events(response(message(TRUE), CALL)):
        assert Shapes().event(event) == event


def test_tokens_spell_text_by_name_or_by_bytes() -> None:
    train = "🚆".encode()
    halves = [{"token": "\\xf0\\x9f", "bytes": list(train[:2])}, {"token": "\\x9a\\x86", "bytes": list(train[2:])}]
    assert spell([{"token": "a"}, {"token": "b"}], "ab")
    assert spell(halves, "🚆")
    assert not spell([{"token": "a"}], "ab")
    assert not spell([{"token": FALSE, "bytes": list(b"ab")}], "ab")
    assert not spell([{"token": "x", "bytes": [999]}], "ab")


async def test_text_of_an_unannounced_item_can_be_truncated() -> None:
    upstream = [event for event in events(response(message(FALSE))) if event["type"] != "response.output_item.added"]
    at = await bench(sse(upstream), policy(stream_mode="live", **RULES))
    found = read(await stream_bytes(at))
    assert found[-1]["type"] == "response.incomplete"
    assert [item["id"] for item in found[-1]["response"]["output"]] == ["msg_1"]
    assert at.event.request.status == "blocked"
