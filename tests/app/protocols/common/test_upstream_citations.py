"""An upstream's own annotations count as citations in every API."""

from typing import Any

import pytest

from tests.support.apis import responses_api as responses
from tests.support.gateways.in_process_gateway import DOCUMENTS, TRUE, bench, chunk, policy, said, sse, summary_of

pytestmark = pytest.mark.anyio

RULES = {"require_valid_citations": True, "min_citations": 1}
HR = [{**DOCUMENTS[0], "url": "https://docs.test/hr"}]
GIVEN = {"type": "url_citation", "url": "https://docs.test/hr", "title": "HR", "start_index": 0, "end_index": 9}
GONE = {"type": "file_citation", "file_id": "file-9", "filename": "gone.pdf", "index": len(TRUE)}
NAMES_NONE = "Citation file-9 names no document (1 given)"


def without(kind: str) -> bytes:
    """The stream of a message with both annotations, without the events of one kind."""
    body = responses.response(responses.message(TRUE, annotations=[GIVEN, GONE]))
    made = [event for event in responses.events(body) if event["type"] != f"response.{kind}"]
    return responses.sse([{**event, "sequence_number": number} for number, event in enumerate(made)])


def judged(grounding: dict[str, Any]) -> tuple[list[str], str]:
    return grounding["claims"][0]["citations"], grounding["decisions"][-1]["reason"]


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
@pytest.mark.parametrize("kind", ["nothing", "content_part.done", "output_text.annotation.added"])
async def test_citations_of_a_streamed_response_are_found_in_every_event(kind: str, mode: str) -> None:
    at = await bench(without(kind), policy(**RULES, stream_mode=mode))
    found = await responses.stream(at, documents=HR)
    assert judged(found[-1]["response"]["grounding"]) == (["hr-7"], NAMES_NONE)


async def test_citations_of_a_whole_response_are_found() -> None:
    at = await bench(responses.response(responses.message(TRUE, annotations=[GIVEN, GONE])), policy(**RULES))
    assert judged((await responses.unary(at, documents=HR))["grounding"]) == (["hr-7"], NAMES_NONE)


async def test_repeated_citation_is_reported_once() -> None:
    at = await bench(without("nothing"), policy(**RULES))
    decision = (await responses.stream(at, documents=HR))[-1]["response"]["grounding"]["decisions"][-1]
    assert decision["reason_code"] == "GROUNDING_BAD_CITATION"
    assert decision["metadata"] == {"kind": "fabricated", "marker": "file-9", "count": 1}


@pytest.mark.parametrize("given", [[None, 5, "x", {}, {"type": "url_citation"}], {"type": "url_citation"}, "x", None])
async def test_malformed_annotation_is_ignored(given: Any) -> None:
    at = await bench(sse(chunk({"content": TRUE, "annotations": given}), chunk({}, "stop")), policy(**RULES))
    decisions = summary_of(await at.stream(documents=HR))["decisions"]
    assert decisions[-1]["reason_code"] == "GROUNDING_CITATIONS"


async def test_title_is_not_taken_for_a_marker() -> None:
    """What an upstream puts there may be any text."""
    note = {"type": "url_citation", "url_citation": {"title": "Permanent staff receive a boat."}}
    at = await bench(sse(chunk({"content": TRUE, "annotations": [note]}), chunk({}, "stop")), policy(**RULES))
    decision = summary_of(await at.stream(documents=HR))["decisions"][-1]
    assert "Citation url_citation names no document (1 given)" in decision["reason"]
    assert "boat" not in str(decision)


async def test_bytes_pass_unchanged_without_policy_or_documents() -> None:
    upstream = said(TRUE)
    assert await (await bench(upstream)).stream_bytes(documents=None) == upstream
