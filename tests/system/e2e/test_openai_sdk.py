"""What users of the official OpenAI SDK see, synchronous and asynchronous, streamed and not."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai import APIError, AsyncOpenAI, BadRequestError, OpenAI

from judges.types import Label
from tests.support.live_gateway import Gateway, Trace
from tests.support.mock_upstream import Reply, json_reply
from tests.support.reply_reader import read_stream
from tests.support.scripted_answers import USAGE, answer, chunk, event, streamed, whole

PLANS = "The basic plan costs 9 euros a month. "
SUPPORT = "Support answers within two days."
LIE = "The basic plan includes a free boat."

DOCUMENTS: list[dict[str, Any]] = [
    {
        "id": "plans",
        "text": "The basic plan costs 9 euros a month.",
        "source": "plans.md",
        "collection": "kb",
        "relevance_score": 0.92,
        "age_days": 14,
        "title": "Plans",
        "url": "https://docs.test/plans",
    },
    {
        "id": "support",
        "text": "Support answers within two days.",
        "source": "support.md",
        "collection": "kb",
        "relevance_score": 0.81,
        "age_days": 3,
    },
]
CLOSED = {"min_citations": 0, "min_grounding_score": 0.0, "contradiction_action": "block"}
"""Nothing but a contradiction blocks, so that it alone gives the reason."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a client got, streamed or not, in one form."""

    text: str = ""
    finish: str | None = None
    grounding: dict[str, Any] | None = None
    annotations: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, int] | None = None
    request_id: str = ""
    per_sentence: list[dict[str, Any]] = field(default_factory=list)
    """The ``grounding`` objects that came before the summary."""


Ask = Callable[..., Seen]


def request_of(agent: str | None, documents: list[dict[str, Any]] | None, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": "test-model-1",
        "messages": [{"role": "user", "content": "What does it cost?"}],
        **options.pop("fields", {}),
    }
    extra: dict[str, Any] = {}
    if documents is not None:
        extra["documents"] = documents
    grounding = {**({"agent": agent} if agent else {}), **options}
    if grounding:
        extra["grounding"] = grounding
    return {**body, "extra_body": extra}


def plain(value: Any) -> Any:
    """SDK models as plain values."""
    return value.model_dump() if hasattr(value, "model_dump") else value


def seen_whole(completion: Any, headers: Any) -> Seen:
    choice = completion.choices[0]
    return Seen(
        text=choice.message.content or "",
        finish=choice.finish_reason,
        grounding=(completion.model_extra or {}).get("grounding"),
        annotations=[plain(entry) for entry in choice.message.annotations or ()],
        usage=counts(completion.usage),
        request_id=headers["x-groundlane-request-id"],
    )


class Gatherer:
    """Puts the chunks of a stream together, as an application would."""

    def __init__(self, headers: Any) -> None:
        self.seen = Seen(request_id=headers["x-groundlane-request-id"])

    def take(self, piece: Any) -> None:
        seen = self.seen
        if piece.usage is not None:
            seen.usage = counts(piece.usage)
        grounding = (piece.model_extra or {}).get("grounding")
        if grounding is not None:
            if "verdict" in grounding:
                seen.grounding = grounding
            else:
                seen.per_sentence.append(grounding)
        for choice in piece.choices:
            if choice.index:
                continue
            seen.text += choice.delta.content or ""
            seen.finish = choice.finish_reason or seen.finish
            seen.annotations += [plain(e) for e in (choice.delta.model_extra or {}).get("annotations", ())]


def counts(usage: Any) -> dict[str, int] | None:
    if usage is None:
        return None
    return {name: getattr(usage, name) for name in USAGE}


def ask_sync(gateway: Gateway, stream: bool, body: dict[str, Any]) -> Seen:
    with OpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client:
        raw_api = client.chat.completions.with_raw_response
        if not stream:
            raw = raw_api.create(**body)
            return seen_whole(raw.parse(), raw.headers)
        with client.chat.completions.with_streaming_response.create(**body, stream=True) as response:
            gatherer = Gatherer(response.headers)
            for piece in response.parse():
                gatherer.take(piece)
        return gatherer.seen


