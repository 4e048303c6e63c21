"""Requests of the Responses API."""

import json
from typing import Any

import pytest

from app.errors import InvalidRequestError
from app.protocols.documents import Limits, ParsedRequest
from app.protocols.openai_responses.request import read_responses


def read(limits: Limits | None = None, **body: Any) -> ParsedRequest:
    return read_responses(json.dumps({"model": "m", **body}).encode(), {}, limits or Limits())


@pytest.mark.parametrize(
    "given", [{"input": "Q"}, {"input": []}, {"previous_response_id": "r"}, {"prompt": {"id": "p"}}]
)
def test_request_without_our_fields_is_forwarded_unchanged(given: dict[str, Any]) -> None:
    parsed = read(**given)
    assert parsed.raw == json.dumps({"model": "m", **given}).encode()
    assert (parsed.chunks, parsed.stream, parsed.include_usage, parsed.choices) == ((), False, True, None)


def test_our_fields_are_removed() -> None:
    parsed = read(input="Q", documents=["Alpha."], grounding={"agent": "a"}, x=1, stream=True)
    assert parsed.body == {"model": "m", "input": "Q", "x": 1, "stream": True}
    assert parsed.raw is None
    assert [chunk.text for chunk in parsed.chunks] == ["Alpha."]
    assert (parsed.options.agent, parsed.stream) == ("a", True)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": 3}, "input"),
        ({"input": {}}, "input"),
        ({"input": [{"role": "user"}, "x"]}, "input[1]"),
        ({"model": 3}, "model"),
        ({"stream": 1}, "stream"),
        ({"documents": "x"}, "documents"),
        ({"grounding": []}, "grounding"),
    ],
)
def test_invalid_fields_are_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(**body)
    assert caught.value.param == param


def test_tool_results_are_read_on_request() -> None:
    items = [
        {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "Alpha."},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Beta."}]},
        {"type": "custom_tool_call_output", "call_id": ["odd"], "output": '[{"id": "g", "text": "Gamma."}]'},
        {"type": "function_call_output", "call_id": "c3", "output": ""},
        {
            "type": "file_search_call",
            "results": [
                {"file_id": "f1", "filename": "a.pdf", "score": 0.5, "text": "Delta.", "attributes": {"year": 2026}},
                {"file_id": "f2", "score": 3, "text": "Epsilon."},
                {"file_id": "f3", "text": None},
            ],
        },
        {"type": "file_search_call", "results": None},
    ]
    parsed = read(input=items)
    assert parsed.chunks == ()
    found = parsed.with_tools()
    assert [(chunk.text, chunk.source) for chunk in found.chunks] == [
        ("Alpha.", "lookup"),
        ("Beta.", None),
        ("Gamma.", None),
        ("Delta.", "a.pdf"),
        ("Epsilon.", "f2"),
    ]
    assert [chunk.relevance_score for chunk in found.chunks] == [None, None, None, 0.5, None]
    assert found.chunks[3].metadata == {"year": 2026}
    assert found.path_of(0) == "input[1].output"
    assert found.path_of(3) == "input[5].results[0]"
    assert not found.injectable


def test_tool_results_have_limits() -> None:
    items = [{"type": "function_call_output", "call_id": "c", "output": "x" * 20}]
    with pytest.raises(InvalidRequestError):
        read(Limits(document_chars=10), input=items).with_tools()


@pytest.mark.parametrize(
    ("include", "late"),
    [
        (None, False),
        ([], False),
        ("file_search_call.results", False),
        (["file_search_call.results"], True),
        ([{}], False),
    ],
)
def test_documents_of_the_reply_are_read_on_request(include: Any, late: bool) -> None:
    assert read(input="Q", include=include).late is late


def test_items_of_unknown_type_are_no_tool_results() -> None:
    odd = [{"type": kind, "call_id": "c1", "output": [{"type": kind, "text": "Beta."}]} for kind in ([], {}, 7, None)]
    assert (
        read(input=[*odd, {"type": "function_call_output", "output": [{"type": {}, "text": "Beta."}]}])
        .with_tools()
        .chunks
        == ()
    )
