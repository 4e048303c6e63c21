"""The unsupported parts of a reply, from a judge that finds them, as clients and the log see them."""

from typing import Any

import pytest

from judges.types import Label, Probabilities, UnsupportedSpan
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

PLAIN = "The yearly fee is 30 euros."
RAW = "The *yearly* fee is **30 euros**."
REPLY = f"Nobody knows the plan. {RAW} Support is included."
DOCUMENT = "Support is included. The plan has a fee."


@pytest.fixture
def judged(gateway: Gateway) -> Gateway:
    start = PLAIN.index("30 euros")
    spans = (UnsupportedSpan(start, start + len("30 euros"), 0.91234567),)
    gateway.judge.pairs_known = {("", PLAIN): Probabilities(0.05, 0.95, 0.0, spans=spans)}
    gateway.judge.labels = {"Nobody knows": Label.UNVERIFIABLE}
    return gateway


def ask(gateway: Gateway, *, stream: bool, **rules: Any) -> tuple[str, dict[str, Any], str]:
    gateway.upstream.script(answer(REPLY, stream=stream))
    body = {
        "model": "test-model-1",
        "messages": [{"role": "user", "content": "What does it cost?"}],
        "stream": stream,
        "documents": [{"id": "plan", "text": DOCUMENT}],
        "grounding": {"agent": gateway.agent(grounding={"min_citations": 0, "stream_mode": "hold", **rules})},
    }
    with gateway.call(body) as call:
        if stream:
            reading = call.reading()
            return reading.text(), reading.grounding, call.request_id
        whole = call.json()
        return whole["choices"][0]["message"]["content"], whole["grounding"], call.request_id


def spans_of(found: dict[str, Any]) -> list[tuple[int, int, float]]:
    return [(s["start"], s["end"], s["score"]) for claim in found["claims"] for s in claim.get("spans", ())]


@pytest.mark.parametrize("stream", [True, False])
def test_unsupported_spans_are_positions_in_the_delivered_text(judged: Gateway, stream: bool) -> None:
    text, found, request_id = ask(judged, stream=stream)
    assert text == REPLY
    start = REPLY.index("30 euros")
    assert spans_of(found) == [(start, start + len("30 euros"), 0.9123)]
    unsupported = [(c["extra"] or {}).get("unsupported") for c in judged.trace(request_id).claims]
    within = RAW.index("30 euros")
    assert [spans for spans in unsupported if spans] == [[[within, within + len("30 euros"), 0.9123]]]


@pytest.mark.parametrize("stream", [True, False])
def test_withheld_sentence_has_no_unsupported_spans(judged: Gateway, stream: bool) -> None:
    text, found, _ = ask(judged, stream=stream, unverifiable_action="strip")
    assert "30 euros" not in text
    assert spans_of(found) == []
    assert [claim["claim"] for claim in found["claims"]] == [None, None, "Support is included."]


def test_text_check_returns_unsupported_spans(judged: Gateway) -> None:
    body = {"text": REPLY, "sources": [DOCUMENT]}
    with judged.call(body, path="/v1/grounding/check") as call:
        found = call.json()
    start = REPLY.index("30 euros")
    assert spans_of(found) == [(start, start + len("30 euros"), 0.9123)]
