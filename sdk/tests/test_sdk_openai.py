"""Tests verdicts on the replies of ``openai`` clients against a live gateway."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from groundlane import AsyncGroundlane, Claim, Grounding, Groundlane, PolicyViolationError
from groundlane.openai import GroundedChatCompletion, GroundedResponse, grounding_of, wrap
from openai import AsyncOpenAI, BadRequestError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from judges.types import Label
from tests.support.apis.scripted_answers import answer, streamed
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply
from tests.system.e2e.sdks.test_openai_sdk import CLOSED, DOCUMENTS, LIE, PLANS, SUPPORT
from tests.system.e2e.sdks.test_responses_sdk import reply_of

KEY = "sk-client-key-for-tests"
REQUESTS: dict[str, dict[str, Any]] = {
    "chat": {"model": "test-model-1", "messages": [{"role": "user", "content": "What does it cost?"}]},
    "responses": {"model": "test-model-1", "input": "What does it cost?"},
}


@dataclass(slots=True)
class Seen:
    """The parts of a reply that an application sees, for every way to request it."""

    text: str
    grounding: Grounding | None
    claims: tuple[Claim, ...]
    per_part: list[tuple[str, list[str]]]
    """Each piece of text, with the verdicts that arrived with it; only for streamed replies."""


def text_of(reply: Any) -> str:
    if isinstance(reply, GroundedChatCompletion):
        return reply.choices[0].message.content or ""
    assert isinstance(reply, GroundedResponse)
    return reply.output_text


def delta_of(item: Any) -> str:
    if isinstance(item, ChatCompletionChunk):
        return "".join(choice.delta.content or "" for choice in item.choices)
    return item.delta if item.type == "response.output_text.delta" else ""


def part_of(item: Any) -> tuple[str, list[str]] | None:
    found, delta = grounding_of(item), delta_of(item)
    return (delta, [claim.verdict for claim in found.claims] if found else []) if delta else None


def whole(reply: Any) -> Seen:
    return Seen(text_of(reply), reply.grounding, reply.grounding.claims if reply.grounding else (), [])


def read(items: list[Any], stream: Any) -> Seen:
    parts = [part for part in map(part_of, items) if part]
    return Seen("".join(text for text, _ in parts), stream.grounding, stream.claims, parts)


Ask = Callable[..., Seen]


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["chat", "responses"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def ask(gateway: Gateway, kind: str, api: str, stream: bool) -> Ask:
    """Ask a question with the given client, API and method."""

    def create(client: Any) -> Any:
        return client.chat.completions.create if api == "chat" else client.responses.create

    def by_sync(agent: str | None, given: dict[str, Any]) -> Seen:
        with OpenAI(api_key=KEY, base_url=gateway.base_url, max_retries=0) as own:
            reply = create(wrap(own, agent_name=agent))(**given)
            if not stream:
                return whole(reply)
            with reply:
                return read(list(reply), reply)

    async def by_async(agent: str | None, given: dict[str, Any]) -> Seen:
        async with AsyncOpenAI(api_key=KEY, base_url=gateway.base_url, max_retries=0) as own:
            reply = await create(wrap(own, agent_name=agent))(**given)
            if not stream:
                return whole(reply)
            async with reply:
                return read([item async for item in reply], reply)

    def ask(agent: str | None = None, **options: Any) -> Seen:
        given = {**REQUESTS[api], "documents": DOCUMENTS, **({"stream": True} if stream else {}), **options}
        return by_sync(agent, given) if kind == "sync" else asyncio.run(by_async(agent, given))

    return ask


def script(gateway: Gateway, api: str, stream: bool, text: str) -> None:
    gateway.upstream.script(answer(text, stream=stream) if api == "chat" else reply_of(text, stream=stream))


def test_reply_has_its_verdict(gateway: Gateway, ask: Ask, api: str, stream: bool) -> None:
    script(gateway, api, stream, PLANS + SUPPORT)
    seen = ask()
    assert seen.text == PLANS + SUPPORT
    assert seen.grounding is not None
    assert (seen.grounding.verdict, seen.grounding.action, seen.grounding.trust_score) == ("supported", "allow", 1.0)
    assert (seen.grounding.is_summary, seen.grounding.blocked) == (True, False)
    assert seen.grounding.summary == "2/2 claims supported"
    assert [claim.verdict for claim in seen.claims] == ["supported", "supported"]
    assert seen.claims[0].best_source is not None
    assert (seen.claims[0].best_source.document_id, seen.claims[0].best_source.source) == ("plans", "plans.md")
    assert [kept.id for kept in seen.grounding.retrieval.kept] == ["plans", "support"]
    if stream:
        assert [(text.strip(), verdicts) for text, verdicts in seen.per_part] == [
            (PLANS.strip(), ["supported"]),
            (SUPPORT.strip(), ["supported"]),
        ]


def test_blocked_reply_is_marked_as_blocked(gateway: Gateway, ask: Ask, api: str, stream: bool) -> None:
    script(gateway, api, stream, PLANS + LIE)
    gateway.judge.labels = {LIE[:15]: Label.CONTRADICTED}
    seen = ask(gateway.agent(grounding={**CLOSED, "abstention_response": "I cannot say."}))
    assert LIE not in seen.text
    assert seen.text.endswith("I cannot say.")
    assert seen.grounding is not None
    assert (seen.grounding.blocked, seen.grounding.verdict) == (True, "has_contradictions")
    (decision,) = [made for made in seen.grounding.decisions if made.blocks]
    assert decision.reason_code == "GROUNDING_CONTRADICTION"
    assert [(claim.verdict, claim.withheld) for claim in seen.grounding.claims] == [
        ("supported", not stream),  # a whole reply is replaced as a whole
        ("contradicted", True),
    ]


def test_refused_document_is_a_violation(gateway: Gateway, ask: Ask, api: str, stream: bool) -> None:
    script(gateway, api, stream, PLANS)
    stale = [{**DOCUMENTS[0], "age_days": 400}]
    with pytest.raises(PolicyViolationError, match=r"^Source age \(400 days\) exceeds max \(90 days\)$") as raised:
        ask(gateway.agent(retrieval={}), documents=stale)
    assert (raised.value.code, raised.value.param) == ("RETRIEVAL_STALE_SOURCE", "documents[0]")
    assert [decision.action for decision in raised.value.decisions] == ["block"]
    assert isinstance(raised.value.__cause__, BadRequestError)
    assert gateway.upstream.exchanges == []


def test_reply_blocked_as_an_error_is_a_violation(gateway: Gateway, ask: Ask, api: str, stream: bool) -> None:
    script(gateway, api, stream, LIE)
    gateway.judge.labels = {LIE[:15]: Label.CONTRADICTED}
    agent = gateway.agent(grounding={**CLOSED, "on_block": "error"})
    with pytest.raises(PolicyViolationError) as raised:
        ask(agent)
    assert raised.value.code == "GROUNDING_CONTRADICTION"
    assert "block" in [decision.action for decision in raised.value.decisions]


def test_other_errors_are_openai_errors(gateway: Gateway, ask: Ask) -> None:
    gateway.upstream.script(json_reply({"error": {"message": "no such thing", "type": "t", "code": "c"}}, status=400))
    with pytest.raises(BadRequestError, match="no such thing"):
        ask()


def test_findings_not_requested_are_absent(gateway: Gateway, ask: Ask, api: str, stream: bool) -> None:
    script(gateway, api, stream, PLANS)
    seen = ask(grounding={"include": []})
    assert (seen.text.strip(), seen.grounding, seen.claims) == (PLANS.strip(), None, ())


def test_plain_request_is_unchanged(gateway: Gateway, ask: Ask, api: str, stream: bool) -> None:
    script(gateway, api, stream, PLANS)
    seen = ask(documents=None)
    assert (seen.text, seen.grounding) == (PLANS, None)
    sent = gateway.upstream.wait_exchange().json
    assert sent == {**REQUESTS[api], **({"stream": True} if stream else {})}


def test_request_carries_agent_and_documents(gateway: Gateway, ask: Ask, api: str, stream: bool) -> None:
    script(gateway, api, stream, PLANS)
    seen = ask("support", grounding={"query": "price"}, extra_body={"grounding": {"inject": "system"}, "seed": 7})
    assert seen.grounding is not None
    assert seen.grounding.request_id is not None
    assert gateway.trace(seen.grounding.request_id).request["agent"] == "support"
    sent = gateway.upstream.wait_exchange().json
    assert sent["seed"] == 7
    assert DOCUMENTS[0]["text"] in json.dumps(sent)


def test_requests_in_a_run_belong_to_it(gateway: Gateway, api: str) -> None:
    script(gateway, api, False, PLANS)
    with (
        Groundlane(gateway.base_url) as client,
        OpenAI(api_key=KEY, base_url=gateway.base_url) as own,
        client.run("multi-step") as run,
    ):
        grounded = wrap(own, agent_name="overridden")
        create: Any = grounded.chat.completions.create if api == "chat" else grounded.responses.create
        reply = create(**REQUESTS[api], documents=DOCUMENTS)
        record = client.get_run(run.run_id)
    assert record.requests == (reply.grounding.request_id,)
    assert record.trust_score == 1.0
    assert {document.id for document in record.documents} == {"plans", "support"}


def test_requests_in_an_async_run_belong_to_it(gateway: Gateway) -> None:
    script(gateway, "chat", False, PLANS)

    async def main() -> tuple[Any, Any]:
        async with (
            AsyncGroundlane(gateway.base_url) as client,
            AsyncOpenAI(api_key=KEY, base_url=gateway.base_url) as own,
            client.run("multi-step") as run,
        ):
            reply = await wrap(own).chat.completions.create(**REQUESTS["chat"], documents=DOCUMENTS)
            return reply, await client.get_run(run.run_id)

    reply, record = asyncio.run(main())
    assert record.requests == (reply.grounding.request_id,)


def test_closing_a_stream_early_closes_the_upstream_stream(gateway: Gateway) -> None:
    chunks = streamed(PLANS + SUPPORT * 20)
    gateway.upstream.script(Reply(chunks=chunks, gated=True, pause_s=0))
    with OpenAI(api_key=KEY, base_url=gateway.base_url) as own:
        stream = wrap(own).chat.completions.create(**REQUESTS["chat"], documents=DOCUMENTS, stream=True)
        gateway.upstream.wait_exchange().release(len(PLANS.split()) + 4)
        with stream:
            for item in stream:
                if delta_of(item):
                    break
    assert stream.grounding is None
    assert [claim.verdict for claim in stream.claims] == ["supported"]
    assert gateway.upstream.wait_exchange().peer_closed.wait(20)


def test_reply_objects_are_openai_classes(gateway: Gateway) -> None:
    with OpenAI(api_key=KEY, base_url=gateway.base_url) as own:
        grounded = wrap(own)
        script(gateway, "chat", False, PLANS)
        completion = grounded.chat.completions.create(**REQUESTS["chat"], documents=DOCUMENTS)
        script(gateway, "responses", False, PLANS)
        response = grounded.responses.create(**REQUESTS["responses"], documents=DOCUMENTS)
    assert isinstance(completion, ChatCompletion)
    assert isinstance(response, Response)
    assert completion.usage is not None
    assert completion.model_dump()["grounding"]["verdict"] == "supported"
    assert ChatCompletion.model_validate(completion.model_dump()).choices[0].message.content == PLANS


@pytest.mark.parametrize("own", [OpenAI(api_key=KEY), AsyncOpenAI(api_key=KEY)], ids=["sync", "async"])
def test_other_attributes_are_those_of_the_client(own: Any) -> None:
    grounded: Any = wrap(own, agent_name="support")
    assert grounded.openai is own
    assert grounded.embeddings is own.embeddings
    assert grounded.chat.completions.parse == own.chat.completions.parse
    assert grounded.chat.completions.with_raw_response is own.chat.completions.with_raw_response
    other = grounded.with_options(timeout=3)
    assert type(other) is type(grounded)
    assert other.openai.timeout == 3
    assert KEY not in repr(grounded)
    with pytest.raises(AttributeError):
        _ = grounded.no_such_thing
