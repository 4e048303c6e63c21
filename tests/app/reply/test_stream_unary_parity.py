"""Streamed or not, a reply is judged and delivered in the same way."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gateways.in_process_gateway import (
    FALSE,
    TRUE,
    UNKNOWN,
    bench,
    chunk,
    finish_of,
    frames,
    policy,
    sse,
    summary_of,
    text_of,
    whole,
)

pytestmark = pytest.mark.anyio

SENTENCES = st.sampled_from(
    [
        TRUE,
        FALSE,
        UNKNOWN,
        "Hello!",
        "Is that so?",
        "```\nx = 1.5\n```",
        "- A point",
        "Größe 🚆: 3.5 m",
        "年假有25天。",
        "[1]",
        "## Permanent staff",
        "Annual leave:",
        "Let's start with the annual leave.",
    ]
)
GAPS = st.sampled_from([" ", "\n", "\n\n", "  ", ""])
RULES = st.sampled_from(
    [
        None,
        {},
        {"contradiction_action": "block"},
        {"contradiction_action": "block", "abstention_response": "Ask HR."},
        {"unverifiable_action": "strip"},
        {"unverifiable_action": "strip", "contradiction_action": "block"},
        {"unverifiable_action": "block", "max_unverifiable_ratio": 0.3},
        {"action_on_violation": "block", "min_citations": 0, "score_eval_mode": "average", "min_grounding_score": 0.5},
        {"action_on_violation": "block", "require_source_grounding": True},
    ]
)


@st.composite
def replies(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A reply, and the same reply in pieces."""
    pairs = draw(st.lists(st.tuples(SENTENCES, GAPS), min_size=1, max_size=6))
    text = "".join(sentence + gap for sentence, gap in pairs)
    places = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=8))})
    return text, [text[a:b] for a, b in pairwise(places)]


def decisions(event: Any) -> list[tuple[str, str, str | None]]:
    return [(d.phase.value, d.action.value, d.reason_code) for d in event.decisions]


@given(replies(), RULES)
@settings(max_examples=1000)
async def test_final_mode_equals_the_unary_reply(reply: tuple[str, list[str]], rules: dict[str, Any] | None) -> None:
    text, pieces = reply
    policies = [] if rules is None else [policy(stream_mode="final", **rules)]
    streamed = await bench(sse(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop")), *policies)
    plain = await bench(whole(text), *policies)
    stream, body = await streamed.stream(), await plain.unary()
    choice = body["choices"][0]
    assert text_of(stream) == choice["message"]["content"]
    assert finish_of(stream) == [choice["finish_reason"]]
    assert decisions(streamed.event) == decisions(plain.event)
    for name in ("action", "verdict", "trust_score", "total_claims"):
        assert summary_of(stream)[name] == body["grounding"][name]


@given(replies(), RULES)
@settings(max_examples=300)
async def test_chunking_does_not_change_hold_mode(reply: tuple[str, list[str]], rules: dict[str, Any] | None) -> None:
    text, pieces = reply
    policies = [] if rules is None else [policy(**rules)]
    cut = await bench(sse(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop")), *policies)
    uncut = await bench(sse(chunk({"content": text}), chunk({}, "stop")), *policies)
    first, second = await cut.stream(), await uncut.stream()
    assert text_of(first) == text_of(second)
    assert finish_of(first) == finish_of(second)
    assert decisions(cut.event) == decisions(uncut.event)
    if finish_of(first) == ["stop"] and "strip" not in str(rules):
        assert text_of(first) == text


@given(replies(), RULES)
@settings(max_examples=200)
async def test_withheld_sentence_is_nowhere_in_the_stream(
    reply: tuple[str, list[str]], rules: dict[str, Any] | None
) -> None:
    if rules is None or not {"contradiction_action", "unverifiable_action"} & set(rules):
        return
    _, pieces = reply
    at = await bench(sse(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop")), policy(**rules))
    data = await at.stream_bytes()
    shown = text_of(frames(data))
    for sentence in (FALSE, UNKNOWN):
        if sentence not in shown:
            assert json.dumps(sentence)[1:-1].encode() not in data
