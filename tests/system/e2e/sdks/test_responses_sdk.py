"""What users of the official OpenAI SDK see of the Responses API, synchronous and asynchronous, streamed and not."""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from judges.types import Label
from tests.support.apis.responses_api import USAGE, events, frame, message, response
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply
from tests.system.e2e.sdks.openai_calls import CLOSED, DOCUMENTS, LIE, PLANS, SUPPORT, left


@dataclass(slots=True, kw_only=True)
class Seen:
    """A client's result in a common format, in every way to request it."""

    text: str
    status: str
    final: dict[str, Any]
    request_id: str = ""
    deltas: list[str] = field(default_factory=list)
    per_sentence: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    @property
    def grounding(self) -> dict[str, Any]:
        found = self.final["grounding"]
        assert isinstance(found, dict)
        return found

    @property
    def annotations(self) -> list[dict[str, Any]]:
        return [a for item in self.final["output"] for part in item["content"] for a in part["annotations"]]


def reply_of(*texts: str, stream: bool) -> Reply:
    """The upstream's answer with one message, one part for each of ``texts``."""
    body = response(message(*texts))
    return Reply(chunks=[frame(event) for event in events(body)], pause_s=0) if stream else json_reply(body)


def request_of(agent: str | None, documents: Any, **options: Any) -> dict[str, Any]:
    extra: dict[str, Any] = {} if documents is None else {"documents": documents}
    grounding = {**({"agent": agent} if agent else {}), **options}
    if grounding:
        extra["grounding"] = grounding
    return {"model": "test-model-1", "input": "What does it cost?", "extra_body": extra}


def gathered(events_seen: Iterable[Any], request_id: str) -> Seen:
    """An application's reading of a stream."""
    deltas, numbers, per_sentence, final = [], [], [], None
    for event in events_seen:
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            deltas.append(event.delta)
            if claims := (event.model_extra or {}).get("grounding"):
                per_sentence.append(claims)
        elif event.type in ("response.completed", "response.incomplete"):
            final = event.response
    assert final is not None
    return Seen(
        text=final.output_text,
        status=final.status,
        final=final.to_dict(),
        request_id=request_id,
        deltas=deltas,
        per_sentence=per_sentence,
        numbers=numbers,
    )


def whole(final: Any, request_id: str) -> Seen:
    return Seen(text=final.output_text, status=final.status, final=final.to_dict(), request_id=request_id)


REQUEST_ID = "x-groundlane-request-id"


def create(gateway: Gateway, stream: bool, body: dict[str, Any]) -> Seen:
    with OpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client:
        if not stream:
            raw = client.responses.with_raw_response.create(**body)
            return whole(raw.parse(), raw.headers[REQUEST_ID])
        with client.responses.with_streaming_response.create(**body, stream=True) as answer:
            return gathered(answer.parse(), answer.headers[REQUEST_ID])


def create_async(gateway: Gateway, stream: bool, body: dict[str, Any]) -> Seen:
    async def ask() -> Seen:
        async with AsyncOpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client:
            if not stream:
                raw = await client.responses.with_raw_response.create(**body)
                return whole(raw.parse(), raw.headers[REQUEST_ID])
            async with client.responses.with_streaming_response.create(**body, stream=True) as answer:
                return gathered([event async for event in await answer.parse()], answer.headers[REQUEST_ID])

    return asyncio.run(ask())


@pytest.fixture(params=[create, create_async], ids=["sync", "async"])
def client(request: pytest.FixtureRequest) -> Callable[[Gateway, bool, dict[str, Any]], Seen]:
    chosen: Callable[[Gateway, bool, dict[str, Any]], Seen] = request.param
    return chosen


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def ask(gateway: Gateway, client: Callable[..., Seen], stream: bool) -> Callable[..., Seen]:
    """Sends a question with documents, for an agent, with the given SDK client and method."""

    def ask(agent: str | None = None, documents: Any = None, **options: Any) -> Seen:
        return client(gateway, stream, request_of(agent, documents, **options))

    return ask


Ask = Callable[..., Seen]


