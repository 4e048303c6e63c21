"""What becomes of reasoning and tool calls: they pass in their place, wait, or are left out; none follows a block."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from policies.types import Policy
from tests.support.in_process_gateway import (
    DOCUMENTS,
    FALSE,
    TRUE,
    Bench,
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

CALL: dict[str, Any] = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"a": 1}'}}
LINKED = [{**DOCUMENTS[0], "url": "https://example.com/hr"}]
FUNCTION = {"name": "look_up", "arguments": '{"a": 1}'}
REASONS = {"reasoning_content": "Zebras first.", "reasoning": "Zebras first."}
CALLS: dict[str, Any] = {"tool_calls": [{"index": 0, **CALL}], "function_call": FUNCTION}
KINDS = [*((name, "reasoning_action") for name in REASONS), *((name, "tool_call_action") for name in CALLS)]


def rules(**more: Any) -> Policy:
    given: dict[str, Any] = {"min_citations": 0, "contradiction_action": "block", "action_on_violation": "block"}
    return policy(
        **{**given, "max_unverifiable_ratio": 1.0, "min_grounding_score": 0.0, "unjudged_action": "warn", **more}
    )


async def streamed(b: Bench) -> list[Any]:
    made = await b.stream(documents=LINKED)
    for frame in made:
        if isinstance(frame, dict):
            ChatCompletionChunk.model_validate(frame)
    return made


async def unary(b: Bench) -> dict[str, Any]:
    body = await b.unary(documents=LINKED)
    ChatCompletion.model_validate(body)
    return body


def order(made: list[Any]) -> list[str]:
    """The names of what the frames of a stream bring, in order, each run once."""
    names: list[str] = []
    for frame in made:
        for choice in frame.get("choices", ()) if isinstance(frame, dict) else ():
            for name, value in choice["delta"].items():
                if name != "role" and value and names[-1:] != [name]:
                    names.append(name)
    return names


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
@pytest.mark.parametrize(("name", "rule"), KINDS)
async def test_a_kind_is_left_out_of_a_stream(name: str, rule: str, mode: str) -> None:
    given = {**REASONS, **CALLS}[name]
    end = name if name in CALLS else "stop"
    answer = sse(
        chunk({"role": "assistant", name: given}),
        chunk({"content": f"{TRUE} ", name: given}),
        chunk({name: given}, end),
    )
    b = await bench(answer, rules(stream_mode=mode, **{rule: "drop"}))
    made = await streamed(b)
    assert name not in json.dumps([frame["choices"] for frame in made if isinstance(frame, dict)])
    assert (text_of(made).strip(), finish_of(made)) == (TRUE, ["stop"])
    kind = "reasoning" if name in REASONS else "tool_calls"
    assert b.event.request.extra["dropped"] == {kind: 3 * (len(given) if kind == "reasoning" else 1)}
    assert "not_checked" not in summary_of(made)


@pytest.mark.parametrize(("name", "rule"), KINDS)
async def test_a_kind_is_left_out_of_a_whole_reply(name: str, rule: str) -> None:
    given = {**REASONS, "tool_calls": [CALL], "function_call": FUNCTION}[name]
    answer = whole(TRUE, **{name: given})
    if name in CALLS:
        answer["choices"][0]["finish_reason"] = name
    body = await unary(await bench(answer, rules(**{rule: "drop"})))
    message = body["choices"][0]["message"]
    assert (message.keys(), message["content"]) == ({"role", "content", "annotations"}, TRUE)
    assert body["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("action", ["pass", "hold"])
@pytest.mark.parametrize("mode", ["hold", "live", "final"])
async def test_kinds_in_one_frame_leave_in_order(mode: str, action: str) -> None:
    delta = {"role": "assistant", "tool_calls": CALLS["tool_calls"], "content": TRUE, "reasoning_content": "Zebras."}
    b = await bench(sse(chunk(delta), chunk({}, "tool_calls")), rules(stream_mode=mode, tool_call_action=action))
    made = await streamed(b)
    if (mode, action) != ("live", "pass"):
        assert [name for name in order(made) if name != "annotations"] == ["reasoning_content", "content", "tool_calls"]
    assert (text_of(made), finish_of(made)) == (TRUE, ["tool_calls"])
    assert summary_of(made)["not_checked"] == ["reasoning_content", "tool_calls"]


@pytest.mark.parametrize(
    ("mode", "action"), [("hold", "pass"), ("hold", "hold"), ("live", "hold"), ("final", "pass"), ("final", "hold")]
)
@pytest.mark.parametrize("together", [True, False])
async def test_no_call_leaves_after_text_that_is_blocked(mode: str, action: str, together: bool) -> None:
    call = {"tool_calls": CALLS["tool_calls"]}
    frames = [chunk({"content": FALSE, **call})] if together else [chunk({"content": FALSE}), chunk(call)]
    b = await bench(sse(*frames, chunk({}, "tool_calls")), rules(stream_mode=mode, tool_call_action=action))
    made = await streamed(b)
    assert "look_up" not in json.dumps(made)
    assert finish_of(made) == ["content_filter"]


@pytest.mark.parametrize("action", ["pass", "hold"])
async def test_no_call_is_in_a_reply_that_is_blocked_at_its_end(action: str) -> None:
    given = rules(stream_mode="final", tool_call_action=action)
    call = chunk({"tool_calls": CALLS["tool_calls"]})
    made = await streamed(await bench(sse(call, chunk({"content": FALSE}), chunk({}, "stop")), given))
    assert "look_up" not in json.dumps(made)
    body = await unary(await bench(whole(FALSE, tool_calls=[CALL]), given))
    assert "look_up" not in json.dumps(body)


# Reasoning in the text

THOUGHTS = [
    ("<think>It says 40 days.</think>", "\n\n"),
    ("<thinking>It says 40 days.</thinking>", " "),
    ("<THINK>It says < 40 days </b>.</THINK>", ""),
    (" <think></think>\n<think>It says 40 days.</think>", "\n"),
]


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("mode", ["hold", "live", "final", "whole"])
@pytest.mark.parametrize(("thought", "space"), THOUGHTS)
async def test_thoughts_in_the_text_pass_or_are_left_out(thought: str, space: str, mode: str, size: int) -> None:
    text = f"{thought}{space}{TRUE}"
    for action in ("pass", "drop"):
        given = rules(
            stream_mode="hold" if mode == "whole" else mode,
            reasoning_action=action,
            unjudged_action="warn" if action == "pass" else "block" if mode != "live" else "warn",
            min_coverage=1.0,
        )
        if mode == "whole":
            b = await bench(whole(text), given)
            body = await unary(b)
            delivered, summary = body["choices"][0]["message"]["content"], body["grounding"]
            annotations = body["choices"][0]["message"]["annotations"]
        else:
            b = await bench(said(*pieces(text, size)), given)
            made = await streamed(b)
            delivered, summary = text_of(made), summary_of(made)
            annotations = [f["choices"][0]["delta"] for f in made if isinstance(f, dict) and f.get("choices")][-1][
                "annotations"
            ]
        assert delivered == (text if action == "pass" else TRUE)
        assert (summary["action"], summary["coverage"], summary["is_trusted"]) == ("allow", 1.0, True)
        (claim,) = summary["claims"]
        assert delivered[claim["span"]["start"] : claim["span"]["end"]] == TRUE
        cited = annotations[0]["url_citation"]
        assert delivered[cited["start_index"] : cited["end_index"]] == TRUE
        assert summary.get("not_checked") == (["reasoning"] if action == "pass" else None)
        dropped = {} if action == "pass" else {"dropped": {"reasoning": len(thought + space)}}
        assert {k: v for k, v in b.event.request.extra.items() if k == "dropped"} == dropped


@pytest.mark.parametrize("size", [1, 4, 1000])
async def test_thoughts_are_judged_like_the_answer_and_make_no_sentence_with_it(size: int) -> None:
    good = f"<think>{TRUE} And so</think>{TRUE}"
    made = await streamed(await bench(said(*pieces(good, size)), rules(reasoning_action="judge")))
    claims = [claim["claim"] for claim in summary_of(made)["claims"]]
    assert text_of(made) == good
    assert claims[0] == claims[-1] == TRUE
    made = await streamed(
        await bench(said(*pieces(f"<think>{FALSE}</think>{TRUE}", size)), rules(reasoning_action="judge"))
    )
    assert FALSE not in text_of(made)
    assert finish_of(made) == ["content_filter"]


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
@pytest.mark.parametrize("action", ["pass", "drop"])
@pytest.mark.parametrize("text", ["<think>It says 40 days. </thi", "<think>", "<thinking>\n\nWell <b>, "])
async def test_thoughts_without_an_end_are_all_of_the_text(text: str, action: str, mode: str) -> None:
    for size in (1, 1000):
        b = await bench(said(*pieces(text, size), finish="length"), rules(reasoning_action=action, stream_mode=mode))
        made = await streamed(b)
        assert text_of(made) == (text if action == "pass" else "")


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
@pytest.mark.parametrize("action", ["pass", "drop", "judge"])
@pytest.mark.parametrize("text", [f"< {TRUE}", "<thin", "  ", f"<thinker> {TRUE}", f"{TRUE} <think>{TRUE}</think>"])
async def test_other_text_is_the_answer(text: str, action: str, mode: str) -> None:
    for size in (1, 3, 1000):
        b = await bench(said(*pieces(text, size)), rules(reasoning_action=action, stream_mode=mode))
        made = await streamed(b)
        assert text_of(made).strip() == text.strip()
        assert "not_checked" not in summary_of(made)


async def test_a_call_waits_for_text_that_may_be_a_thought() -> None:
    frames = [chunk({"content": "<thi"}), chunk({"tool_calls": CALLS["tool_calls"]}), chunk({}, "tool_calls")]
    made = await streamed(await bench(sse(*frames), rules()))
    assert [name for name in order(made) if name != "annotations"] == ["content", "tool_calls"]
