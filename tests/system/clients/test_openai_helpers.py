"""The official SDK beyond plain calls: structured output and its own retries."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, ContentFilterFinishReasonError, OpenAI
from pydantic import BaseModel

from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply
from tests.system.clients.scenario import CLOSED, DOCUMENTS, LIE, MODEL, PLANS, PROMPT, STALE, SUPPORT, Question


class Price(BaseModel):
    plan: str
    euros: float
    note: str


PRICE = Price(plan="basic", euros=9, note=f"{PLANS} {SUPPORT}")
WRONG = Price(plan="basic", euros=9, note=f"{PLANS} Support takes two months to answer.")
UPSTREAM_DOWN = {"error": {"message": "The server had an error.", "type": "server_error", "param": None, "code": None}}


@pytest.fixture
def client(gateway: Gateway) -> Iterator[OpenAI]:
    """A client with the SDK's own settings, including retries."""
    with OpenAI(api_key="sk-client", base_url=gateway.base_url) as client:
        yield client


def arguments(gateway: Gateway, agent: str, documents: Any = DOCUMENTS) -> dict[str, Any]:
    question = Question(base_url=gateway.base_url, stream=False, documents=documents, agent=agent)
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": MODEL, "messages": messages, "extra_body": question.extension}


@pytest.mark.parametrize("indent", [None, 2])
def test_structured_output_is_parsed_and_judged(gateway: Gateway, client: OpenAI, indent: int | None) -> None:
    text = PRICE.model_dump_json(indent=indent)
    gateway.upstream.script(answer(text, stream=False))
    completion = client.chat.completions.parse(
        **arguments(gateway, gateway.agent(grounding=CLOSED)), response_format=Price
    )
    assert completion.choices[0].message.parsed == PRICE
    assert completion.choices[0].message.content == text
    assert completion.model_extra is not None
    assert completion.model_extra["grounding"]["verdict"] == "supported"
    assert gateway.upstream.wait_exchange().json["response_format"]["json_schema"]["name"] == "Price"


@pytest.mark.parametrize("indent", [None, 2])
def test_streamed_structured_output_is_parsed_and_judged(gateway: Gateway, client: OpenAI, indent: int | None) -> None:
    text = PRICE.model_dump_json(indent=indent)
    gateway.upstream.script(answer(text, stream=True))
    chunks = []
    request = arguments(gateway, gateway.agent(grounding=CLOSED))
    with client.chat.completions.stream(**request, response_format=Price) as stream:
        chunks += [event.chunk for event in stream if event.type == "chunk"]
        message = stream.get_final_completion().choices[0].message
    assert (message.parsed, message.content) == (PRICE, text)
    summaries = [extra["grounding"] for chunk in chunks if (extra := chunk.model_extra) and "grounding" in extra]
    assert summaries[-1]["verdict"] == "supported"


def test_blocked_structured_output_raises_the_content_filter_error_of_the_sdk(gateway: Gateway, client: OpenAI) -> None:
    gateway.judge.labels = {"two months": Label.CONTRADICTED}
    gateway.upstream.script(answer(WRONG.model_dump_json(), stream=False))
    request = arguments(gateway, gateway.agent(grounding=CLOSED))
    with pytest.raises(ContentFilterFinishReasonError):
        client.chat.completions.parse(**request, response_format=Price)


def test_streamed_and_blocked_structured_output_raises_and_leaks_nothing(gateway: Gateway, client: OpenAI) -> None:
    """The rest is not JSON, and the SDK parses it before it looks at the finish reason; hence ValueError."""
    gateway.judge.labels = {"two months": Label.CONTRADICTED}
    gateway.upstream.script(answer(WRONG.model_dump_json(), stream=True))
    request = arguments(gateway, gateway.agent(grounding=CLOSED))
    seen: list[Any] = []
    with (
        client.chat.completions.stream(**request, response_format=Price) as stream,
        pytest.raises((ContentFilterFinishReasonError, ValueError)),
    ):
        seen.extend(stream)
    assert "two months" not in repr(seen)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_annotations_can_be_turned_off_for_clients_that_reject_them(gateway: Gateway, stream: bool) -> None:
    gateway.upstream.script(answer(f"{PLANS} {SUPPORT}", stream=stream))
    request = arguments(gateway, gateway.agent(grounding=CLOSED))
    extension = request.pop("extra_body")
    extension["grounding"]["include"] = ["claims", "decisions"]
    with gateway.call({**request, **extension, "stream": stream}) as call:
        raw = call.read_all()
    assert b'"annotations"' not in raw
    assert b'"verdict":"supported"' in raw


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_upstream_failure_is_retried(gateway: Gateway, client: OpenAI, stream: bool) -> None:
    down = json_reply(UPSTREAM_DOWN, status=500, headers={"retry-after": "0.01"})
    gateway.upstream.script(down, answer(PLANS, stream=stream))
    request = arguments(gateway, gateway.agent(grounding=CLOSED))
    answered: Any = client.chat.completions.create(**request, stream=stream)
    if stream:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in answered) == PLANS
    else:
        assert answered.choices[0].message.content == PLANS
    first, second = (gateway.upstream.wait_exchange(index) for index in (0, 1))
    assert json.loads(first.body) == json.loads(second.body)


def test_refused_document_is_not_retried(gateway: Gateway, client: OpenAI) -> None:
    gateway.upstream.script(answer(PLANS, stream=False))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(**arguments(gateway, agent, STALE))
    assert caught.value.code == "RETRIEVAL_STALE_SOURCE"
    assert gateway.upstream.exchanges == []
    assert len(gateway.rows(1, agent=agent)) == 1


def test_blocked_reply_is_not_retried(gateway: Gateway, client: OpenAI) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=False), Reply(status=500, headers={}, chunks=()))
    agent = gateway.agent(grounding={**CLOSED, "on_block": "error"})
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(**arguments(gateway, agent))
    assert caught.value.type == "grounding_policy_violation"
    assert len(gateway.upstream.exchanges) == 1