def ask_async(gateway: Gateway, stream: bool, body: dict[str, Any]) -> Seen:
    async def ask() -> Seen:
        async with AsyncOpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client:
            if not stream:
                raw = await client.chat.completions.with_raw_response.create(**body)
                return seen_whole(raw.parse(), raw.headers)
            async with client.chat.completions.with_streaming_response.create(**body, stream=True) as response:
                gatherer = Gatherer(response.headers)
                async for piece in await response.parse():
                    gatherer.take(piece)
            return gatherer.seen

    return asyncio.run(ask())


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest) -> Callable[[Gateway, bool, dict[str, Any]], Seen]:
    return ask_sync if request.param == "sync" else ask_async


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def ask(gateway: Gateway, client: Callable[[Gateway, bool, dict[str, Any]], Seen], stream: bool) -> Ask:
    """Asks with documents, for an agent, by the SDK and in the way that the parameters say."""

    def ask(agent: str | None = None, documents: list[dict[str, Any]] | None = None, **options: Any) -> Seen:
        return client(gateway, stream, request_of(agent, documents, **options))

    return ask


def citation(annotation: dict[str, Any]) -> dict[str, Any]:
    inner = annotation[annotation["type"]]
    assert isinstance(inner, dict)
    return inner


def left(trace: Trace, **expected: Any) -> None:
    """The request left exactly these values in its row."""
    assert {name: trace.request[name] for name in expected} == expected


# The five scenarios


def test_a_supported_answer_comes_unchanged_with_its_verdict(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS + SUPPORT, stream=stream, usage=True))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    seen = ask(agent, DOCUMENTS, fields={"stream_options": {"include_usage": True}} if stream else {})
    assert seen.text == PLANS + SUPPORT
    assert (seen.finish, seen.usage) == ("stop", USAGE)
    assert seen.grounding is not None
    assert seen.grounding["verdict"] == "supported"
    assert seen.grounding["action"] == "allow"
    assert (seen.grounding["trust_score"], seen.grounding["is_trusted"]) == (1.0, True)
    assert (seen.grounding["total_claims"], seen.grounding["supported_count"]) == (2, 2)
    assert seen.grounding["summary"] == "2/2 claims supported"
    assert [kept["id"] for kept in seen.grounding["retrieval"]["kept"]] == ["plans", "support"]
    assert seen.grounding["request_id"] == seen.request_id

    trace = gateway.trace(seen.request_id)
    left(
        trace,
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
    assert trace.claims[0]["start"] == 0
    assert [document["document_id"] for document in trace.documents] == ["plans", "support"]


def test_annotations_point_at_the_sentence_and_name_the_document(gateway: Gateway, ask: Ask, stream: bool) -> None:
    """A document with a URL makes a url_citation, any other a file_citation; offsets count code points."""
    first = "Größe 🚆 ist [1] gut. "
    second = "Antwort kommt [2] bald."
    gateway.upstream.script(answer(first + second, stream=stream))
    agent = gateway.agent(grounding=CLOSED)
    seen = ask(agent, DOCUMENTS)
    assert seen.text == first + second
    by_type = {annotation["type"]: citation(annotation) for annotation in seen.annotations}
    of_urls = [citation(a) for a in seen.annotations if a["type"] == "url_citation"]
    of_files = [citation(a) for a in seen.annotations if a["type"] == "file_citation"]
    assert set(by_type) == {"url_citation", "file_citation"}
    assert {entry["url"] for entry in of_urls} == {"https://docs.test/plans"}
    assert {entry["title"] for entry in of_urls} == {"Plans"}
    assert {entry["filename"] for entry in of_files} == {"support.md"}
    assert first.strip() in {seen.text[entry["start_index"] : entry["end_index"]] for entry in of_urls}
    assert second in {seen.text[entry["start_index"] : entry["end_index"]] for entry in of_files}


def test_a_contradicted_sentence_never_reaches_the_client(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=stream, usage=True))
    agent = gateway.agent(retrieval={}, grounding={**CLOSED, "abstention_response": "Please ask our staff."})
    seen = ask(agent, DOCUMENTS, fields={"stream_options": {"include_usage": True}} if stream else {})
    assert "boat" not in seen.text
    assert "includes" not in seen.text
    assert seen.text.endswith("Please ask our staff.")
    assert seen.finish == "content_filter"
    assert seen.usage is not None
    assert seen.usage["total_tokens"] > 0
    assert seen.grounding is not None
    assert (seen.grounding["action"], seen.grounding["verdict"]) == ("block", "has_contradictions")
    assert "boat" not in json.dumps(seen.grounding["claims"])

    trace = gateway.trace(seen.request_id)
    left(trace, status="blocked", action="block", verdict="has_contradictions", finish_reason="content_filter")
    assert trace.phases("retrieval") == ["before_workflow"]
    phases = trace.phases("grounding")
    assert phases[:2] == ["before_workflow", "mid_execution"]
    blocking = [decision for decision in trace.decisions if decision["action"] == "block"]
    assert blocking[0]["reason_code"] == "GROUNDING_CONTRADICTION"
    assert (trace.claims[-1]["label"], trace.claims[-1]["delivered"]) == ("contradicted", False)


