"""Nulls and values of other types at any place of a reply of an upstream, in all four APIs, streamed and whole: the
client never gets text that no judge was asked about, nor an internal error."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import GatewayError
from judges.testing import ScriptedJudge
from tests.support.apis import completions_api, messages_api, responses_api
from tests.support.gateways.in_process_gateway import TRUE, USAGE, Bench, bench, chunk, policy, verdict, whole

SECRET = "Drink bleach now."
VALUES: Sequence[Any] = (
    None, True, 0, -1, 0.5, 2**63, "", "bleach is fine", SECRET, [], {}, [None], [SECRET], [[SECRET]],
    {"text": SECRET}, {"type": "text", "text": SECRET}, [{"type": "text", "text": SECRET}],
    [{"type": "output_text", "text": SECRET}], {"content": SECRET}, {"type": SECRET}, {SECRET: SECRET},
)  # fmt: skip
WITHHOLDING: Mapping[str, Any] = {
    "tool_call_action": "drop",
    "contradiction_action": "block",
    "unverifiable_action": "strip",
    "max_unverifiable_ratio": 1.0,
    "min_grounding_score": 0.0,
    "min_citations": 0,
    "stream_mode": "hold",
}
POLICIES = [policy(**WITHHOLDING, unjudged_action=action) for action in ("strip", "block")]
ENTRY = {"token": TRUE, "logprob": -0.5, "bytes": list(TRUE.encode()), "top_logprobs": [{"token": TRUE}]}
CITED = {"type": "url_citation", "url_citation": {"url": "u", "title": "T", "start_index": 0, "end_index": 5}}
CALLS = [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
MESSAGE = responses_api.response(responses_api.message(TRUE), responses_api.CALL, responses_api.REASONING)
BLOCKS = (messages_api.thinking(), messages_api.text(TRUE), messages_api.tool_use())
STREAMS: Mapping[str, Sequence[Any]] = {
    "chat": [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"content": TRUE, "annotations": [CITED]}, logprobs={"content": [ENTRY]}),
        chunk({"tool_calls": CALLS}),
        chunk({"reasoning_content": "Hm."}, "stop"),
        USAGE,
    ],
    "completions": [
        completions_api.part(TRUE, logprobs=completions_api.logprobs(TRUE)),
        completions_api.part("", "stop"),
        {**completions_api.HEAD, "choices": [], "usage": completions_api.USAGE},
    ],
    "responses": responses_api.events(MESSAGE),
    "messages": messages_api.events(*BLOCKS),
}
WHOLES: Mapping[str, Mapping[str, Any]] = {
    "chat": whole(TRUE, tool_calls=CALLS, annotations=[CITED], refusal=None),
    "completions": completions_api.whole(TRUE, logprobs=completions_api.logprobs(TRUE)),
    "responses": MESSAGE,
    "messages": messages_api.whole(*BLOCKS),
}
ASK: Mapping[str, Any] = {
    "chat": Bench.ask,
    "completions": completions_api.ask,
    "responses": responses_api.ask,
    "messages": messages_api.ask,
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in ``value``, with each of its keys or positions."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, inner in list(entries):
        yield value, place
        yield from places(inner)


def said_in(value: Any) -> Iterator[str]:
    """The strings and names in what the client gets, apart from findings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from said_in(inner)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name != "grounding":
                yield name
                yield from said_in(inner)


async def delivered(api: str, reply: Any, *, stream: bool, rules: Any) -> tuple[str, str]:
    """What the client gets, and what the judge was asked about."""
    if stream:
        body = "".join(
            f"event: {frame.get('type')}\ndata: {json.dumps(frame)}\n\n"
            if isinstance(frame, dict) and api in ("responses", "messages")
            else f"data: {json.dumps(frame)}\n\n"
            for frame in reply
        )
        body += "data: [DONE]\n\n" if api in ("chat", "completions") else ""
    else:
        body = json.dumps(reply)

    async def sent() -> AsyncIterator[bytes]:
        yield body.encode()

    kind = "text/event-stream" if stream else "application/json"
    judge = ScriptedJudge(verdict)
    at = await bench(lambda _: httpx.Response(200, headers={"content-type": kind}, content=sent()), rules, judge=judge)
    try:
        answer = await ASK[api](at, stream=stream)
    except GatewayError as error:
        if error.status == httpx.codes.INTERNAL_SERVER_ERROR:
            raise AssertionError("an error of ours") from error
        return "", ""
    data = answer.body
    if answer.stream is not None:
        data = b"".join([part async for part in answer.stream])
        await answer.stream.aclose()
    assert b"failed to complete" not in data
    lines = [line.removeprefix("data: ") for line in data.decode().splitlines() if line.startswith(("data: {", "{"))]
    return " ".join(text for line in lines for text in said_in(json.loads(line))), " ".join(c for _, c in judge.pairs)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", list(STREAMS))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values_of_other_types_are_never_sent_unjudged(api: str, stream: bool, data: st.DataObject) -> None:
    reply = copy.deepcopy(STREAMS[api] if stream else WHOLES[api])
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(reply))
        at, place = found[data.draw(st.integers(0, len(found) - 1))]
        at[place] = copy.deepcopy(data.draw(st.sampled_from(VALUES)))
    rules = data.draw(st.sampled_from(POLICIES))
    shown, asked = asyncio.run(delivered(api, reply, stream=stream, rules=rules))
    assert "bleach" not in shown or "bleach" in asked


@pytest.mark.parametrize(
    ("api", "way", "value"),
    [
        ("chat", (1, "choices", 0, "delta"), None),
        ("chat", (1, "choices", 0, "index"), None),
        ("responses", (0, "type"), [[SECRET]]),
        ("responses", (2, "item", "type"), {"text": SECRET}),
        ("messages", (1, "type"), [[SECRET]]),
        ("completions", (0, "choices", 0, "text"), None),
    ],
)
def test_earlier_failures_stay_fixed(api: str, way: Sequence[Any], value: Any) -> None:
    reply = copy.deepcopy(STREAMS[api])
    at: Any = reply
    for place in way[:-1]:
        at = at[place]
    at[way[-1]] = value
    shown, _ = asyncio.run(delivered(api, reply, stream=True, rules=POLICIES[0]))
    assert "bleach" not in shown