def test_supported_answer_is_unchanged_with_its_verdict(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(reply_of(PLANS + SUPPORT, stream=stream))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    seen = ask(agent, DOCUMENTS)
    assert (seen.text, seen.status) == (PLANS + SUPPORT, "completed")
    assert seen.final["usage"] == USAGE
    assert (seen.grounding["verdict"], seen.grounding["summary"]) == ("supported", "2/2 claims supported")
    assert seen.grounding["request_id"] == seen.request_id
    if stream:
        assert seen.deltas == [PLANS.rstrip(), f" {SUPPORT}"]
        assert [entry["claims"][0]["verdict"] for entry in seen.per_sentence] == ["supported", "supported"]
        assert seen.numbers == list(range(len(seen.numbers)))
    trace = gateway.trace(seen.request_id)
    left(
        trace,
        api="responses",
        status="completed",
        action="allow",
        verdict="supported",
        trust_score=1.0,
        documents=2,
        sentences=2,
        stream=stream,
        agent=agent,
        model="test-model-1",
        prompt_tokens=50,
        completion_tokens=20,
        finish_reason="stop",
        error=None,
    )
    assert trace.phases("retrieval") == ["before_workflow"]
    assert trace.phases("grounding") == ["before_workflow", "mid_execution", "after_workflow"]
    assert [claim["label"] for claim in trace.claims] == ["supported", "supported"]


def test_annotations_point_at_the_sentence_and_name_the_document(gateway: Gateway, ask: Ask, stream: bool) -> None:
    first, second = "Größe 🚆 ist [1] gut. ", "Antwort kommt [2] bald."
    gateway.upstream.script(reply_of(first + second, stream=stream))
    seen = ask(gateway.agent(grounding=CLOSED), DOCUMENTS)
    urls = [a for a in seen.annotations if a["type"] == "url_citation"]
    files = [a for a in seen.annotations if a["type"] == "file_citation"]
    assert {(a["url"], a["title"]) for a in urls} == {("https://docs.test/plans", "Plans")}
    assert {a["filename"] for a in files} == {"support.md"}
    assert first.strip() in {seen.text[a["start_index"] : a["end_index"]] for a in urls}
    assert len(first + second) in {a["index"] for a in files}


def test_contradicted_sentence_never_reaches_the_client(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(reply_of(PLANS + LIE, stream=stream))
    seen = ask(gateway.agent(grounding={**CLOSED, "abstention_response": "Please ask our staff."}), DOCUMENTS)
    assert "boat" not in json.dumps(seen.final)
    assert seen.text.endswith("Please ask our staff.")
    assert (seen.status, seen.final["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert seen.final["usage"]["total_tokens"] > 0
    assert (seen.grounding["action"], seen.grounding["verdict"]) == ("block", "has_contradictions")
    trace = gateway.trace(seen.request_id)
    left(trace, status="blocked", action="block", verdict="has_contradictions", finish_reason="content_filter")
    assert (trace.claims[-1]["label"], trace.claims[-1]["delivered"]) == ("contradicted", False)


def test_mid_stream_block_ends_the_upstream_call(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    chunks = [frame(event) for event in events(response(message(f"{PLANS}{LIE} {SUPPORT}")))]
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    body = request_of(gateway.agent(grounding=CLOSED), DOCUMENTS)
    body = {**body, **body.pop("extra_body"), "stream": True}
    with gateway.call(body, path="/v1/responses") as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(chunks) - 6)
        data = call.read_all()
    assert exchange.peer_closed.wait(5)
    assert b"boat" not in data
    assert b"response.incomplete" in data
    trace = gateway.trace(call.request_id)
    assert trace.phases("grounding") == ["before_workflow", "mid_execution"]


def test_stale_document_blocks_before_the_call(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(reply_of(PLANS, stream=stream))
    with pytest.raises(BadRequestError) as caught:
        ask(gateway.agent(retrieval={}), [DOCUMENTS[0], {**DOCUMENTS[1], "age_days": 400}])
    error = caught.value
    assert (error.code, error.type, error.param) == (
        "RETRIEVAL_STALE_SOURCE",
        "retrieval_policy_violation",
        "documents[1]",
    )
    assert gateway.upstream.exchanges == []
    left(gateway.trace(error.response.headers[REQUEST_ID]), status="blocked", http_status=400, api="responses")


@pytest.mark.parametrize("where", ["system", "user"])
def test_dropped_document_is_not_in_the_prompt(gateway: Gateway, ask: Ask, stream: bool, where: str) -> None:
    gateway.upstream.script(reply_of(PLANS, stream=stream))
    agent = gateway.agent(retrieval={"action_on_stale_source": "drop"}, grounding=CLOSED)
    seen = ask(agent, [DOCUMENTS[0], {**DOCUMENTS[1], "age_days": 400}], inject=where)
    prompt = gateway.upstream.wait_exchange().body.decode()
    assert DOCUMENTS[0]["text"] in prompt
    assert DOCUMENTS[1]["text"] not in prompt
    fields = {"model", "input"} | ({"stream"} if stream else set()) | ({"instructions"} if where == "system" else set())
    assert set(gateway.upstream.wait_exchange().json) == fields
    assert seen.text == PLANS
    assert [dropped["id"] for dropped in seen.grounding["retrieval"]["dropped"]] == ["support"]


def test_bytes_are_unchanged_without_documents(gateway: Gateway, stream: bool) -> None:
    reply = reply_of(PLANS + SUPPORT, stream=stream)
    gateway.upstream.script(reply)
    with gateway.call({"model": "m", "input": "Q", "stream": stream}, path="/v1/responses") as call:
        assert call.read_all() == b"".join(reply.chunks)
    left(gateway.trace(call.request_id), status="completed", documents=0, verdict="no_sources", prompt_tokens=50)


def test_stream_helper_accepts_a_supported_stream(gateway: Gateway) -> None:
    gateway.upstream.script(reply_of(PLANS + SUPPORT, stream=True))
    body = request_of(gateway.agent(grounding=CLOSED), DOCUMENTS)
    with (
        OpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client,
        client.responses.stream(**body) as helper,
    ):
        snapshots = [event.snapshot for event in helper if event.type == "response.output_text.delta"]
        final = helper.get_final_response()
    assert snapshots == [PLANS.rstrip(), PLANS + SUPPORT]
    assert final.output_text == PLANS + SUPPORT
    assert (final.model_extra or {})["grounding"]["verdict"] == "supported"


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
def test_stream_helper_accepts_a_blocked_stream(gateway: Gateway, mode: str) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(reply_of(PLANS, LIE, stream=True))
    body = request_of(gateway.agent(grounding={**CLOSED, "stream_mode": mode}), DOCUMENTS)

    async def ask() -> Any:
        async with (
            AsyncOpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client,
            client.responses.stream(**body) as helper,
        ):
            return [event async for event in helper][-1]

    last = asyncio.run(ask())
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details.reason == "content_filter"
    assert last.response.output[0].content[0].text == PLANS


def test_other_paths_below_stay_closed(gateway: Gateway) -> None:
    """A stored response contains text that no policy has checked. An operator can open these paths."""
    for method, path in (
        ("GET", "/v1/responses/resp_1?include=x"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("GET", "/v1/responses/resp_1/input_items"),
        ("POST", "/v1/responses/input_tokens"),
    ):
        with gateway.call(path=path, method=method) as call:
            error = call.json()["error"]
        assert (call.status, error["code"]) == (403, "UNGOVERNED_PATH"), path


def test_refusal_of_the_upstream_reaches_the_client(gateway: Gateway, ask: Ask) -> None:
    error = {"error": {"message": "No such model.", "type": "invalid_request_error", "param": "model", "code": "x"}}
    gateway.upstream.script(json_reply(error, status=400))
    with pytest.raises(BadRequestError) as caught:
        ask(gateway.agent(grounding=CLOSED), DOCUMENTS)
    assert caught.value.code == "x"
    left(gateway.trace(caught.value.response.headers[REQUEST_ID]), status="upstream_error", http_status=400)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": ["text"]}, "input[0]"),
        ({"input": "Q", "documents": [{"text": "x", "relevance_score": 2}]}, "documents[0].relevance_score"),
        ({"input": "Q", "grounding": {"agnet": "a"}}, "grounding.agnet"),
        ({"input": "Q", "stream": "yes"}, "stream"),
    ],
)
def test_invalid_request_is_rejected_by_name(gateway: Gateway, body: dict[str, Any], param: str) -> None:
    gateway.upstream.script(json_reply({}))
    with gateway.call({"model": "m", **body}, path="/v1/responses") as call:
        assert call.json()["error"]["param"] == param
    assert call.status == 400
    assert gateway.upstream.exchanges == []


def test_sentence_is_sent_while_the_next_arrives(gateway: Gateway) -> None:
    made = events(response(message(f"{PLANS}{SUPPORT}")))
    chunks = [frame(event) for event in made]
    whole_first = next(i for i, event in enumerate(made) if event.get("delta", "").endswith("Support")) + 1
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    body = request_of(gateway.agent(grounding=CLOSED), DOCUMENTS)
    body = {**body, **body.pop("extra_body"), "stream": True}
    with gateway.call(body, path="/v1/responses") as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(whole_first)
        data = call.read_until(PLANS.strip().encode() + b'"')
        assert b'"grounding":{"claims"' in data
        assert b"Support answers" not in data.partition(b"best_source")[0]
        exchange.release(len(chunks) - whole_first)
        assert b"response.completed" in call.read_all()


def test_client_disconnect_ends_the_upstream_call(gateway: Gateway) -> None:
    chunks = [frame(event) for event in events(response(message(PLANS + SUPPORT)))]
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    body = request_of(gateway.agent(grounding=CLOSED), DOCUMENTS)
    with gateway.call({**body, **body.pop("extra_body"), "stream": True}, path="/v1/responses") as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(3)
        call.read_until(b"output_item.added")
        request_id = call.request_id
        call.abort()
        assert exchange.peer_closed.wait(5)
    left(gateway.trace(request_id), status="cancelled")
