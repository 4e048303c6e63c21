"""Tokens that an upstream doesn't report are estimated from all content, whatever becomes of it."""

import asyncio
from typing import Any

import httpx
import pytest

from app.errors import UpstreamConnectError, UpstreamTimeoutError
from tests.support.apis import completions_api, messages_api, responses_api
from tests.support.gateways.in_process_gateway import Bench, bench, chunk, policy, said, sse, whole

pytestmark = pytest.mark.anyio

LONG = "x" * 4_000
CALL = {"tool_calls": [{"index": 0, "id": "call-1", "type": "function", "function": {"name": "f", "arguments": LONG}}]}
REASONING = {"reasoning_content": LONG}
DROPS = policy(unjudged_action="strip", min_citations=0, tool_call_action="drop", reasoning_action="drop")


def tokens(at: Bench) -> tuple[int | None, int | None, bool]:
    row = at.event.request
    return row.prompt_tokens, row.completion_tokens, row.usage_estimated


@pytest.mark.parametrize("policies", [(), (policy(min_citations=0),), (DROPS,)])
@pytest.mark.parametrize("delta", [CALL, REASONING, {"content": [{"type": "thinking", "thinking": LONG}]}])
async def test_calls_and_reasoning_count(delta: dict[str, Any], policies: tuple[Any, ...]) -> None:
    at = await bench(sse(chunk(delta), chunk({}, "stop")), *policies)
    await at.stream(documents=None)
    prompt, completion, estimated = tokens(at)
    assert (prompt, estimated) == (4, True)
    assert completion is not None
    assert 1_000 <= completion <= 1_001


async def test_judged_reasoning_counts_once() -> None:
    at = await bench(sse(chunk(REASONING), chunk({}, "stop")), policy(min_citations=0, reasoning_action="judge"))
    await at.stream()
    assert tokens(at)[1] == 1_000


@pytest.mark.parametrize("policies", [(), (DROPS,)])
async def test_thinking_and_calls_of_messages_count(policies: tuple[Any, ...]) -> None:
    events = messages_api.events(messages_api.thinking(LONG), messages_api.tool_use(), stop=None)
    at = await bench(messages_api.sse(events), *policies)
    await messages_api.stream(at)
    prompt, completion, estimated = tokens(at)
    assert (prompt, estimated) == (42, True)
    assert completion is not None
    assert 1_000 < completion < 1_020


@pytest.mark.parametrize("policies", [(), (DROPS,)])
@pytest.mark.parametrize("streamed", [True, False])
async def test_items_of_a_response_count_once(policies: tuple[Any, ...], streamed: bool) -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": LONG}
    body = responses_api.response({**item, "status": "completed"}, usage=None)
    at = await bench(responses_api.sse(responses_api.events(body)) if streamed else body, *policies)
    await (responses_api.stream(at) if streamed else responses_api.unary(at))
    _, completion, estimated = tokens(at)
    assert (completion, estimated) == (1_001, True)


WRONG: list[Any] = [-5_000, 7.5, "7", True, None, 10**25]


@pytest.mark.parametrize("wrong", WRONG)
async def test_impossible_counts_are_estimated(wrong: Any) -> None:
    text = "Ask HR, please."
    chat = {**whole(text), "usage": {"prompt_tokens": wrong, "completion_tokens": 5, "total_tokens": 12}}
    at = await bench(chat)
    await at.unary(documents=None)
    assert tokens(at) == (4, 5, True)

    at = await bench({**completions_api.whole(text), "usage": {"prompt_tokens": 7, "completion_tokens": wrong}})
    await completions_api.unary(at)
    assert tokens(at)[1:] == (4, True)

    at = await bench(
        responses_api.response(responses_api.message(text), usage={"input_tokens": 7, "output_tokens": wrong})
    )
    await responses_api.unary(at)
    assert tokens(at) == (7, 4, True)

    message = messages_api.whole(messages_api.text(text))
    at = await bench({**message, "usage": {"input_tokens": wrong, "output_tokens": 5}})
    await messages_api.unary(at)
    prompt, completion, estimated = tokens(at)
    assert (completion, estimated) == (5, True)
    assert prompt


async def test_prompt_includes_everything_that_is_sent() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": LONG}}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{LONG}"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": LONG}, image]}]
    at = await bench(said("Hello."))
    documents = [{"id": "d", "text": LONG}]
    await at.stream(messages=messages, tools=[tool], documents=documents, grounding={"inject": "system"})
    prompt, _, _ = tokens(at)
    assert prompt is not None
    assert 3_000 < prompt < 3_100


async def test_prompt_counts_if_the_client_leaves_before_the_reply() -> None:
    called = asyncio.Event()

    async def wait(_: httpx.Request) -> httpx.Response:
        called.set()
        await asyncio.Event().wait()
        raise AssertionError

    at = await bench({}, transport=httpx.MockTransport(wait))
    asked = asyncio.ensure_future(at.ask(documents=None))
    await called.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert at.event.request.status == "cancelled"
    assert tokens(at) == (4, 0, True)


async def test_rejected_and_unsent_requests_take_no_tokens() -> None:
    at = await bench(lambda _: httpx.Response(400, json={"error": {"message": "No."}}))
    await at.ask(documents=None)
    assert tokens(at) == (None, None, False)

    def unreachable(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    at = await bench(unreachable)
    with pytest.raises(UpstreamConnectError):
        await at.ask(documents=None)
    assert tokens(at) == (None, None, False)


async def test_request_that_times_out_takes_its_prompt() -> None:
    def late(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("late", request=request)

    at = await bench(late)
    with pytest.raises(UpstreamTimeoutError):
        await at.ask(documents=None)
    assert tokens(at) == (4, 0, True)
