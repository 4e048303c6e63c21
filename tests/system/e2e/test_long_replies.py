"""A reply under a grounding policy has an end: what came until then is judged, and it ends with ``length``."""

from collections.abc import Callable

import pytest

from tests.support.live_gateway import Gateway
from tests.support.mock_upstream import Reply
from tests.support.scripted_answers import answer, chunk

DOCUMENT = {"text": "The limit is 500."}
SENTENCE = "The limit is 500. "


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("mode", ["hold", "final", "live"])
def test_a_reply_that_is_too_long_ends_as_length(
    start_gateway: Callable[..., Gateway], stream: bool, mode: str
) -> None:
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


def test_a_reply_without_a_policy_has_no_such_end(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(max_reply_mb=0.001)
    gateway.upstream.script(answer(SENTENCE * 100, stream=False))
    with gateway.call(
        {"model": "m", "messages": [{"role": "user", "content": "Hi?"}], "documents": [DOCUMENT]}
    ) as call:
        choice = call.json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"].count("500")) == ("stop", 100)
