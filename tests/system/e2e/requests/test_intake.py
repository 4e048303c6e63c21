"""Documents in every client's format, through a real server; plain completions with the official SDK."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest

from judges.types import Label
from tests.support.apis.api_cases import APIS, TEXT, ApiCase, read_objects
from tests.support.apis.scripted_answers import answer, event
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply

TRUE = "Permanent staff receive 25 days of annual leave."
FALSE = "Permanent staff receive 40 days of annual leave."
HELLO = {"role": "user", "content": "How much leave?"}
HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1790000000, "model": "test-model-1"}
USAGE = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}
BLOCK = {"contradiction_action": "block", "abstention_response": "Please ask HR.", "min_citations": 0}


def sent(gateway: Gateway) -> dict[str, Any]:
    return dict(json.loads(gateway.upstream.wait_exchange().body))


FORMS: dict[str, dict[str, Any]] = {
    "string": {"documents": [TRUE]},
    "vllm": {"documents": [{"title": "Leave", "text": TRUE}]},
    "cohere": {"documents": [{"id": "d", "data": {"title": "Leave", "snippet": TRUE}}]},
    "langchain": {"documents": [{"page_content": TRUE, "metadata": {"source": "hr.pdf"}, "type": "Document"}]},
    "llamaindex": {"documents": [{"node": {"id_": "n", "text": TRUE, "metadata": {}}, "score": 0.8}]},
    "haystack": {"documents": [{"id": "h", "content": TRUE, "meta": {"file_path": "hr.pdf"}, "score": 0.8}]},
    "chat template": {"chat_template_kwargs": {"documents": [{"title": "Leave", "text": TRUE}]}},
    "extra_body": {"extra_body": {"documents": [TRUE]}},
    "grounding source": {
        "messages": [
            {"role": "system", "content": [{"type": "grounding_source", "text": TRUE}]},
            {"role": "user", "content": [{"type": "query", "text": "How much leave?"}]},
        ]
    },
    "search result": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "search_result", "source": "hr", "title": "x", "content": [{"type": "text", "text": TRUE}]}
                ],
            }
        ]
    },
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_reply_is_checked_against_documents_of_any_format(gateway: Gateway, form: dict[str, Any], stream: bool) -> None:
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}
    agent = gateway.agent(grounding=BLOCK)
    gateway.upstream.script(answer(f"{TRUE} {FALSE}", stream=stream))
    body = {"model": "m", "messages": [HELLO], "stream": stream, **form}
    with gateway.call(body, headers={"x-groundlane-agent": agent}) as call:
        text = call.read_all().decode()
    assert call.header("x-groundlane-request-id")
    assert "Please ask HR." in text
    assert "40 days" not in text
    forwarded = sent(gateway)
    assert not {"documents", "grounding", "extra_body"} & forwarded.keys()
    (document,) = gateway.trace(call.request_id).documents
    assert document["text"] == TRUE


def test_tool_results_are_evidence_if_a_rule_says_so(gateway: Gateway) -> None:
    agent = gateway.agent(grounding={"evidence_from_tools": True})
    gateway.upstream.script(answer(TRUE, stream=False))
    calls = [{"id": "c", "type": "function", "function": {"name": "search_hr", "arguments": "{}"}}]
    messages = [
        HELLO,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": TRUE},
    ]
    with gateway.call({"model": "m", "messages": messages}, headers={"x-groundlane-agent": agent}) as call:
        assert call.json()["grounding"]["verdict"] == "supported"
    assert sent(gateway)["messages"] == messages


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="sk-client-key", base_url=gateway.base_url, max_retries=0) as made:
        yield made


def part(text: str, finish: str | None = None, index: int = 0) -> bytes:
    return event({**HEAD, "choices": [{"text": text, "index": index, "logprobs": None, "finish_reason": finish}]})


def test_plain_completion_is_governed(gateway: Gateway, client: openai.OpenAI) -> None:
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}
    agent = gateway.agent(grounding=BLOCK)
    choices = [
        {"text": text, "index": index, "logprobs": None, "finish_reason": "stop"}
        for index, text in enumerate((TRUE, FALSE))
    ]
    gateway.upstream.script(json_reply({**HEAD, "choices": choices, "usage": USAGE}))
    completion = client.completions.create(
        model="m", prompt=["How much?", "How many?"], suffix="!",
        extra_body={"documents": [TRUE], "grounding": {"agent": agent, "inject": "system"}},
    )  # fmt: skip
    assert [choice.text for choice in completion.choices] == [TRUE, "Please ask HR."]
    assert [choice.finish_reason for choice in completion.choices] == ["stop", "content_filter"]
    assert completion.usage is not None
    assert completion.usage.total_tokens == 70
    exchange = gateway.upstream.wait_exchange()
    assert exchange.path == "/v1/completions"
    forwarded = json.loads(exchange.body)
    assert forwarded["suffix"] == "!"
    assert all(TRUE in prompt for prompt in forwarded["prompt"])


def test_streamed_plain_completion_is_governed(gateway: Gateway, client: openai.OpenAI) -> None:
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}
    agent = gateway.agent(grounding=BLOCK)
    chunks = [part(f"{TRUE} "), part(FALSE), part("", "stop"), event({**HEAD, "choices": [], "usage": USAGE})]
    gateway.upstream.script(Reply(chunks=[*chunks, b"data: [DONE]\n\n"]))
    with client.completions.create(
        model="m", prompt="How much?", stream=True, stream_options={"include_usage": True},
        extra_body={"documents": [TRUE], "grounding": {"agent": agent}},
    ) as stream:  # fmt: skip
        received = list(stream)
    choices = [choice for chunk in received for choice in chunk.choices]
    assert "".join(choice.text for choice in choices) == f"{TRUE} Please ask HR."
    assert choices[-1].finish_reason == "content_filter"
    summary = next(
        chunk.model_extra["grounding"]
        for chunk in received
        if chunk.model_extra and "verdict" in chunk.model_extra.get("grounding", {})
    )
    assert summary["action"] == "block"
    assert received[-1].usage is not None


def test_ungoverned_plain_completion_is_untouched(gateway: Gateway) -> None:
    body, chunks = (
        b'{ "model":"m", "prompt":"Hi", "stream":true }',
        [part("Hello"), part(".", "stop"), b"data: [DONE]\n\n"],
    )
    gateway.upstream.script(Reply(chunks=chunks))
    with gateway.call(body, path="/v1/completions") as call:
        assert call.read_all() == b"".join(chunks)
    assert gateway.upstream.wait_exchange().body == body


def test_error_of_a_plain_completion_has_openai_format(gateway: Gateway, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="m", prompt="x", extra_body={"documents": [{"text": "x", "score": 37}]})
    assert caught.value.param == "documents[0].score"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", APIS, ids=lambda case: case.api)
def test_misspelt_field_of_a_document_is_reported(gateway: Gateway, case: ApiCase, stream: bool) -> None:
    """It would be ignored, along with the rule that needs it."""
    gateway.upstream.script(case.reply([(TEXT, "It costs 9 euros.")], stream=stream))
    documents = [
        {"text": "It costs 9 euros.", "age_days": 3, "chapter": "Prices", "metadata": {"age_day": 3}},
        {"text": "Other.", "age_day": 400, "colection": "kb", "ages": [1]},
    ]
    body = {**case.asked, "stream": stream, "documents": documents}
    with gateway.call(body, path=case.path) as call:
        objects = read_objects(call.read_all())
    summary = next(found for found in map(summary_in, objects) if found)
    assert summary["retrieval"]["warnings"] == [
        "documents[1]: unknown field 'age_day'; did you mean 'age_days'?",
        "documents[1]: unknown field 'colection'; did you mean 'collection'?",
    ]


def summary_in(body: Mapping[str, Any]) -> Any:
    """The ``grounding`` object with the documents, at its place in each API."""
    inner = body.get("response")
    found = body.get("grounding") or (inner.get("grounding") if isinstance(inner, dict) else None)
    return found if found and "retrieval" in found else None
