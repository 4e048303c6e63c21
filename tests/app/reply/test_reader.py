"""The choices of a reply that the client asked for, and their ends."""

import json
from typing import Any

import pytest

from tests.support.gateways.in_process_gateway import (
    FALSE,
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
)

pytestmark = pytest.mark.anyio

each_mode = pytest.mark.parametrize("mode", ["hold", "final", "live"])


def rules(mode: str, **more: Any) -> Any:
    return policy(stream_mode=mode, contradiction_action="block", min_citations=0, **more)


def packed(*texts: str, finish: str | None = None) -> dict[str, Any]:
    """One chunk with a choice for each text."""
    choices = [{"index": at, "delta": {"content": text}, "finish_reason": finish} for at, text in enumerate(texts)]
    return {**chunk({}), "choices": choices}


@each_mode
@pytest.mark.parametrize("surplus", [TRUE, FALSE])
async def test_only_the_surplus_choice_of_a_chunk_is_left_out(surplus: str, mode: str) -> None:
    words = zip(TRUE.split(), surplus.split(), strict=True)
    chunks = [packed(f"{ours} ", f"{theirs} ") for ours, theirs in words]
    at = await bench(sse(*chunks, packed("", "", finish="stop")), rules(mode))
    stream = await at.stream()
    assert (text_of(stream).strip(), finish_of(stream)) == (TRUE, ["stop"])
    assert (text_of(stream, 1), finish_of(stream, 1)) == ("", [])
    assert summary_of(stream)["supported_count"] == 1


@each_mode
async def test_surplus_choice_that_comes_first_is_left_out(mode: str) -> None:
    given = packed(TRUE, UNKNOWN, UNKNOWN)
    given["choices"].reverse()
    at = await bench(sse(given, packed("", "", "", finish="stop")), rules(mode))
    stream = await at.stream(n=2)
    assert [text_of(stream, index) for index in range(3)] == [TRUE, UNKNOWN, ""]


@each_mode
async def test_citation_of_a_surplus_choice_opens_no_choice(mode: str) -> None:
    place = {"start_index": 0, "end_index": 5, "url": "https://hr.test/7", "title": "HR"}
    note = chunk({"annotations": [{"type": "url_citation", "url_citation": place}]}, index=1)
    at = await bench(sse(chunk({"content": TRUE}), note, chunk({}, "stop")), rules(mode))
    stream = await at.stream()
    assert (finish_of(stream), finish_of(stream, 1)) == (["stop"], [])
    assert '"index": 1' not in json.dumps([f["choices"] for f in stream if isinstance(f, dict)])


@each_mode
async def test_reply_that_ends_without_a_finish_reason_is_decided(mode: str) -> None:
    at = await bench(said(f"{TRUE} ", UNKNOWN, finish=None) + b"data: [DONE]\n\n", rules(mode))
    stream = await at.stream()
    assert (text_of(stream), finish_of(stream), stream[-1]) == (f"{TRUE} {UNKNOWN}", ["stop"], "[DONE]")
    assert summary_of(stream)["total_claims"] == 2


@each_mode
async def test_error_before_the_end_is_followed_by_no_finish_reason(mode: str) -> None:
    error = {"error": {"message": "overloaded", "type": "server_error"}}
    at = await bench(sse(chunk({"content": TRUE}), error), rules(mode))
    stream = await at.stream()
    assert (error in stream, finish_of(stream)) == (True, [])