def test_a_block_in_mid_stream_ends_the_upstream_call_and_the_phases(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    chunks = streamed(PLANS + LIE + " " + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(chunks) - 5)
        reading = call.reading()
    assert exchange.peer_closed.wait(5)
    assert reading.finishes() == ["content_filter"]
    assert gateway.trace(call.request_id).phases("grounding") == ["before_workflow", "mid_execution"]


def test_a_blocked_stream_has_usage_though_the_upstream_had_no_time_to_report(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(Reply(chunks=streamed(LIE + " " + SUPPORT, usage=True)[:-4], gated=False))
    agent = gateway.agent(grounding=CLOSED)
    body = {**raw_body(agent), "stream": True, "stream_options": {"include_usage": True}}
    with gateway.call(body) as call:
        reading = call.reading()
    (usage,) = reading.usages
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 0
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]


def test_a_stale_document_is_refused_before_the_call(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    documents = [DOCUMENTS[0], {**DOCUMENTS[1], "age_days": 400}]
    with pytest.raises(BadRequestError) as caught:
        ask(agent, documents)
    error = caught.value
    assert (error.status_code, error.code, error.type) == (400, "RETRIEVAL_STALE_SOURCE", "retrieval_policy_violation")
    assert error.param == "documents[1]"
    body = error.body
    assert isinstance(body, dict)
    assert body["message"] == "Source age (400 days) exceeds max (90 days)"
    assert [violation["action"] for violation in body["violations"]] == ["block"]
    assert gateway.upstream.exchanges == []

    trace = gateway.trace(error.response.headers["x-groundlane-request-id"])
    left(trace, status="blocked", http_status=400, action="block", documents=2)
    assert trace.phases("retrieval") == ["before_workflow"]
    assert trace.claims == []


@pytest.mark.parametrize("where", ["system", "user"])
def test_a_dropped_document_is_not_in_the_prompt(gateway: Gateway, ask: Ask, stream: bool, where: str) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={"action_on_stale_source": "drop"}, grounding=CLOSED)
    documents = [DOCUMENTS[0], {**DOCUMENTS[1], "age_days": 400}]
    seen = ask(agent, documents, inject=where)
    prompt = gateway.upstream.wait_exchange().body.decode()
    assert DOCUMENTS[0]["text"] in prompt
    assert DOCUMENTS[1]["text"] not in prompt
    assert "[1]" in prompt
    assert set(gateway.upstream.wait_exchange().json) == {"model", "messages"} | ({"stream"} if stream else set())
    assert seen.text == PLANS
    assert seen.grounding is not None
    assert [kept["id"] for kept in seen.grounding["retrieval"]["kept"]] == ["plans"]
    assert [dropped["id"] for dropped in seen.grounding["retrieval"]["dropped"]] == ["support"]
    trace = gateway.trace(seen.request_id)
    assert [(document["document_id"], document["kept"]) for document in trace.documents] == [
        ("plans", True),
        ("support", False),
    ]
    assert [decision["action"] for decision in trace.decisions if decision["category"] == "retrieval"] == ["drop"]


def test_drop_becomes_block_where_the_caller_wrote_the_prompt(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={"action_on_stale_source": "drop"})
    with pytest.raises(BadRequestError) as caught:
        ask(agent, [{**DOCUMENTS[0], "age_days": 400}])
    assert caught.value.code == "RETRIEVAL_STALE_SOURCE"
    assert gateway.upstream.exchanges == []


def test_without_documents_the_bytes_are_the_upstreams(gateway: Gateway, stream: bool) -> None:
    reply = answer(PLANS + SUPPORT, stream=stream, usage=True)
    gateway.upstream.script(reply)
    body = {key: value for key, value in raw_body(None).items() if key not in {"documents", "grounding"}}
    with gateway.call({**body, "stream": stream}) as call:
        assert call.read_all() == b"".join(reply.chunks)
    trace = gateway.trace(call.request_id)
    left(trace, status="completed", documents=0, verdict="no_sources", prompt_tokens=50, completion_tokens=20)
    assert (trace.decisions, trace.claims, trace.documents) == ([], [], [])


def raw_body(agent: str | None, **grounding: Any) -> dict[str, Any]:
    """The same request without an SDK."""
    body = request_of(agent, DOCUMENTS, **grounding)
    extra = body.pop("extra_body")
    return {**body, **extra}


# What the client asks to see


def test_include_nothing_is_byte_clean_and_checked_all_the_same(gateway: Gateway, stream: bool) -> None:
    reply = answer(PLANS + SUPPORT, stream=stream)
    gateway.upstream.script(reply)
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call({**raw_body(agent, include=[]), "stream": stream}) as call:
        raw = call.read_all()
    assert b"grounding" not in raw
    assert b"annotations" not in raw
    if not stream:
        assert json.loads(raw) == known(whole(PLANS + SUPPORT))
    assert len(gateway.trace(call.request_id).claims) == 2

    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=stream))
    with gateway.call({**raw_body(agent, include=[]), "stream": stream}) as call:
        raw = call.read_all()
    assert b"boat" not in raw
    assert b"content_filter" in raw
    assert b"grounding" not in raw


