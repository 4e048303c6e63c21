"""Completions assembled from streams."""

import json
from typing import Any

import pytest

from app.errors import UpstreamConnectError
from app.protocols.common.stream_events import (
    ChoiceEnd,
    EstimatedUsage,
    Frame,
    FrameRemainder,
    Passthrough,
    ReleasedText,
    ReplacementText,
    TextSlice,
)
from app.protocols.openai_chat.whole_reply import CompletionBuilder, chunks_of, completion_of
from tests.support.gateways.in_process_gateway import chunk, whole

FRAME = Frame(json=chunk({}))


def passing(delta: dict[str, object]) -> Passthrough:
    return Passthrough(raw=f"data: {json.dumps(chunk(delta))}\n\n".encode())


def call(index: int | None, **fields: object) -> dict[str, object]:
    made = dict(fields) if index is None else {"index": index, **fields}
    return {"tool_calls": [made]}


def test_tool_calls_are_merged_by_index() -> None:
    outputs = [
        passing(call(0, id="a", type="function", function={"name": "find_train", "arguments": ""})),
        passing(call(1, id="b", type="function", function={"name": "find_hotel", "arguments": '{"city"'})),
        passing(call(0, function={"arguments": '{"to":'})),
        passing(call(1, function={"arguments": ':"Basel"}'})),
        passing(call(0, function={"arguments": '"Basel"}'})),
    ]
    (choice,) = completion_of(outputs)["choices"]
    first, second = choice["message"]["tool_calls"]
    assert (first["id"], first["function"]) == ("a", {"name": "find_train", "arguments": '{"to":"Basel"}'})
    assert (second["id"], second["function"]) == ("b", {"name": "find_hotel", "arguments": '{"city":"Basel"}'})


def test_tool_calls_without_an_index_continue_the_last() -> None:
    outputs = [
        passing(call(None, id="x", function={"arguments": '{"q":'})),
        passing(call(None, function={"name": "s", "arguments": "1}"})),
    ]
    (choice,) = completion_of(outputs)["choices"]
    assert choice["message"]["tool_calls"] == [{"id": "x", "function": {"arguments": '{"q":1}', "name": "s"}}]


def test_reasoning_other_fields_and_text_are_joined() -> None:
    piece = TextSlice(frame=FRAME, text="Yes.")
    outputs = [
        passing({"reasoning_content": "Al"}),
        FrameRemainder(choice=0, json=chunk({"role": "assistant", "content": "", "reasoning_content": "most"})),
        ReleasedText(choice=0, text="Yes.", slices=(piece,)),
        ReplacementText(choice=0, text=" No.", frame=FRAME),
        ChoiceEnd(choice=0, reason="content_filter", frame=FRAME),
        EstimatedUsage(prompt_tokens=2, completion_tokens=3, frame=FRAME),
    ]
    made = completion_of(outputs)
    assert made["object"] == "chat.completion"
    assert made["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Yes. No.", "reasoning_content": "Almost"},
            "finish_reason": "content_filter",
        }
    ]
    assert made["usage"]["total_tokens"] == 5


def test_comments_are_no_part_of_a_completion() -> None:
    assert completion_of([Passthrough(raw=b": ping\n\n")])["choices"] == []


def ended(text: str) -> ChoiceEnd:
    return ChoiceEnd(choice=0, reason="stop", frame=FRAME, text=text)


def test_unchanged_fields_are_kept_exactly() -> None:
    template = whole("Same.")
    completion = CompletionBuilder(template)
    completion.take(ended("Same."))
    assert completion.body() == template


def test_log_probabilities_of_removed_text_are_removed() -> None:
    template = whole("A. B.")
    tokens = [{"token": "A."}, {"token": " B."}]
    template["choices"][0]["logprobs"] = {"content": tokens, "refusal": None}
    completion = CompletionBuilder(template)
    completion.take(ReleasedText(choice=0, text="A.", slices=(TextSlice(frame=FRAME, text="A.", tokens=tokens[:1]),)))
    completion.take(ended("A."))
    (choice,) = completion.body()["choices"]
    assert choice["logprobs"] == {"content": tokens[:1], "refusal": None}
    assert choice["message"]["content"] == "A."


