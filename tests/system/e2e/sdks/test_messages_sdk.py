"""What users of the official Anthropic SDK see, synchronous and asynchronous, streamed and not."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError, AsyncAnthropic, BadRequestError

from judges.types import Label
from tests.support.gateways.live_gateway import UPSTREAM_KEY, Gateway
from tests.support.gateways.mock_upstream import Reply, closed_port, json_reply

PLANS = "The basic plan costs 9 euros a month. "
SUPPORT = "Support answers within two days."
LIE = "The basic plan includes a free boat."
DOCUMENTS: list[dict[str, Any]] = [
    {"id": "plans", "text": "The basic plan costs 9 euros a month.", "source": "plans.md", "age_days": 14},
    {"id": "support", "text": SUPPORT, "source": "support.md", "age_days": 3},
]
RESULT = {
    "type": "search_result",
    "source": "https://kb.test/plans",
    "title": "Plans",
    "content": [{"type": "text", "text": PLANS.strip()}],
    "citations": {"enabled": True},
}
CLOSED = {"min_citations": 0, "min_grounding_score": 0.0, "contradiction_action": "block"}
USAGE = {"input_tokens": 50, "output_tokens": 20}


@dataclass(slots=True, kw_only=True)
class Seen:
    """A client's result in a common format, for each way of sending the request."""

    message: Any
    request_id: str
    grounding: dict[str, Any] | None = None
    per_sentence: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.message.content if block.type == "text")


def whole(*texts: str, stop: str = "end_turn") -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1",
            "content": [{"type": "text", "text": text} for text in texts],
            "stop_reason": stop, "stop_sequence": None, "usage": USAGE, "x_vendor": {"kept": True}}  # fmt: skip


def frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def chunks_of(*texts: str, stop: str = "end_turn") -> list[bytes]:
    """The same as a stream, a few letters at a time."""
    message: dict[str, Any] = {**whole(), "stop_reason": None, "usage": {"input_tokens": 50, "output_tokens": 1}}
    made: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, text in enumerate(texts):
        made.append({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}})
        made.append({"type": "ping"})
        for start in range(0, len(text), 7):
            delta = {"type": "text_delta", "text": text[start : start + 7]}
            made.append({"type": "content_block_delta", "index": index, "delta": delta})
        made.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None}
    made.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 20}})
    made.append({"type": "message_stop"})
    return [frame(event) for event in made]


def answer(*texts: str, streamed: bool) -> Reply:
    return Reply(chunks=chunks_of(*texts), pause_s=0) if streamed else json_reply(whole(*texts))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("messages"), upstream_api="anthropic").start()
    yield gateway
    gateway.close()


@pytest.fixture(autouse=True)
def fresh(gateway: Gateway) -> None:
    gateway.reset()


def request_of(agent: str | None, documents: Any, content: Any, **options: Any) -> dict[str, Any]:
    extra: dict[str, Any] = {} if documents is None else {"documents": documents}
    grounding = {**({"agent": agent} if agent else {}), **options}
    return {
        "model": "claude-1",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
        "extra_body": {**extra, **({"grounding": grounding} if grounding else {})},
    }


def root(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.port}"


def take(seen: Seen, event: Any) -> None:
    grounding = (event.model_extra or {}).get("grounding")
    if grounding and event.type == "message_delta":
        seen.grounding = grounding
    elif grounding:
        seen.per_sentence += grounding["claims"]


def sync_whole(gateway: Gateway, body: dict[str, Any]) -> Seen:
    with Anthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client:
        raw = client.messages.with_raw_response.create(**body)
        return of_whole(raw.parse(), raw.headers)


def async_whole(gateway: Gateway, body: dict[str, Any]) -> Seen:
    async def ask() -> Seen:
        async with AsyncAnthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client:
            raw = await client.messages.with_raw_response.create(**body)
            return of_whole(await raw.parse(), raw.headers)

    return asyncio.run(ask())


def of_whole(message: Any, headers: Any) -> Seen:
    grounding = (message.model_extra or {}).get("grounding")
    return Seen(message=message, request_id=headers["x-groundlane-request-id"], grounding=grounding)


def sync_helper(gateway: Gateway, body: dict[str, Any]) -> Seen:
    with (
        Anthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client,
        client.messages.stream(**body) as stream,
    ):
        seen = Seen(message=None, request_id=stream.response.headers["x-groundlane-request-id"])
        for event in stream:
            take(seen, event)
        seen.message = stream.get_final_message()
        return seen


def async_helper(gateway: Gateway, body: dict[str, Any]) -> Seen:
    async def ask() -> Seen:
        async with (
            AsyncAnthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client,
            client.messages.stream(**body) as stream,
        ):
            seen = Seen(message=None, request_id=stream.response.headers["x-groundlane-request-id"])
            async for event in stream:
                take(seen, event)
            seen.message = await stream.get_final_message()
            return seen

    return asyncio.run(ask())


Ask = Callable[[Gateway, dict[str, Any]], Seen]
ASKS: dict[str, Ask] = {
    "sync": sync_whole,
    "async": async_whole,
    "sync-streamed": sync_helper,
    "async-streamed": async_helper,
}