@pytest.mark.parametrize("include", [["claims"], ["decisions"], ["documents"], ["claims", "documents"], None])
def test_include_shows_what_is_named(gateway: Gateway, ask: Ask, stream: bool, include: list[str] | None) -> None:
    gateway.upstream.script(answer(PLANS + SUPPORT, stream=stream))
    agent = gateway.agent(grounding=CLOSED)
    seen = ask(agent, DOCUMENTS, **({} if include is None else {"include": include}))
    assert seen.grounding is not None
    fields = {"claims": "claims", "decisions": "decisions", "documents": "retrieval"}
    shown = {name for name, where in fields.items() if where in seen.grounding}
    assert shown == (set(fields) if include is None else set(include))
    assert seen.grounding["verdict"] == "supported"
    assert bool([g for g in seen.per_sentence if g.get("claims")]) == (stream and "claims" in shown)


def test_sentence_chunks_carry_their_claims(gateway: Gateway) -> None:
    """In hold, the text of a sentence and its claims come on the same chunk, seen through the SDK's model_extra."""
    gateway.upstream.script(answer(PLANS + SUPPORT, stream=True))
    agent = gateway.agent(grounding=CLOSED)
    with OpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as sdk:
        pieces = list(sdk.chat.completions.create(**request_of(agent, DOCUMENTS), stream=True))
    found: list[str] = []
    since = ""
    for piece in pieces:
        since += (piece.choices[0].delta.content or "") if piece.choices else ""
        grounding = (piece.model_extra or {}).get("grounding")
        if grounding and "verdict" not in grounding:
            assert [claim["verdict"] for claim in grounding["claims"]] == ["supported"]
            found.append(since)
            since = ""
    assert [text.strip() for text in found] == [PLANS.strip(), SUPPORT]