def test_typed_parts_keep_their_non_text_parts() -> None:
    template = whole("")
    template["choices"][0]["message"]["content"] = [
        {"type": "image", "id": 1}, {"type": "text", "text": "A.", "x": 1}, {"type": "text", "text": "B."},
    ]  # fmt: skip
    completion = CompletionBuilder(template)
    completion.take(ended("A."))
    assert completion.body()["choices"][0]["message"]["content"] == [
        {"type": "image", "id": 1}, {"type": "text", "text": "A.", "x": 1},
    ]  # fmt: skip


@pytest.mark.parametrize("choices", [5, ["odd"], [{"index": 0}], [{"index": 0, "message": None}]])
def test_undecidable_choices_are_an_error(choices: object) -> None:
    completion = CompletionBuilder({**whole("A."), "choices": choices})
    completion.take(ended("A."))
    with pytest.raises(UpstreamConnectError):
        completion.body()


def test_undecided_choice_is_left_out() -> None:
    completion = CompletionBuilder(whole("A.", "B."))
    completion.take(ended("A."))
    assert [choice["message"]["content"] for choice in completion.body()["choices"]] == ["A."]


@pytest.mark.parametrize("index", [None, "0", [0], 7, -1])
def test_choice_is_identified_by_position(index: object) -> None:
    template = whole("A.")
    template["choices"][0]["index"] = index
    (chunk, _, _) = chunks_of(template)
    assert chunk["choices"][0]["index"] == 0
    completion = CompletionBuilder(template)
    completion.take(ChoiceEnd(choice=0, reason="content_filter", frame=FRAME, blocked=True, text="No."))
    assert completion.body()["choices"][0]["message"]["content"] == "No."


def test_grounding_of_several_choices_is_combined() -> None:
    first, second = {"phase": "after_workflow", "reason": "a"}, {"phase": "after_workflow", "reason": "b"}
    base = {
        "action": "allow", "verdict": "supported", "trust_score": 1.0, "is_trusted": True, "total_claims": 1,
        "supported_count": 1, "contradicted_count": 0, "unverifiable_count": 0, "unverifiable_ratio": 0.0,
        "coverage": 1.0, "summary": "1/1 claims supported", "claims": [1], "decisions": [first],
        "judge": {"name": "j", "latency_ms": None},
    }  # fmt: skip
    other = {
        **base, "action": "block", "verdict": "has_contradictions", "trust_score": 0.0, "is_trusted": False,
        "supported_count": 0, "contradicted_count": 1, "claims": [2], "decisions": [second],
    }  # fmt: skip
    completion = CompletionBuilder(whole("A.", "B."))
    completion.take(ChoiceEnd(choice=0, reason="stop", frame=FRAME, text="A.", summary=base))
    completion.take(ChoiceEnd(choice=1, reason="stop", frame=FRAME, text="B.", summary=other))
    merged = completion.body()["grounding"]
    assert (merged["action"], merged["verdict"], merged["trust_score"]) == ("block", "has_contradictions", 0.0)
    assert (merged["total_claims"], merged["supported_count"], merged["summary"]) == (2, 1, "1/2 claims supported")
    assert (merged["claims"], merged["decisions"], merged["is_trusted"]) == ([1, 2], [first, second], False)


@pytest.mark.parametrize(
    "choices",
    [
        ["no object"],
        "no list",
        [{"index": [0], "delta": {"content": "x"}}],
        [{"index": 0}, {"index": 0, "delta": "no object"}],
        [{"index": 0, "delta": {"tool_calls": "none"}}, {"index": 0, "delta": {"tool_calls": ["none"]}}],
        [{"index": 0, "delta": {"tool_calls": [{"index": {}, "function": {"arguments": 7}}]}}],
    ],
)
def test_invalid_chunks_still_give_a_completion(choices: Any) -> None:
    chunk = {"id": "c-1", "object": "chat.completion.chunk", "choices": choices}
    made = completion_of([Passthrough(raw=b"data: " + json.dumps(chunk).encode() + b"\n\n")])
    assert made["id"] == "c-1"
    assert all(isinstance(choice["message"], dict) for choice in made["choices"])
