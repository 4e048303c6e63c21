"""Reasoning and tool calls pass in order, wait, or are left out, and none follows a block."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from policies.types import Policy
from tests.support.gateways.in_process_gateway import (
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
    """The kinds of content in the frames of a stream, in order, without repetitions."""
    names: list[str] = []
    for frame in made:
        for choice in frame.get("choices", ()) if isinstance(frame, dict) else ():
            for name, value in choice["delta"].items():
                if name != "role" and value and names[-1:] != [name]:
                    names.append(name)
    return names


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
@pytest.mark.parametrize(("name", "rule"), KINDS)
async def test_denied_kind_is_left_out_of_a_stream(name: str, rule: str, mode: str) -> None:
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
async def test_denied_kind_is_left_out_of_a_whole_reply(name: str, rule: str) -> None:
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
async def test_kinds_in_one_frame_are_sent_in_order(mode: str, action: str) -> None:
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
async def test_no_call_is_sent_after_blocked_text(mode: str, action: str, together: bool) -> None:
    call = {"tool_calls": CALLS["tool_calls"]}
    frames = [chunk({"content": FALSE, **call})] if together else [chunk({"content": FALSE}), chunk(call)]
    b = await bench(sse(*frames, chunk({}, "tool_calls")), rules(stream_mode=mode, tool_call_action=action))
    made = await streamed(b)
    assert "look_up" not in json.dumps(made)
    assert finish_of(made) == ["content_filter"]


@pytest.mark.parametrize("action", ["pass", "hold"])
async def test_no_call_is_in_a_reply_blocked_at_its_end(action: str) -> None:
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
async def test_inline_reasoning_is_sent_or_left_out(thought: str, space: str, mode: str, size: int) -> None:
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
async def test_inline_reasoning_is_judged_separately_from_the_answer(size: int) -> None:
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
async def test_unclosed_reasoning_includes_all_text(text: str, action: str, mode: str) -> None:
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


async def test_call_waits_for_text_that_may_be_reasoning() -> None:
    frames = [chunk({"content": "<thi"}), chunk({"tool_calls": CALLS["tool_calls"]}), chunk({}, "tool_calls")]
    made = await streamed(await bench(sse(*frames), rules()))
    assert [name for name in order(made) if name != "annotations"] == ["content", "tool_calls"]


# Reasoning in a field of its own

MODES = ["hold", "live", "final"]


def reasoned(made: list[Any], name: str) -> str:
    choices = [frame["choices"] for frame in made if isinstance(frame, dict)]
    return "".join(choice["delta"].get(name) or "" for given in choices for choice in given)


def thinking(name: str, thought: str, answer: str, size: int) -> Any:
    first = {"role": "assistant", "content": ""}
    thoughts = [chunk({name: piece, **(first if not at else {})}) for at, piece in enumerate(pieces(thought, size))]
    return sse(*thoughts, *(chunk({"content": piece}) for piece in pieces(answer, size)), chunk({}, "stop"))


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", list(REASONS))
async def test_reasoning_in_a_field_is_judged_in_order(name: str, mode: str, size: int) -> None:
    b = await bench(thinking(name, f"{TRUE} And {TRUE}", TRUE, size), rules(reasoning_action="judge", stream_mode=mode))
    made = await streamed(b)
    assert (reasoned(made, name), text_of(made)) == (f"{TRUE} And {TRUE}", TRUE)
    assert [each for each in order(made) if each != "annotations"] == [name, "content"]
    summary = summary_of(made)
    assert "not_checked" not in summary
    places = [(claim.get("field"), claim["span"]["start"]) for claim in summary["claims"]]
    assert places == [(name, 0), (name, len(TRUE) + 1), (None, 0)]
    assert [claim["verdict"] for claim in summary["claims"]][::2] == ["supported", "supported"]
    cited = [f["choices"][0]["delta"] for f in made if isinstance(f, dict) and f.get("choices")][-1]["annotations"]
    assert [each["url_citation"]["start_index"] for each in cited] == [0]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("mode", ["hold", "final"])
@pytest.mark.parametrize("name", list(REASONS))
async def test_false_reasoning_in_a_field_blocks_the_answer(name: str, mode: str, size: int) -> None:
    b = await bench(thinking(name, f"{TRUE} {FALSE}", TRUE, size), rules(reasoning_action="judge", stream_mode=mode))
    made = await streamed(b)
    assert reasoned(made, name) == (TRUE if mode == "hold" else "")
    assert TRUE not in text_of(made)
    assert finish_of(made) == ["content_filter"]


async def test_false_reasoning_already_shown_ends_the_reply() -> None:
    b = await bench(thinking("reasoning", FALSE, TRUE, 1000), rules(reasoning_action="judge", stream_mode="live"))
    made = await streamed(b)
    (claim, *_) = summary_of(made)["claims"]
    assert (claim["field"], claim["span"], claim["verdict"]) == (
        "reasoning",
        {"start": 0, "end": len(FALSE)},
        "contradicted",
    )
    assert finish_of(made) == ["content_filter"]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("mode", ["hold", "final", "whole"])
async def test_unjudged_reasoning_is_removed_from_its_field(mode: str, size: int) -> None:
    given = rules(reasoning_action="judge", unjudged_action="strip", stream_mode="hold" if mode == "whole" else mode)
    thought = f"{TRUE}\n\n`zebra()`\n\n{TRUE}"
    if mode == "whole":
        body = await unary(await bench(whole(TRUE, reasoning_content=thought), given))
        message = body["choices"][0]["message"]
        thoughts, answer = message["reasoning_content"], message["content"]
    else:
        made = await streamed(await bench(thinking("reasoning_content", thought, TRUE, size), given))
        thoughts, answer = reasoned(made, "reasoning_content"), text_of(made)
    assert (thoughts.split(), answer) == (f"{TRUE} {TRUE}".split(), TRUE)


@pytest.mark.parametrize("name", list(REASONS))
@pytest.mark.parametrize("mode", ["hold", "final"])
async def test_reasoning_of_a_whole_reply_is_judged(name: str, mode: str) -> None:
    given = rules(reasoning_action="judge", stream_mode=mode)
    body = await unary(await bench(whole(TRUE, **{name: TRUE}), given))
    message = body["choices"][0]["message"]
    assert (message[name], message["content"]) == (TRUE, TRUE)
    assert [claim.get("field") for claim in body["grounding"]["claims"]] == [name, None]
    assert [each["url_citation"]["start_index"] for each in message["annotations"]] == [0]
    body = await unary(await bench(whole(TRUE, **{name: FALSE}), given))
    assert FALSE not in json.dumps(body["choices"])
    assert body["choices"][0]["finish_reason"] == "content_filter"


async def test_reasoning_under_two_names_is_judged_once() -> None:
    b = await bench(
        sse(chunk(dict.fromkeys(REASONS, TRUE)), chunk({"content": TRUE}, "stop")), rules(reasoning_action="judge")
    )
    made = await streamed(b)
    assert [reasoned(made, name) for name in ("reasoning_content", "reasoning")] == [TRUE, ""]
    assert len(summary_of(made)["claims"]) == 2
    assert b.event.request.extra["dropped"] == {"reasoning": len(TRUE)}


@pytest.mark.parametrize("mode", MODES)
async def test_reasoning_between_parts_of_the_answer_is_judged_in_order(mode: str) -> None:
    frames = [{"content": f"{TRUE} It"}, {"reasoning": f"{TRUE} "}, {"content": TRUE}, {"reasoning": TRUE}]
    made = await streamed(
        await bench(sse(*map(chunk, frames), chunk({}, "stop")), rules(reasoning_action="judge", stream_mode=mode))
    )
    assert text_of(made) == f"{TRUE} It{TRUE}"
    assert reasoned(made, "reasoning") == f"{TRUE} {TRUE}"
    texts = {None: text_of(made), "reasoning": reasoned(made, "reasoning")}
    for claim in summary_of(made)["claims"]:
        span = claim["span"]
        assert texts[claim.get("field")][span["start"] : span["end"]] == claim["claim"]


async def test_json_reply_has_no_inline_reasoning() -> None:
    """The one JSON value that is judged has no place for it."""
    given = rules(reasoning_action="judge")
    b = await bench(whole('{"days": 25}', reasoning="Zebras."), given)
    body = await b.unary(documents=LINKED, response_format={"type": "json_object"})
    assert "reasoning" not in body["choices"][0]["message"]