# Modes


def test_live_chunks_pass_at_once_and_verdicts_follow(gateway: Gateway) -> None:
    chunks = streamed(PLANS + SUPPORT, usage=True)
    gateway.upstream.script(Reply(chunks=chunks))
    agent = gateway.agent(grounding={**CLOSED, "stream_mode": "live"})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        reading = call.reading()
    sent = [each for each in read_stream(b"".join(chunks)).chunks if not _finishes(each)]
    assert [each for each in reading.chunks if "grounding" not in each] == sent
    verdicts = [piece for piece in reading.chunks if piece.get("grounding") and "verdict" not in piece["grounding"]]
    assert [claim["verdict"] for piece in verdicts for claim in piece["grounding"]["claims"]] == ["supported"] * 2
    assert all(not choice["delta"].get("content") for piece in verdicts for choice in piece["choices"])
    assert reading.grounding["verdict"] == "supported"


def _finishes(chunk: dict[str, Any]) -> bool:
    return any(choice["finish_reason"] for choice in chunk["choices"])


def test_a_live_block_stops_the_stream_without_replacement(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    text = PLANS + LIE + " "
    chunks = streamed(text + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    agent = gateway.agent(grounding={**CLOSED, "stream_mode": "live"})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(streamed(text)) - 2 + 1)
        reading = call.reading()
    assert exchange.peer_closed.wait(5)
    assert (text + SUPPORT).startswith(reading.text())
    assert SUPPORT not in reading.text()
    assert reading.finishes() == ["content_filter"]
    assert (reading.done, reading.ends_with_done) == (1, True)
    assert reading.grounding["action"] == "block"
    left(gateway.trace(call.request_id), status="blocked", action="block")


def test_final_holds_everything_until_the_end(gateway: Gateway) -> None:
    chunks = streamed(PLANS + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    agent = gateway.agent(grounding={**CLOSED, "stream_mode": "final", "score_eval_mode": "average"})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(chunks) - 2)
        exchange.wait_written(len(chunks) - 2)
        assert b"basic plan" not in call.raw
        exchange.release(2)
        reading = call.reading()
    assert reading.text() == PLANS + SUPPORT
    assert reading.finishes() == ["stop"]


def test_a_final_block_shows_nothing_of_the_reply(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=True))
    agent = gateway.agent(grounding={**CLOSED, "stream_mode": "final", "abstention_response": "Ask our staff."})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        reading = call.reading()
    assert reading.text() == "Ask our staff."
    assert reading.finishes() == ["content_filter"]


def test_hold_delivers_a_sentence_before_the_next_has_come(gateway: Gateway) -> None:
    chunks = streamed(PLANS + SUPPORT)
    gateway.upstream.script(Reply(chunks=chunks, gated=True))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(len(streamed(PLANS)) - 2 + 1)  # up to the first word of the second sentence
        call.read_until(b"a month.")
        assert b"Support" not in call.raw
        exchange.release(len(chunks))
        assert call.reading().text() == PLANS + SUPPORT


# What policies can do to a reply