@pytest.fixture(params=ASKS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def streamed(way: str) -> bool:
    return "streamed" in way


@pytest.fixture
def ask(gateway: Gateway, way: str) -> Callable[..., Seen]:
    def ask(agent: str | None = None, documents: Any = None, content: Any = "What does it cost?", **more: Any) -> Seen:
        return ASKS[way](gateway, request_of(agent, documents, content, **more))

    return ask


def error_in(error: APIStatusError) -> dict[str, Any]:
    """The error in the format of Anthropic's API."""
    body = error.body
    assert isinstance(body, dict)
    assert body["type"] == "error"
    return dict(body["error"])


def test_supported_answer_has_its_verdict_and_citations(
    gateway: Gateway, ask: Callable[..., Seen], streamed: bool
) -> None:
    gateway.upstream.script(answer(PLANS + SUPPORT, streamed=streamed))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    seen = ask(agent, DOCUMENTS)
    assert seen.text == PLANS + SUPPORT
    assert seen.message.stop_reason == "end_turn"
    assert (seen.message.usage.input_tokens, seen.message.usage.output_tokens) == (50, 20)
    assert seen.grounding is not None
    assert (seen.grounding["verdict"], seen.grounding["action"]) == ("supported", "allow")
    assert seen.grounding["request_id"] == seen.request_id
    assert [claim["verdict"] for claim in seen.per_sentence] == (["supported"] * 2 if streamed else [])
    citations = seen.message.content[0].citations
    assert {(c.type, c.document_index, c.document_title) for c in citations} <= {
        ("char_location", 0, "plans.md"),
        ("char_location", 1, "support.md"),
    }
    for citation in citations:
        said = DOCUMENTS[citation.document_index]["text"]
        assert said[citation.start_char_index : citation.end_char_index] == citation.cited_text

    exchange = gateway.upstream.wait_exchange()
    assert exchange.path == "/v1/messages"
    assert {"documents", "grounding"}.isdisjoint(exchange.json)
    row = gateway.trace(seen.request_id).request
    expected = {
        "api": "messages",
        "status": "completed",
        "verdict": "supported",
        "documents": 2,
        "sentences": 2,
        "prompt_tokens": 50,
        "completion_tokens": 20,
        "stream": streamed,
        "finish_reason": "end_turn",
    }
    assert {name: row[name] for name in expected} == expected


def test_contradicted_sentence_never_reaches_the_client(
    gateway: Gateway, ask: Callable[..., Seen], streamed: bool
) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, streamed=streamed))
    agent = gateway.agent(grounding={**CLOSED, "abstention_response": "Please ask our staff."})
    seen = ask(agent, DOCUMENTS)
    assert seen.text == (f"{PLANS}Please ask our staff." if streamed else "Please ask our staff.")
    assert seen.message.stop_reason == "refusal"
    assert seen.message.usage.output_tokens > 0
    assert seen.grounding is not None
    assert (seen.grounding["action"], seen.grounding["verdict"]) == ("block", "has_contradictions")
    row = gateway.trace(seen.request_id)
    assert (row.request["status"], row.request["action"]) == ("blocked", "block")
    assert (row.claims[-1]["label"], row.claims[-1]["delivered"]) == ("contradicted", False)


