"""A reply under a grounding policy has a limit: the text up to it is judged, and the reply ends with ``length``."""

import json
from collections.abc import Callable

import pytest

from tests.support.apis import messages_api, responses_api
from tests.support.apis.scripted_answers import answer, chunk
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply

DOCUMENT = {"text": "The limit is 500."}
SENTENCE = "The limit is 500. "


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("mode", ["hold", "final", "live"])
def test_oversized_reply_ends_as_length(start_gateway: Callable[..., Gateway], stream: bool, mode: str) -> None:
    gateway = start_gateway(max_reply_mb=0.001)
    rules = {"stream_mode": mode, "min_grounding_score": 0.0, "min_citations": 0}
    agent = gateway.agent(grounding=rules)
    chunks = [*[chunk(0, {"content": SENTENCE})] * 200, chunk(0, {}, "stop"), b"data: [DONE]\n\n"]
    gateway.upstream.script(Reply(chunks=chunks, pause_s=0) if stream else answer(SENTENCE * 200, stream=False))
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "What is the limit?"}],
        "documents": [DOCUMENT],
        "stream": stream,
        "grounding": {"agent": agent},
    }
    with gateway.call(body) as call:
        if stream:
            reading = call.reading()
            text, (finish,) = reading.text(), reading.finishes()
            assert (reading.errors, reading.ends_with_done) == ([], True)
        else:
            choice = call.json()["choices"][0]
            text, finish = choice["message"]["content"], choice["finish_reason"]
    assert finish == "length"
    assert text.strip() == (SENTENCE * 200)[:1_000].strip()


def test_reply_without_a_policy_has_no_length_limit(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(max_reply_mb=0.001)
    gateway.upstream.script(answer(SENTENCE * 100, stream=False))
    with gateway.call(
        {"model": "m", "messages": [{"role": "user", "content": "Hi?"}], "documents": [DOCUMENT]}
    ) as call:
        choice = call.json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"].count("500")) == ("stop", 100)


@pytest.mark.parametrize("stream", [True, False])
def test_other_apis_end_oversized_replies_their_own_way(start_gateway: Callable[..., Gateway], stream: bool) -> None:
    gateway = start_gateway(max_reply_mb=0.001)
    agent = gateway.agent(grounding={"min_grounding_score": 0.0, "min_citations": 0})
    common = {"model": "m", "stream": stream, "documents": [DOCUMENT], "grounding": {"agent": agent}}
    cut = (SENTENCE * 200)[:1_000]

    whole = responses_api.response(responses_api.message(SENTENCE * 200))
    streamed = Reply(chunks=[responses_api.said(*[SENTENCE] * 200)])
    gateway.upstream.script(streamed if stream else json_reply(whole))
    with gateway.call({**common, "input": "What is the limit?"}, path="/v1/responses") as call:
        raw = call.read_all()
    last = responses_api.read(raw)[-1] if stream else {"type": "response.incomplete", "response": json.loads(raw)}
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert responses_api.output_text(last["response"]).strip() == cut.strip()

    message = messages_api.text(SENTENCE * 200)
    streamed = Reply(chunks=[messages_api.streamed(messages_api.text(*[SENTENCE] * 200))])
    gateway.upstream.script(streamed if stream else json_reply(messages_api.whole(message)))
    messages = [{"role": "user", "content": "What is the limit?"}]
    with gateway.call({**common, "max_tokens": 9, "messages": messages}, path="/v1/messages") as call:
        raw = call.read_all()
    if stream:
        events = messages_api.parsed(raw)
        assert messages_api.is_well_formed(events)
        (reason,) = [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"]
    else:
        reason = json.loads(raw)["stop_reason"]
        assert messages_api.text_of(json.loads(raw)).strip() == cut.strip()
    assert reason == "max_tokens"


@pytest.mark.parametrize("stream", [True, False])
def test_length_of_a_reply_is_counted_in_bytes(start_gateway: Callable[..., Gateway], stream: bool) -> None:
    gateway = start_gateway(max_reply_mb=0.001)
    agent = gateway.agent(grounding={"min_grounding_score": 0.0, "min_citations": 0})
    sentence = "Das Limit beträgt 500 €. "
    chunks = [*[chunk(0, {"content": sentence})] * 100, chunk(0, {}, "stop"), b"data: [DONE]\n\n"]
    gateway.upstream.script(Reply(chunks=chunks, pause_s=0) if stream else answer(sentence * 100, stream=False))
    body = {"model": "m", "messages": [{"role": "user", "content": "Das Limit?"}], "documents": [DOCUMENT]}
    with gateway.call({**body, "stream": stream, "grounding": {"agent": agent}}) as call:
        text = call.reading().text() if stream else call.json()["choices"][0]["message"]["content"]
    cut = (sentence * 100).encode()[:1_000].decode(errors="ignore")
    assert text.strip() == cut.strip()