def test_strip_leaves_the_unverifiable_sentence_out(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    gateway.upstream.script(answer(PLANS + LIE + " " + SUPPORT, stream=stream))
    agent = gateway.agent(grounding={"min_citations": 0, "unverifiable_action": "strip"})
    seen = ask(agent, DOCUMENTS)
    assert seen.text == PLANS + SUPPORT
    assert seen.finish == "stop"
    for annotation in seen.annotations:
        entry = citation(annotation)
        assert seen.text[entry["start_index"] : entry["end_index"]] in {PLANS.strip(), SUPPORT}
    trace = gateway.trace(seen.request_id)
    assert [(claim["label"], claim["delivered"]) for claim in trace.claims] == [
        ("supported", True),
        ("unverifiable", False),
        ("supported", True),
    ]
    left(trace, status="completed")


def test_a_sentence_that_fails_is_asked_for_anew(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=stream), answer(SUPPORT, stream=stream))
    rules = {"min_citations": 0, "contradiction_action": "block", "max_regenerations": 1}
    seen = ask(gateway.agent(grounding=rules), DOCUMENTS)
    assert (seen.text, seen.finish) == (PLANS + SUPPORT, "stop")
    *_, stands, note = gateway.upstream.wait_exchange(1).json["messages"]
    assert (stands["role"], stands["content"], note["role"]) == ("assistant", PLANS.strip(), "user")
    assert LIE.strip() in note["content"]
    trace = gateway.trace(seen.request_id)
    assert trace.request["regenerations"] == 1
    assert [(claim["label"], claim["delivered"]) for claim in trace.claims] == [
        ("supported", True),
        ("contradicted", False),
        ("supported", True),
    ]
    left(trace, status="completed")


def test_flag_delivers_and_says_so(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=stream))
    agent = gateway.agent(grounding={"min_citations": 0})
    seen = ask(agent, DOCUMENTS)
    assert seen.text == PLANS + LIE
    assert seen.finish == "stop"
    assert seen.grounding is not None
    assert (seen.grounding["action"], seen.grounding["verdict"]) == ("warn", "has_contradictions")
    assert seen.grounding["trust_score"] == 0.5


def test_on_block_error_is_a_400_of_its_own_type(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=False))
    agent = gateway.agent(grounding={**CLOSED, "on_block": "error"})
    with pytest.raises(BadRequestError) as caught:
        ask_sync(gateway, False, request_of(agent, DOCUMENTS))
    assert (caught.value.type, caught.value.code) == ("grounding_policy_violation", "GROUNDING_CONTRADICTION")
    assert "boat" not in caught.value.response.text
    trace = gateway.trace(caught.value.response.headers["x-groundlane-request-id"])
    left(trace, status="blocked", http_status=400, action="block")


def test_on_block_error_in_a_stream_raises_in_the_sdk(gateway: Gateway) -> None:
    """The head is out by then, so it is an error event; no text of the sentence, and the row says blocked."""
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=True))
    agent = gateway.agent(grounding={**CLOSED, "on_block": "error"})
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        reading = call.reading()
    assert [error["type"] for error in reading.errors] == ["grounding_policy_violation"]
    assert b"boat" not in reading.raw
    assert (reading.done, reading.ends_with_done) == (1, True)
    left(gateway.trace(call.request_id), status="blocked")
    with pytest.raises(APIError):
        ask_sync(gateway, True, request_of(agent, DOCUMENTS))


def test_each_of_two_choices_is_judged_by_itself(gateway: Gateway, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + SUPPORT, PLANS + LIE, stream=stream))
    agent = gateway.agent(grounding={**CLOSED, "abstention_response": "Ask our staff."})
    with gateway.call({**raw_body(agent), "n": 2, "stream": stream}) as call:
        if stream:
            reading = call.reading()
            texts = [reading.text(index) for index in (0, 1)]
            finishes = [reading.finishes(index) for index in (0, 1)]
        else:
            choices = call.json()["choices"]
            texts = [choice["message"]["content"] for choice in choices]
            finishes = [[choice["finish_reason"]] for choice in choices]
    assert b"boat" not in call.raw
    assert texts[0] == PLANS + SUPPORT
    assert texts[1].endswith("Ask our staff.")
    assert finishes == [["stop"], ["content_filter"]]
    assert sorted({claim["choice"] for claim in gateway.trace(call.request_id).claims}) == [0, 1]


