"""The upstream is asked to go on anew where a sentence fails: what it is told, and what becomes of the reply."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judges.testing import ScriptedJudge
from tests.support.in_process_gateway import (
    FALSE,
    TRUE,
    UNKNOWN,
    USAGE,
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

RULES: dict[str, Any] = {
    "max_regenerations": 1,
    "contradiction_action": "block",
    "min_citations": 0,
    "abstention_response": "Ask HR.",
}
Answer = bytes | dict[str, Any] | httpx.Response


def answers(*given: Answer) -> Callable[[httpx.Request], httpx.Response]:
    """An upstream that gives one answer after the other."""
    left = list(given)

    def answer(_request: httpx.Request) -> httpx.Response:
        made = left.pop(0)
        if isinstance(made, httpx.Response):
            return made
        if isinstance(made, dict):
            return httpx.Response(200, json=made)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=made)

    return answer


def bodies(at: Bench) -> list[dict[str, Any]]:
    return [json.loads(request.content) for request in at.forwarded]


async def streamed(*given: Answer, rules: Mapping[str, Any] = RULES, **fields: Any) -> tuple[Bench, list[Any]]:
    at = await bench(answers(*given), policy(**rules))
    return at, await at.stream(**fields)


async def test_a_block_becomes_what_the_upstream_says_the_second_time() -> None:
    _, stream = await streamed(said(f"{TRUE} ", f"{FALSE} ", UNKNOWN), said("It is ", f"so. {TRUE}"))
    assert text_of(stream) == f"{TRUE} It is so. {TRUE}"
    assert finish_of(stream) == ["stop"]
    assert stream[-1] == "[DONE]"
    summary = summary_of(stream)
    assert (summary["action"], summary["regenerations"]) == ("allow", 1)
    assert "block" not in [decision["action"] for decision in summary["decisions"]]
    assert FALSE not in json.dumps(stream)
    assert UNKNOWN not in text_of(stream)


async def test_a_whole_reply_takes_the_same_way() -> None:
    second = whole(f"Rather: {TRUE}")
    at = await bench(answers(whole(f"{TRUE} {FALSE}"), second), policy(**RULES))
    body = await at.unary()
    choice = body["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (f"{TRUE} Rather: {TRUE}", "stop")
    assert body["id"] == "c-1"
    assert body["usage"] == {"prompt_tokens": 14, "completion_tokens": 10, "total_tokens": 24}
    assert body["grounding"]["regenerations"] == 1


async def test_the_upstream_is_told_what_stands_and_fenced_off_what_does_not() -> None:
    at, _ = await streamed(said(f"{TRUE} ", FALSE), said(TRUE), temperature=0)
    first, second = bodies(at)
    assert {name: value for name, value in second.items() if name != "messages"} == {
        name: value for name, value in first.items() if name != "messages"
    }
    *before, assistant, note = second["messages"]
    assert before == first["messages"]
    assert assistant == {"role": "assistant", "content": TRUE}
    assert note["role"] == "user"
    _, _, told, _ = note["content"].split("<<note ")[0], *note["content"].split("<<note ")[1:]
    assert f"Left out: {FALSE}" in told
    assert f"The documents say otherwise: {TRUE}" in told


async def test_no_text_of_the_model_can_close_the_fence() -> None:
    notes = []
    for _ in range(2):
        at, _stream = await streamed(said(f"{FALSE}"), said(TRUE))
        notes.append(bodies(at)[1]["messages"][-1]["content"])
    fences = [note.split("<<note ")[1].split(">>")[0] for note in notes]
    assert fences[0] != fences[1]
    assert all(len(fence) == 16 for fence in fences)


async def test_where_nothing_stands_the_note_goes_into_the_users_message() -> None:
    at, stream = await streamed(said(FALSE), said(TRUE))
    (message,) = bodies(at)[1]["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("How much leave?\n\n")
    assert text_of(stream) == TRUE


async def test_typed_parts_stay_typed() -> None:
    parts = [{"type": "text", "text": "How much leave?"}]
    at, _ = await streamed(said(FALSE), said(TRUE), messages=[{"role": "user", "content": parts}])
    (message,) = bodies(at)[1]["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "text"]


@pytest.mark.parametrize("where", ["user", "system"])
async def test_the_documents_stand_where_they_stood(where: str) -> None:
    at, _ = await streamed(said(f"{TRUE} ", FALSE), said(TRUE), grounding={"inject": where})
    first, second = bodies(at)
    assert TRUE in first["messages"][0]["content"]
    assert [message["role"] for message in second["messages"]] == [
        *(message["role"] for message in first["messages"]),
        "assistant",
        "user",
    ]
    assert TRUE in second["messages"][0]["content"]


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        (f"{TRUE}\n\n{FALSE}", f"Also: {TRUE}", f"{TRUE}\n\nAlso: {TRUE}"),
        (f"- {TRUE}\n- {FALSE}", f"Also: {TRUE}", f"- {TRUE}\n- Also: {TRUE}"),
        (f"- {TRUE}\n- {FALSE}", f"- Also: {TRUE}", f"- {TRUE}\n- Also: {TRUE}"),
        (f"- {TRUE}\n- {FALSE}", f"\n- Also: {TRUE}", f"- {TRUE}\n- Also: {TRUE}"),
        (f"{TRUE} {FALSE}", f"{TRUE} Also: {TRUE}", f"{TRUE} Also: {TRUE}"),
        (f"{TRUE} {FALSE}", "", TRUE),
        (f"{TRUE} {FALSE}", f"{TRUE}", TRUE),
    ],
)
async def test_the_new_text_follows_on_what_stands_and_repeats_none_of_it(first: str, second: str, shown: str) -> None:
    _, stream = await streamed(said(first), said(second) if second else said())
    assert text_of(stream) == shown
    assert finish_of(stream) == ["stop"]


async def test_places_are_those_of_the_delivered_text() -> None:
    _, stream = await streamed(said(f"{TRUE} ", FALSE), said(f"Hello! {TRUE}"))
    told = summary_of(stream)["claims"]
    assert [(claim["verdict"], claim.get("delivered", True)) for claim in told] == [
        ("supported", True),
        ("contradicted", False),
        ("supported", True),
    ]
    shown, span = text_of(stream), told[2]["span"]
    assert shown[span["start"] : span["end"]] == TRUE
    assert span["start"] > len(TRUE)
    assert summary_of(stream)["total_claims"] == 2


async def test_the_log_has_the_sentence_and_no_decision_can_be_made_of_it_again() -> None:
    at, _ = await streamed(said(f"{TRUE} ", FALSE), said(f"Rather: {TRUE}"))
    assert [(row.label, row.delivered, row.extra.get("retracted")) for row in at.event.claims] == [
        ("supported", True, None),
        ("contradicted", False, True),
        ("supported", True, None),
    ]
    assert all("verdict" not in row.extra for row in at.event.claims if not row.delivered)
    assert at.event.request.action == "allow"


async def test_it_is_asked_as_often_as_the_rule_says_and_no_more() -> None:
    rules = RULES | {"max_regenerations": 2}
    at, stream = await streamed(*[said(f"{TRUE} ", FALSE)] * 3, rules=rules)
    assert len(at.forwarded) == 3
    assert (text_of(stream), finish_of(stream)) == (f"{TRUE} Ask HR.", ["content_filter"])
    assert summary_of(stream)["regenerations"] == 2
    assert (at.event.request.status, at.event.request.regenerations) == ("blocked", 2)


async def test_it_is_never_asked_by_default() -> None:
    at, stream = await streamed(said(FALSE), rules={"contradiction_action": "block", "min_citations": 0})
    assert len(at.forwarded) == 1
    assert "regenerations" not in summary_of(stream)


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"unverifiable_action": "strip", "max_unverifiable_ratio": 1.0}, UNKNOWN),
        ({"contradiction_action": "correct"}, FALSE),
        ({"action_on_violation": "block"}, UNKNOWN),
    ],
)
async def test_every_sentence_that_cannot_go_out_as_it_is_may_be_asked_for_anew(
    rules: dict[str, Any], sentence: str
) -> None:
    wanted = {"max_regenerations": 1, "min_citations": 0} | rules
    at, stream = await streamed(said(f"{TRUE} ", sentence), said(f"Rather: {TRUE}"), rules=wanted)
    assert text_of(stream) == f"{TRUE} Rather: {TRUE}"
    assert len(at.forwarded) == 2


async def test_a_sentence_that_nobody_could_judge_is_not_asked_for_anew() -> None:
    judge = ScriptedJudge(error=RuntimeError("no"))
    rules = {"max_regenerations": 1, "unverifiable_action": "strip"}
    at = await bench(said(TRUE), policy(**rules), judge=judge)
    await at.stream()
    assert len(at.forwarded) == 1


async def test_a_reply_that_was_to_be_blocked_whatever_it_says_is_not_asked_for_anew() -> None:
    rules = {"max_regenerations": 1, "score_source": "reported", "action_on_violation": "block"}
    reported = {"reported": {"grounding_scores": [0.1]}}
    at, stream = await streamed(said(TRUE), rules=rules, grounding=reported)
    assert (len(at.forwarded), finish_of(stream)) == (0, ["content_filter"])


class TestFailures:
    @pytest.mark.parametrize(
        "failure", [httpx.Response(500, json={"error": {"message": "no"}}), httpx.Response(429, json={})]
    )
    async def test_where_the_upstream_refuses_the_policys_action_stands(self, failure: httpx.Response) -> None:
        rules = RULES | {"max_regenerations": 3}
        at = await bench(
            lambda request: (
                httpx.Response(200, headers={"content-type": "text/event-stream"}, content=said(f"{TRUE} ", FALSE))
                if "Left out" not in request.content.decode()
                else httpx.Response(failure.status_code, json={})
            ),
            policy(**rules),
        )
        stream = await at.stream()
        assert (text_of(stream), finish_of(stream)) == (f"{TRUE} Ask HR.", ["content_filter"])
        assert at.event.request.regenerations == 0

    async def test_a_sentence_that_is_left_out_leaves_the_first_reply_to_go_on(self) -> None:
        rules = {"max_regenerations": 1, "unverifiable_action": "strip", "max_unverifiable_ratio": 1.0}
        first = said(f"{TRUE} ", f"{UNKNOWN} ", f"Also: {TRUE}")
        _, stream = await streamed(first, httpx.Response(400, json={}), rules=rules)
        assert text_of(stream) == f"{TRUE} Also: {TRUE}"
        assert summary_of(stream)["stripped_count"] == 1

    async def test_a_reply_that_breaks_off_the_second_time_is_incomplete(self) -> None:
        at, stream = await streamed(said(f"{TRUE} ", FALSE), said("It is so.", finish=None))
        assert text_of(stream) == f"{TRUE} It is so."
        assert any(isinstance(frame, dict) and "error" in frame for frame in stream)
        assert at.event.request.status == "incomplete"


class TestUsage:
    async def test_counts_of_all_calls_are_added_up(self) -> None:
        detailed = {
            **USAGE,
            "usage": {**USAGE["usage"], "completion_tokens_details": {"reasoning_tokens": 2}, "cost": 0.5},
        }
        first = sse(chunk({"content": f"{TRUE} {FALSE}"}), chunk({}, "stop"), detailed)
        second = sse(chunk({"content": TRUE}), chunk({}, "stop"), detailed)
        at, stream = await streamed(first, second, stream_options={"include_usage": True})
        (usage,) = [frame["usage"] for frame in stream if isinstance(frame, dict) and frame.get("usage")]
        # The first call was left before it could say what it took, or it had said it: that is a matter of timing, so
        # only what the second adds is certain.
        assert usage["prompt_tokens"] > 7
        assert usage["completion_tokens"] > 5
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        row = at.event.request
        assert (row.prompt_tokens, row.completion_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])

    async def test_a_call_that_was_left_early_is_counted_by_its_text(self) -> None:
        async def endless() -> AsyncIterator[bytes]:
            yield said(f"{TRUE} ", f"{FALSE} Also", finish=None)
            await asyncio.Event().wait()

        def answer(request: httpx.Request) -> httpx.Response:
            stream = {"content-type": "text/event-stream"}
            if "Left out" in request.content.decode():
                return httpx.Response(200, headers=stream, content=said(TRUE, usage=True))
            return httpx.Response(200, headers=stream, content=endless())

        at = await bench(answer, policy(**RULES))
        stream = await at.stream(stream_options={"include_usage": True})
        (usage,) = [frame["usage"] for frame in stream if isinstance(frame, dict) and frame.get("usage")]
        received = round(len(f"{TRUE} {FALSE} Also") / 4)
        asked = round(len("How much leave?") / 4)
        assert (usage["completion_tokens"], usage["prompt_tokens"]) == (5 + received, 7 + asked)
        row = at.event.request
        assert (row.completion_tokens, row.prompt_tokens, row.usage_estimated) == (5 + received, 7 + asked, True)

    async def test_a_block_after_all_counts_every_call(self) -> None:
        at, stream = await streamed(said(FALSE), said(FALSE), stream_options={"include_usage": True})
        (usage,) = [frame["usage"] for frame in stream if isinstance(frame, dict) and frame.get("usage")]
        assert usage["completion_tokens"] == 2 * round(len(FALSE) / 4)
        assert at.event.request.completion_tokens == usage["completion_tokens"]


class TestTheStreamStaysOne:
    async def test_ids_and_role_are_those_of_the_first_call(self) -> None:
        second = [
            {**chunk(delta, finish), "id": "c-2", "created": 9, "system_fingerprint": "x", "x_new": 1}
            for delta, finish in [({"role": "assistant", "content": ""}, None), ({"content": TRUE}, None), ({}, "stop")]
        ]
        _, stream = await streamed(said(f"{TRUE} ", FALSE), sse(*second))
        chunks = [frame for frame in stream if isinstance(frame, dict)]
        assert {frame["id"] for frame in chunks} == {"c-1"}
        assert {frame["created"] for frame in chunks} == {1}
        roles = [choice["delta"].get("role") for frame in chunks for choice in frame["choices"]]
        assert roles.count("assistant") == 1

    async def test_log_probabilities_are_those_of_the_delivered_text(self) -> None:
        def tokens(*texts: str) -> list[dict[str, Any]]:
            made = [chunk({"content": text}) for text in texts]
            for frame, text in zip(made, texts, strict=True):
                frame["choices"][0]["logprobs"] = {"content": [{"token": text, "logprob": -0.1}]}
            return [*made, chunk({}, "stop")]

        words = [f"{word} " for word in f"{TRUE} {FALSE}".split()]
        again = [f"{word} " for word in f"Also: {TRUE}".split()]
        _, stream = await streamed(sse(*tokens(*words)), sse(*tokens(*again)))
        spelt = [
            entry["token"]
            for frame in stream
            if isinstance(frame, dict)
            for choice in frame["choices"]
            for entry in (choice.get("logprobs") or {}).get("content", ())
        ]
        assert "".join(spelt).split() == text_of(stream).split() == f"{TRUE} Also: {TRUE}".split()


class TestNotAvailable:
    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
            ({"functions": [{"name": "f"}]}, "tools"),
            ({"n": 2}, "choices"),
            ({"response_format": {"type": "json_object"}}, "json"),
            ({"modalities": ["text", "audio"]}, "audio"),
            ({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "So"}]}, "prefill"),
        ],
    )
    async def test_the_reply_says_why_and_the_policys_action_stands(self, fields: dict[str, Any], reason: str) -> None:
        at, stream = await streamed(said(f"{TRUE} ", FALSE), **fields)
        assert len(at.forwarded) == 1
        assert finish_of(stream) == ["content_filter"]
        told = [f["grounding"] for f in stream if isinstance(f, dict) and "verdict" in f.get("grounding", {})]
        assert told[0]["not_regenerated"] == reason

    async def test_text_that_is_out_cannot_be_taken_back(self) -> None:
        _, stream = await streamed(said(FALSE), rules=RULES | {"stream_mode": "live"})
        assert summary_of(stream)["not_regenerated"] == "live"

    async def test_nothing_is_said_of_it_where_nothing_failed(self) -> None:
        _, stream = await streamed(said(TRUE), n=2)
        assert "not_regenerated" not in summary_of(stream)


class TestTheClientGoesAway:
    async def test_whichever_call_runs_is_ended(self) -> None:
        closed: list[str] = []
        reached = asyncio.Event()

        def body(name: str, data: bytes) -> AsyncIterator[bytes]:
            async def chunks() -> AsyncIterator[bytes]:
                try:
                    yield data
                    if name == "second":
                        reached.set()
                    await asyncio.Event().wait()
                finally:
                    closed.append(name)

            return chunks()

        def answer(request: httpx.Request) -> httpx.Response:
            again = "Left out" in request.content.decode()
            data = said("It is" if again else f"{TRUE} {FALSE} Also", finish=None)
            content = body("second" if again else "first", data)
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=content)

        at = await bench(answer, policy(**RULES))
        reply = await at.ask(stream=True)
        assert reply.stream is not None

        async def consume() -> None:
            async for _ in reply.stream or ():
                pass

        async with asyncio.TaskGroup() as group:
            consuming = group.create_task(consume())
            await reached.wait()
            assert closed == ["first"]
            consuming.cancel()
        await reply.stream.aclose()
        assert sorted(closed) == ["first", "second"]
        assert at.event.request.status == "cancelled"

    async def test_while_the_second_is_not_answered_yet(self) -> None:
        asked = asyncio.Event()

        class Slow(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                if "Left out" in (await request.aread()).decode():
                    asked.set()
                    await asyncio.Event().wait()
                return httpx.Response(
                    200, headers={"content-type": "text/event-stream"}, content=said(f"{TRUE} {FALSE}")
                )

        at = await bench(said(), policy(**RULES), transport=Slow())
        reply = await at.ask(stream=True)
        assert reply.stream is not None

        async def consume() -> None:
            async for _ in reply.stream or ():
                pass

        async with asyncio.TaskGroup() as group:
            consuming = group.create_task(consume())
            await asked.wait()
            consuming.cancel()
        await reply.stream.aclose()
        assert at.event.request.status == "cancelled"


PARTS = st.sampled_from([TRUE, FALSE, UNKNOWN, "Hello!", f"\n- {TRUE}", f"\n- {FALSE}"])


@st.composite
def replies(draw: st.DrawFn) -> list[str]:
    text = " ".join(draw(st.lists(PARTS, min_size=1, max_size=5)))
    places = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=6))})
    return [text[a:b] for a, b in pairwise(places)]


@given(
    st.lists(replies(), min_size=3, max_size=3), st.sampled_from(["hold", "final"]), st.sampled_from(["block", "strip"])
)
@settings(max_examples=100)
async def test_streamed_or_not_and_whatever_the_cuts_it_comes_to_the_same(
    calls: Sequence[Sequence[str]], mode: str, action: str
) -> None:
    rules = RULES | {"max_regenerations": 2, "stream_mode": mode}
    if action == "strip":
        rules |= {"unverifiable_action": "strip", "max_unverifiable_ratio": 1.0}
    cut = await bench(answers(*(said(*pieces) for pieces in calls)), policy(**rules))
    uncut = await bench(answers(*(said("".join(pieces)) for pieces in calls)), policy(**rules))
    plain = await bench(answers(*(whole("".join(pieces)) for pieces in calls)), policy(**rules))
    first, second, body = await cut.stream(), await uncut.stream(), await plain.unary()
    assert text_of(first) == text_of(second)
    assert FALSE not in text_of(first)
    told = [summary_of(first), summary_of(second), body["grounding"]]
    assert len({json.dumps([(c["verdict"], c["claim"]) for c in summary["claims"]]) for summary in told[:2]}) == 1
    assert len({summary.get("regenerations") for summary in told}) == 1
    assert len({len(at.forwarded) for at in (cut, uncut, plain)}) == 1
    if mode == "final" or finish_of(first) == ["stop"]:
        assert body["choices"][0]["message"]["content"] == text_of(first)
