"""Streamed or not, and regardless of the cuts, a response is judged and delivered in the same way."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.apis.responses_api import (
    CALL,
    REASONING,
    consistent,
    events,
    message,
    output_text,
    read,
    response,
    shown,
    sse,
    stream,
    stream_bytes,
    unary,
)
from tests.support.gateways.in_process_gateway import FALSE, TRUE, UNKNOWN, bench, policy

pytestmark = pytest.mark.anyio

SENTENCES = st.sampled_from(
    [TRUE, FALSE, UNKNOWN, "Hello!", "Is that so?", "- A point", "Größe 🚆: 3.5 m", "年假有25天。", "[1]"]
)
GAPS = st.sampled_from([" ", "\n", "\n\n", "  ", ""])
RULES = st.sampled_from(
    [
        None,
        {},
        {"contradiction_action": "block", "abstention_response": "Ask HR."},
        {"unverifiable_action": "strip"},
        {"unverifiable_action": "strip", "contradiction_action": "block"},
        {"unverifiable_action": "block", "max_unverifiable_ratio": 0.3},
        {"action_on_violation": "block", "require_source_grounding": True},
    ]
)
COMPARED = ("action", "verdict", "trust_score", "total_claims", "claims")


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Some text, and the same text in pieces."""
    pairs = draw(st.lists(st.tuples(SENTENCES, GAPS), min_size=1, max_size=5))
    text = "".join(sentence + gap for sentence, gap in pairs)
    places = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=6))})
    return text, [text[a:b] for a, b in pairwise(places)]


@st.composite
def replies(draw: st.DrawFn) -> tuple[dict[str, Any], dict[tuple[int, int], list[str]]]:
    """A response with messages and other items, and the pieces in which its text arrives."""
    items: list[dict[str, Any]] = []
    pieces = {}
    for kind in draw(st.lists(st.sampled_from(["message", "message", "call", "reasoning"]), min_size=1, max_size=3)):
        number = len(items)
        if kind == "message":
            parts = draw(st.lists(texts(), min_size=1, max_size=2))
            items.append(message(*(text for text, _ in parts), item_id=f"msg_{number}"))
            pieces.update({(number, place): cut for place, (_, cut) in enumerate(parts)})
        else:
            item = CALL if kind == "call" else REASONING
            items.append({**item, "id": f"{item['id']}_{number}"})
    return response(*items), pieces


def decided(event: Any) -> list[tuple[str, str, str | None]]:
    return [(d.phase.value, d.action.value, d.reason_code) for d in event.decisions]


@given(replies(), RULES)
@settings(max_examples=200)
async def test_final_mode_equals_the_unary_reply(
    reply: tuple[dict[str, Any], dict[tuple[int, int], list[str]]], rules: dict[str, Any] | None
) -> None:
    body, pieces = reply
    policies = [] if rules is None else [policy(stream_mode="final", **rules)]
    streamed, plain = await bench(sse(events(body, pieces=pieces)), *policies), await bench(body, *policies)
    found, whole = await stream(streamed), await unary(plain)
    consistent(found)
    last = found[-1]["response"]
    assert shown(found) == output_text(last) == output_text(whole)
    assert (last["status"], last["incomplete_details"]) == (whole["status"], whole["incomplete_details"])
    texts = [[p["text"] for p in item.get("content", ())] for item in last["output"]]
    assert texts == [[p["text"] for p in item.get("content", ())] for item in whole["output"]]
    assert decided(streamed.event) == decided(plain.event)
    for name in COMPARED:
        assert last["grounding"][name] == whole["grounding"][name]


@given(replies(), RULES, st.sampled_from(["hold", "live", "final"]), st.data())
@settings(max_examples=200)
async def test_every_stream_is_consistent_and_withholds_the_same(
    reply: tuple[dict[str, Any], dict[tuple[int, int], list[str]]],
    rules: dict[str, Any] | None,
    mode: str,
    data: st.DataObject,
) -> None:
    body, pieces = reply
    policies = [] if rules is None else [policy(stream_mode=mode, **rules)]
    raw = await stream_bytes(await bench(sse(events(body, pieces=pieces)), *policies))
    found = read(raw)
    consistent(found)
    visible = shown(found)
    if rules in (None, {}):
        assert visible == output_text(body)
    for sentence in (FALSE, UNKNOWN):
        if sentence not in visible:
            assert json.dumps(sentence)[1:-1].encode() not in raw


@given(replies(), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
@settings(max_examples=60)
async def test_untouched_bytes_are_unchanged(
    reply: tuple[dict[str, Any], dict[tuple[int, int], list[str]]], end: str, named: bool
) -> None:
    body, pieces = reply
    data = sse(events(body, pieces=pieces), end=end, named=named)
    assert await stream_bytes(await bench(data), documents=None) == data