def test_a_reply_of_tool_calls_is_not_judged(gateway: Gateway, stream: bool) -> None:
    call_piece = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    if stream:
        delta = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call_piece}]}
        pieces = [chunk(0, delta), chunk(0, {}, "tool_calls"), b"data: [DONE]\n\n"]
        gateway.upstream.script(Reply(chunks=pieces))
    else:
        body = whole("", finish="tool_calls", message={"content": None, "tool_calls": [call_piece]})
        gateway.upstream.script(json_reply(body))
    agent = gateway.agent(grounding={"contradiction_action": "block", "action_on_violation": "block"})
    with gateway.call({**raw_body(agent), "stream": stream}) as call:
        if stream:
            reading = call.reading()
            assert reading.finishes() == ["tool_calls"]
            assert [piece["id"] for piece in reading.tool_calls()] == ["call_1"]
            verdict = reading.grounding["verdict"]
        else:
            answered = call.json()
            assert answered["choices"][0]["message"]["tool_calls"] == [call_piece]
            assert answered["choices"][0]["finish_reason"] == "tool_calls"
            verdict = answered["grounding"]["verdict"]
    assert verdict == "not_checked"
    assert gateway.judge.claims == []
    left(gateway.trace(call.request_id), status="completed", verdict="not_checked")


# Without a policy


def test_documents_without_policy_are_judged_and_annotated_never_blocked(
    gateway: Gateway, ask: Ask, stream: bool
) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(PLANS + LIE, stream=stream))
    seen = ask(None, DOCUMENTS)
    assert seen.text == PLANS + LIE
    assert seen.finish == "stop"
    assert seen.annotations
    assert seen.grounding is not None
    assert seen.grounding["verdict"] == "has_contradictions"
    assert gateway.trace(seen.request_id).decisions == []


def test_annotating_by_default_can_be_switched_off(start_gateway: Callable[..., Gateway], stream: bool) -> None:
    gateway = start_gateway(annotate_by_default=False)
    reply = answer(PLANS, stream=stream)
    gateway.upstream.script(reply)
    with gateway.call({**raw_body(None), "stream": stream}) as call:
        assert call.read_all() == b"".join(reply.chunks)
    assert gateway.judge.claims == []