def test_mid_stream_block_ends_the_upstream_call(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    chunks = chunks_of(LIE + " " + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    body = request_of(gateway.agent(grounding=CLOSED), DOCUMENTS, "What does it cost?")
    with (
        Anthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client,
        client.messages.stream(**body) as stream,
    ):
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(chunks) - 4)
        assert stream.get_final_message().stop_reason == "refusal"
    assert exchange.peer_closed.wait(5)


def test_stale_document_blocks_before_the_call(gateway: Gateway, ask: Callable[..., Seen], streamed: bool) -> None:
    gateway.upstream.script(answer(PLANS, streamed=streamed))
    agent = gateway.agent(retrieval={})
    with pytest.raises(BadRequestError) as caught:
        ask(agent, [DOCUMENTS[0], {**DOCUMENTS[1], "age_days": 400}])
    error = error_in(caught.value)
    assert (error["type"], error["kind"]) == ("invalid_request_error", "retrieval_policy_violation")
    assert (error["code"], error["param"]) == ("RETRIEVAL_STALE_SOURCE", "documents[1]")
    assert error["message"] == "Source age (400 days) exceeds max (90 days)"
    assert [violation["action"] for violation in error["violations"]] == ["block"]
    assert gateway.upstream.exchanges == []
    row = gateway.trace(caught.value.response.headers["x-groundlane-request-id"]).request
    assert (row["status"], row["http_status"]) == ("blocked", 400)


def test_dropped_search_result_is_not_sent_upstream(gateway: Gateway, ask: Callable[..., Seen], streamed: bool) -> None:
    gateway.upstream.script(answer(PLANS, streamed=streamed))
    rules = {"blocked_sources": ["https://kb.test/old"], "action_on_blocked_source": "drop"}
    agent = gateway.agent(retrieval=rules, grounding=CLOSED)
    question = {"type": "text", "text": "What does it cost?"}
    seen = ask(agent, None, content=[{**RESULT, "source": "https://kb.test/old"}, RESULT, question])
    assert gateway.upstream.wait_exchange().json["messages"][0]["content"] == [RESULT, question]
    (citation,) = seen.message.content[0].citations
    assert (citation.type, citation.search_result_index, citation.title) == ("search_result_location", 1, "Plans")
    assert citation.cited_text == PLANS.strip()
    assert seen.grounding is not None
    assert [document["index"] for document in seen.grounding["retrieval"]["dropped"]] == [0]


@pytest.mark.parametrize("streamed", [False, True])
def test_bytes_are_unchanged_without_anything_to_check(gateway: Gateway, streamed: bool) -> None:
    odd = b": hello\r\n\r\n" + b"".join(chunks_of(PLANS)).replace(b"data: ", b"data:")
    raw = odd if streamed else json.dumps(whole(PLANS), indent=2).encode()
    kind = "text/event-stream" if streamed else "application/json"
    gateway.upstream.script(Reply(headers={"content-type": kind}, chunks=[raw[:100], raw[100:]]))
    body = request_of(None, None, "What does it cost?")
    del body["extra_body"]
    sent = json.dumps({**body, "stream": streamed}, indent=1).encode()
    with gateway.call(sent, path="/v1/messages", headers={"x-api-key": "sk-caller"}) as call:
        assert call.read_all() == raw
    assert gateway.upstream.wait_exchange().body == sent
    assert gateway.trace(call.request_id).request["verdict"] == "no_sources"


def test_upstream_gets_its_own_key_and_none_of_the_caller(gateway: Gateway) -> None:
    gateway.upstream.script(answer(PLANS, streamed=False))
    with Anthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client:
        client.messages.create(
            **request_of(None, DOCUMENTS, "Cost?"), extra_headers={"anthropic-version": "2099-01-01"}
        )
    exchange = gateway.upstream.wait_exchange()
    assert exchange.header("x-api-key") == UPSTREAM_KEY
    assert exchange.header("authorization") is None
    assert exchange.header("anthropic-version") == "2099-01-01"
    assert "sk-caller" not in repr(exchange.headers)


def test_errors_have_the_format_of_the_api(gateway: Gateway) -> None:
    with Anthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client:
        with pytest.raises(BadRequestError) as caught:
            client.messages.create(**request_of(None, [{"text": "x", "age_days": -1}], "Cost?"))
        error = error_in(caught.value)
        assert (error["type"], error["param"]) == ("invalid_request_error", "documents[0].age_days")
        refusal = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        gateway.upstream.script(json_reply(refusal, status=529, headers={"retry-after": "7"}))
        with pytest.raises(APIStatusError) as overloaded:
            client.messages.create(**request_of(None, DOCUMENTS, "Cost?"))
        assert (overloaded.value.status_code, overloaded.value.body) == (529, refusal)
        assert overloaded.value.response.headers["retry-after"] == "7"


def test_unreachable_upstream_is_an_api_error(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(upstream_api="anthropic", upstream_base_url=f"http://127.0.0.1:{closed_port()}/v1")
    with (
        Anthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client,
        pytest.raises(APIStatusError) as caught,
    ):
        client.messages.create(**request_of(None, DOCUMENTS, "Cost?"))
    assert caught.value.status_code == 502
    assert error_in(caught.value)["type"] == "api_error"


def test_mid_stream_error_raises(gateway: Gateway) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    gateway.upstream.script(Reply(chunks=[*chunks_of(PLANS + SUPPORT)[:-4], frame(error)]))
    body = request_of(gateway.agent(grounding=CLOSED), DOCUMENTS, "Cost?")
    said: list[str] = []
    with (
        Anthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client,
        client.messages.stream(**body) as stream,
        pytest.raises(APIStatusError) as caught,
    ):
        said.extend(stream.text_stream)
    assert said[0] == PLANS.strip()
    assert caught.value.body == error


def test_raw_stream_has_every_event_in_order(gateway: Gateway) -> None:
    gateway.upstream.script(answer(PLANS, streamed=True))
    body = request_of(gateway.agent(grounding=CLOSED), DOCUMENTS, "Cost?")
    with Anthropic(api_key="sk-caller", base_url=root(gateway), max_retries=0) as client:
        types = [event.type for event in client.messages.create(**body, stream=True)]
    assert types == ["message_start", "content_block_start", "content_block_delta", "content_block_delta",
                     "content_block_delta", "content_block_stop", "message_delta", "message_stop"]  # fmt: skip


def test_keepalives_between_events_disturb_no_client(gateway: Gateway) -> None:
    """They are comment lines without a blank line, so each becomes part of the next event."""
    chunks = [piece for chunk in chunks_of(PLANS) for piece in (b": waiting\n", chunk)]
    gateway.upstream.script(Reply(chunks=chunks, pause_s=0))
    seen = sync_helper(gateway, request_of(None, None, "Cost?"))
    assert seen.text == PLANS
