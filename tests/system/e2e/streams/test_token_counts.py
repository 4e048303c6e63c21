"""Upstreams that report tokens in every chunk, and reused connections to upstreams that are gone."""

import json
from typing import Any

import pytest
from openai import OpenAI

from tests.support.apis.scripted_answers import answer, chunk, event
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply

PLANS = "The basic plan costs 9 euros a month."
CLOSED = {"min_citations": 0, "min_grounding_score": 0.0}
ENDING: dict[str, list[dict[str, Any]]] = {
    "beside the finish": [],
    "alone": [{"choices": []}],
    "beside an empty choice": [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    ],
}


def counted(raw: bytes, said: int) -> bytes:
    body = json.loads(raw.removeprefix(b"data: "))
    return event({**body, "usage": {"prompt_tokens": 50, "completion_tokens": said, "total_tokens": 50 + said}})


@pytest.mark.parametrize("mode", ["hold", "live", "final", "no policy"])
@pytest.mark.parametrize("ending", ENDING)
def test_role_comes_first_and_the_last_count_is_final(gateway: Gateway, mode: str, ending: str) -> None:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += ({"content": f"{word} "} for word in PLANS.split())
    chunks = [counted(chunk(0, delta), said) for said, delta in enumerate(deltas)]
    chunks.append(counted(chunk(0, {}, "stop"), len(chunks)))
    head = json.loads(chunks[0].removeprefix(b"data: "))
    chunks += (counted(event({**head, **last}), len(chunks)) for last in ENDING[ending])
    gateway.upstream.script(Reply(chunks=[*chunks, b"data: [DONE]\n\n"], pause_s=0))
    agent = None if mode == "no policy" else gateway.agent(grounding={**CLOSED, "stream_mode": mode})
    with OpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client:
        stream = client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "What does it cost?"}],
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"documents": [{"text": PLANS}], "grounding": {"agent": agent}},
        )
        pieces = list(stream)
    assert pieces[0].choices[0].delta.role == "assistant"
    finish = next(n for n, piece in enumerate(pieces) if piece.choices and piece.choices[0].finish_reason)
    assert not any(choice.delta.content for piece in pieces[finish:] for choice in piece.choices)
    usages = [piece.usage for piece in pieces if piece.usage]
    assert usages[-1].completion_tokens == len(chunks) - 1
    assert "".join(choice.delta.content or "" for piece in pieces for choice in piece.choices).strip() == PLANS


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_dead_kept_connection_is_replaced_once(gateway: Gateway, stream: bool) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Q"}], "stream": stream}
    gateway.upstream.script(answer(PLANS, stream=False), Reply(accept=False), answer(PLANS, stream=stream))
    for asked in ({**body, "stream": False}, body):
        with gateway.call(asked) as call:
            call.read_all()
        assert call.status == 200
