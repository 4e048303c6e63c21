"""JSON replies: which parts are judged, and that no prose is inserted into them."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.support.apis.completions_api as completions
import tests.support.apis.messages_api as messages
import tests.support.apis.responses_api as responses
from judges.llm_types import LlmVerdict
from judges.testing import ScriptedLlm
from judges.types import Label
from tests.support.gateways.in_process_gateway import (
    FALSE,
    LINKED,
    TRUE,
    UNKNOWN,
    bench,
    chunk,
    finish_of,
    policy,
    said,
    sse,
    summary_of,
    text_of,
    whole,
)

pytestmark = pytest.mark.anyio

FORM = {"response_format": {"type": "json_object"}}
BLOCK: dict[str, Any] = {
    "contradiction_action": "block",
    "min_citations": 0,
    "max_unverifiable_ratio": 1.0,
    "abstention_response": "Ask HR.",
}
GOOD = json.dumps({"leave": {"answer": TRUE, "days": 25, "status": "in force", "ids": [1, 7]}})
BAD = json.dumps({"answers": [TRUE, FALSE], "days": 40})


async def test_values_are_judged_and_the_reply_is_unchanged() -> None:
    at = await bench(whole(GOOD), policy(**BLOCK))
    body = await at.unary(**FORM, documents=LINKED)
    message = body["choices"][0]["message"]
    assert message["content"] == GOOD
    claims = {claim["claim"]: claim for claim in body["grounding"]["claims"]}
    answer = f"leave answer: {TRUE}"
    assert list(claims) == [answer, "leave days: 25", "leave status: in force", "leave ids: 1", "leave ids: 7"]
    assert claims[answer]["verdict"] == "supported"
    place = claims[answer]["span"]
    assert GOOD[place["start"] : place["end"]] == TRUE
    note = message["annotations"][0]
    assert GOOD[note["url_citation"]["start_index"] : note["url_citation"]["end_index"]] == TRUE
    assert at.event.request.sentences == len(at.event.claims) == len(claims)


async def test_lists_of_numbers_are_no_citations() -> None:
    rules = BLOCK | {"require_valid_citations": True, "action_on_violation": "block", "min_grounding_score": 0.0}
    body = await (await bench(whole(GOOD), policy(**rules))).unary(**FORM)
    assert body["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("form", [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "x"}}])
async def test_blocked_content_is_empty(form: dict[str, Any]) -> None:
    body = await (await bench(whole(BAD), policy(**BLOCK))).unary(response_format=form)
    choice = body["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "content_filter")
    assert body["grounding"]["action"] == "block"
    assert FALSE not in json.dumps(body)


async def test_json_text_without_response_format_is_prose() -> None:
    body = await (await bench(whole(BAD), policy(**BLOCK))).unary()
    assert body["choices"][0]["message"]["content"] == "Ask HR."
    text_form = {"response_format": {"type": "text"}}
    body = await (await bench(whole(BAD), policy(**BLOCK))).unary(**text_form)
    assert body["choices"][0]["message"]["content"] == "Ask HR."


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
async def test_blocked_stream_ends_without_a_replacement(mode: str) -> None:
    pieces = [BAD[i : i + 7] for i in range(0, len(BAD), 7)]
    stream = await (await bench(said(*pieces), policy(stream_mode=mode, **BLOCK))).stream(**FORM)
    shown = text_of(stream)
    assert BAD.startswith(shown)
    assert finish_of(stream) == ["content_filter"]
    assert "Ask HR." not in shown
    if mode == "final":
        assert shown == ""
    if mode == "hold":
        assert shown == f'{{"answers": ["{TRUE}", "'


async def test_block_can_be_an_error_for_json() -> None:
    stream = await (await bench(said(BAD), policy(on_block="error", **BLOCK))).stream(**FORM)
    assert any(isinstance(frame, dict) and "error" in frame for frame in stream)


async def test_nothing_in_json_is_removed_or_corrected() -> None:
    text = json.dumps([TRUE, UNKNOWN, FALSE])
    rules = BLOCK | {"unverifiable_action": "strip", "contradiction_action": "correct"}
    llm = ScriptedLlm({FALSE: LlmVerdict(label=Label.CONTRADICTED, confidence=0.9, correction=TRUE)})
    body = await (await bench(whole(text), policy(**rules), llm=llm)).unary(**FORM)
    assert body["choices"][0]["message"]["content"] == text
    assert body["grounding"]["action"] == "warn"
    rules |= {"action_on_violation": "block"}
    body = await (await bench(whole(text), policy(**rules), llm=llm)).unary(**FORM)
    assert (body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"]) == ("", "content_filter")


async def test_prose_in_place_of_json_is_judged() -> None:
    stream = await (await bench(said(f"Sure! {FALSE}"), policy(**BLOCK))).stream(**FORM)
    assert (text_of(stream), finish_of(stream)) == ("Sure!", ["content_filter"])


VALUES = st.recursive(
    st.sampled_from([TRUE, FALSE, UNKNOWN, f"{TRUE} {UNKNOWN}", "short", 7, None, "Grüße", f'"{TRUE}"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, st.lists(st.integers(0, 300), max_size=6), st.sampled_from([BLOCK, {"min_citations": 0}]))
@settings(max_examples=150)
async def test_streamed_and_unary_replies_agree_for_any_chunking(
    value: Any, at: list[int], rules: dict[str, Any]
) -> None:
    text = json.dumps(value)
    places = sorted({0, len(text), *(place for place in at if place < len(text))})
    frames = sse(*(chunk({"content": text[a:b]}) for a, b in pairwise(places)), chunk({}, "stop"))
    cut, final = await bench(frames, policy(**rules)), await bench(frames, policy(stream_mode="final", **rules))
    plain = await bench(whole(text), policy(**rules))
    first, second, body = await cut.stream(**FORM), await final.stream(**FORM), await plain.unary(**FORM)
    choice = body["choices"][0]
    assert finish_of(first) == finish_of(second) == [choice["finish_reason"]]
    assert text_of(second) == choice["message"]["content"]
    assert choice["message"]["content"] in ("", text)
    assert text.startswith(text_of(first))
    assert summary_of(first)["verdict"] == summary_of(second)["verdict"] == body["grounding"]["verdict"]


class TestOtherDialects:
    async def test_completions_api_judges_json(self) -> None:
        body = await completions.unary(await bench(completions.whole(BAD), policy(**BLOCK)), **FORM)
        choice = body["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("", "content_filter")

    @pytest.mark.parametrize("kind", ["json_object", "json_schema"])
    async def test_responses_api_judges_json(self, kind: str) -> None:
        form = {"text": {"format": {"type": kind, "name": "x", "schema": {}}}}
        body = await responses.unary(await bench(responses.response(responses.message(BAD)), policy(**BLOCK)), **form)
        assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
        assert responses.output_text(body) == ""
        found = await responses.stream(await bench(responses.said(BAD), policy(**BLOCK)), **form)
        assert BAD.startswith(responses.shown(found))
        responses.consistent(found)

    @pytest.mark.parametrize(
        "form",
        [
            {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
            {"output_format": {"type": "json_schema", "schema": {}}},
        ],
    )
    async def test_messages_api_judges_json(self, form: dict[str, Any]) -> None:
        body = await messages.unary(await bench(messages.whole(messages.text(BAD)), policy(**BLOCK)), **form)
        assert (messages.text_of(body), body["stop_reason"]) == ("", "refusal")
        made = await messages.stream(await bench(messages.streamed(messages.text(BAD)), policy(**BLOCK)), **form)
        assert messages.is_well_formed(made)
        assert "Ask HR." not in json.dumps([event for event in made if event["type"] == "content_block_delta"])