def test_a_policy_without_documents_says_no_sources(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    seen = ask(agent)
    assert seen.text == PLANS
    assert seen.grounding is not None
    assert seen.grounding["verdict"] == "no_sources"
    assert gateway.judge.claims == []
    trace = gateway.trace(seen.request_id)
    assert trace.phases("retrieval") == []
    left(trace, status="completed", verdict="no_sources")


def test_required_documents_are_required(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={"require_documents": True, "action_on_chunk_violation": "block"})
    with pytest.raises(BadRequestError) as caught:
        ask(agent)
    assert caught.value.type == "retrieval_policy_violation"
    assert gateway.upstream.exchanges == []


# Headers, policies in force, many pieces


def test_verdict_headers_of_a_whole_reply(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    gateway.upstream.script(answer(PLANS + LIE, stream=False))
    agent = gateway.agent(grounding={"min_citations": 0})
    with gateway.call({**raw_body(agent), "stream": False}) as call:
        body = call.json()
    assert call.header("x-groundlane-request-id") == body["grounding"]["request_id"]
    assert call.header("x-groundlane-action") == body["grounding"]["action"]
    assert call.header("x-groundlane-verdict") == "has_unverifiable"
    assert float(call.header("x-groundlane-trust-score") or -1) == 0.5


def test_the_agent_may_come_by_header(gateway: Gateway) -> None:
    gateway.upstream.script(answer(PLANS, stream=False))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call(raw_body(None), headers={"x-groundlane-agent": agent}) as call:
        assert call.json()["grounding"]["decisions"]
    assert gateway.trace(call.request_id).request["agent"] == agent
    assert gateway.upstream.wait_exchange().header("x-groundlane-agent") is None


def test_what_the_upstream_says_beside_the_text_is_kept(gateway: Gateway) -> None:
    gateway.upstream.script(answer(PLANS, stream=False))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call(raw_body(agent)) as call:
        body = call.json()
    grounding = body.pop("grounding")
    annotations = body["choices"][0]["message"].pop("annotations")
    assert (grounding["verdict"], bool(annotations)) == ("supported", True)
    assert body == known(whole(PLANS))


def known(completion: dict[str, Any]) -> dict[str, Any]:
    """A completion without the field that OpenAI's API does not have, which no policy lets pass."""
    return {name: value for name, value in completion.items() if name != "x_vendor"}


def test_a_policy_change_is_in_force_within_a_second(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(policy_poll_s=0.5)
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=False))
    policy = gateway.policy("grounding", {"min_citations": 0}, scope={"agents": ["a"]})

    def finish() -> str:
        with gateway.call(raw_body("a")) as call:
            return str(call.json()["choices"][0]["finish_reason"])

    assert finish() == "stop"
    etag = gateway.admin.get(f"/policies/{policy['id']}").headers["etag"]
    changed = gateway.admin.patch(
        f"/policies/{policy['id']}",
        json={"rules": {**policy["rules"], "contradiction_action": "block"}},
        headers={"if-match": etag},
    )
    assert changed.status_code == 200, changed.text
    began = time.monotonic()
    while finish() != "content_filter":
        assert time.monotonic() - began < 1.0
    version = changed.json()["version"]
    assert version == policy["version"] + 1
    gateway.admin.delete(f"/policies/{policy['id']}", headers={"if-match": changed.headers["etag"]}).raise_for_status()
    began = time.monotonic()
    while finish() != "stop":
        assert time.monotonic() - began < 1.0


def test_scores_reported_by_the_caller_are_checked(gateway: Gateway) -> None:
    gateway.upstream.script(answer(PLANS, stream=False))
    rules = {"min_citations": 0, "score_source": "reported", "action_on_violation": "block"}
    agent = gateway.agent(grounding=rules)
    with gateway.call(raw_body(agent, reported={"grounding_scores": [0.9, 0.42]})) as call:
        body = call.json()
    assert body["choices"][0]["finish_reason"] == "content_filter"
    reasons = [decision["reason"] for decision in body["grounding"]["decisions"]]
    assert "Grounding score (0.42) below threshold (0.7)" in reasons


def test_an_event_of_unknown_shape_is_left_out_under_a_policy(gateway: Gateway) -> None:
    odd = event({"id": "x", "object": "vendor.note", "choices": [], "note": "hello"})
    chunks = [chunk(0, {"role": "assistant"}), odd, *streamed(PLANS)[1:]]
    gateway.upstream.script(Reply(chunks=chunks))
    agent = gateway.agent(grounding=CLOSED)
    with gateway.call({**raw_body(agent), "stream": True}) as call:
        reading = call.reading()
    assert b"hello" not in reading.raw
    assert all(each["choices"] or each.get("usage") for each in reading.chunks)
    assert reading.text() == PLANS


# The real judge


@pytest.mark.slow
def test_the_embedded_judge_tells_true_from_false(start_gateway: Callable[..., Gateway], stream: bool) -> None:
    gateway = start_gateway(real_judge=True, judge_timeout_ms=60_000)
    agent = gateway.agent(grounding={**CLOSED, "abstention_response": "Ask our staff."})
    gateway.upstream.script(answer(PLANS + SUPPORT, stream=stream))
    seen = ask_sync(gateway, stream, request_of(agent, DOCUMENTS))
    assert seen.text == PLANS + SUPPORT
    assert seen.grounding is not None
    assert seen.grounding["verdict"] == "supported"
    gateway.upstream.script(answer("The basic plan costs 19 euros a month.", stream=stream))
    seen = ask_sync(gateway, stream, request_of(agent, DOCUMENTS))
    assert (seen.text, seen.finish) == ("Ask our staff.", "content_filter")
