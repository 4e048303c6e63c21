"""The upstream is asked to continue after a failed sentence: its instructions, and the resulting reply."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judges.testing import ScriptedJudge, contradicts, entails
from tests.support.gateways.in_process_gateway import (
    FALSE,
    LINKED,
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
    """An upstream with one scripted answer per call."""
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


async def test_blocked_sentence_is_replaced_by_the_second_reply() -> None:
    _, stream = await streamed(said(f"{TRUE} ", f"{FALSE} ", UNKNOWN), said("It is ", f"so. {TRUE}"))
    assert text_of(stream) == f"{TRUE} It is so. {TRUE}"
    assert finish_of(stream) == ["stop"]
    assert stream[-1] == "[DONE]"
    summary = summary_of(stream)
    assert (summary["action"], summary["regenerations"]) == ("allow", 1)
    assert "block" not in [decision["action"] for decision in summary["decisions"]]
    assert FALSE not in json.dumps(stream)
    assert UNKNOWN not in text_of(stream)


async def test_whole_reply_is_regenerated_likewise() -> None:
    second = whole(f"Rather: {TRUE}")
    at = await bench(answers(whole(f"{TRUE} {FALSE}"), second), policy(**RULES))
    body = await at.unary()
    choice = body["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (f"{TRUE} Rather: {TRUE}", "stop")
    assert body["id"] == "c-1"
    assert body["usage"] == {"prompt_tokens": 14, "completion_tokens": 10, "total_tokens": 24}
    assert body["grounding"]["regenerations"] == 1


async def test_upstream_gets_the_released_text_and_the_fenced_failing_sentence() -> None:
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


async def test_model_text_cannot_close_the_fence() -> None:
    notes = []
    for _ in range(2):
        at, _stream = await streamed(said(f"{FALSE}"), said(TRUE))
        notes.append(bodies(at)[1]["messages"][-1]["content"])
    fences = [note.split("<<note ")[1].split(">>")[0] for note in notes]
    assert fences[0] != fences[1]
    assert all(len(fence) == 16 for fence in fences)


async def test_note_is_added_to_the_user_message_if_nothing_was_released() -> None:
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
async def test_documents_keep_their_position(where: str) -> None:
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
async def test_new_text_continues_the_released_text_without_repeating_it(first: str, second: str, shown: str) -> None:
    _, stream = await streamed(said(first), said(second) if second else said())
    assert text_of(stream) == shown
    assert finish_of(stream) == ["stop"]


ORION, NOVA, OLD = "The Orion lamp is made of brass.", "The Nova lamp is made of glass.", "It is very old."


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("second", "shown"),
    [
        (OLD, f"{NOVA} {ORION} {OLD}"),
        (f"{NOVA} {OLD}", f"{NOVA} {ORION} {OLD}"),
        (f"{NOVA} {ORION} {OLD}", f"{NOVA} {ORION} {OLD}"),
        (f"{ORION} {OLD}", f"{NOVA} {ORION} {ORION} {OLD}"),
        (f"{NOVA} {NOVA} {OLD}", f"{NOVA} {ORION} {NOVA}"),
    ],
)
async def test_repeated_sentences_are_no_context(second: str, shown: str, stream: bool) -> None:
    first = f"{NOVA} {ORION} {FALSE}"
    known = {NOVA: entails(), ORION: entails(), FALSE: contradicts()}
    known |= {f"{ORION} {OLD}": entails()}
    rules = RULES | {"unverifiable_action": "strip", "max_unverifiable_ratio": 1.0}
    made: Callable[[str], Answer] = said if stream else whole
    at = await bench(answers(made(first), made(second)), policy(**rules), judge=ScriptedJudge(known))
    if stream:
        assert text_of(await at.stream()) == shown
    else:
        assert (await at.unary())["choices"][0]["message"]["content"] == shown


async def test_positions_refer_to_the_delivered_text() -> None:
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


async def test_log_contains_the_sentence_without_affecting_replays() -> None:
    at, _ = await streamed(said(f"{TRUE} ", FALSE), said(f"Rather: {TRUE}"))
    assert [(row.label, row.delivered, row.extra.get("retracted")) for row in at.event.claims] == [
        ("supported", True, None),
        ("contradicted", False, True),
        ("supported", True, None),
    ]
    assert all("verdict" not in row.extra for row in at.event.claims if not row.delivered)
    assert at.event.request.action == "allow"


async def test_regeneration_count_is_limited_by_the_rule() -> None:
    rules = RULES | {"max_regenerations": 2}
    at, stream = await streamed(*[said(f"{TRUE} ", FALSE)] * 3, rules=rules)
    assert len(at.forwarded) == 3
    assert (text_of(stream), finish_of(stream)) == (f"{TRUE} Ask HR.", ["content_filter"])
    assert summary_of(stream)["regenerations"] == 2
    assert (at.event.request.status, at.event.request.regenerations) == ("blocked", 2)


async def test_regeneration_is_off_by_default() -> None:
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
async def test_every_undeliverable_sentence_can_be_regenerated(rules: dict[str, Any], sentence: str) -> None:
    wanted = {"max_regenerations": 1, "min_citations": 0} | rules
    at, stream = await streamed(said(f"{TRUE} ", sentence), said(f"Rather: {TRUE}"), rules=wanted)
    assert text_of(stream) == f"{TRUE} Rather: {TRUE}"
    assert len(at.forwarded) == 2


async def test_unjudgeable_sentence_is_not_regenerated() -> None:
    judge = ScriptedJudge(error=RuntimeError("no"))
    rules = {"max_regenerations": 1, "unverifiable_action": "strip"}
    at = await bench(said(TRUE), policy(**rules), judge=judge)
    await at.stream()
    assert len(at.forwarded) == 1


async def test_reply_that_must_be_blocked_anyway_is_not_regenerated() -> None:
    rules = {"max_regenerations": 1, "score_source": "reported", "action_on_violation": "block"}
    reported = {"reported": {"grounding_scores": [0.1]}}
    at, stream = await streamed(said(TRUE), rules=rules, grounding=reported)
    assert (len(at.forwarded), finish_of(stream)) == (0, ["content_filter"])


class TestFailures:
    @pytest.mark.parametrize(
        "failure", [httpx.Response(500, json={"error": {"message": "no"}}), httpx.Response(429, json={})]
    )
    async def test_action_of_the_policy_applies_if_the_upstream_refuses(self, failure: httpx.Response) -> None:
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

    async def test_stripped_sentence_lets_the_first_reply_continue(self) -> None:
        rules = {"max_regenerations": 1, "unverifiable_action": "strip", "max_unverifiable_ratio": 1.0}
        first = said(f"{TRUE} ", f"{UNKNOWN} ", f"Also: {TRUE}")
        _, stream = await streamed(first, httpx.Response(400, json={}), rules=rules)
        assert text_of(stream) == f"{TRUE} Also: {TRUE}"
        assert summary_of(stream)["stripped_count"] == 1

    @pytest.mark.parametrize("mode", ["hold", "final"])
    @pytest.mark.parametrize("texts", [("It is so.",), ()])
    async def test_second_reply_without_a_finish_reason_is_complete(self, texts: Sequence[str], mode: str) -> None:
        again = said(*texts, finish=None) + b"data: [DONE]\n\n"
        at, stream = await streamed(said(f"{TRUE} ", FALSE), again, rules=RULES | {"stream_mode": mode})
        assert text_of(stream).strip() == " ".join([TRUE, *texts])
        assert (finish_of(stream), stream[-1]) == (["stop"], "[DONE]")
        assert (summary_of(stream)["regenerations"], at.event.request.status) == (1, "completed")

    async def test_interrupted_second_reply_is_incomplete(self) -> None:
        at, stream = await streamed(said(f"{TRUE} ", FALSE), said("It is so.", finish=None))
        assert text_of(stream) == f"{TRUE} It is so."
        assert any(isinstance(frame, dict) and "error" in frame for frame in stream)
        assert at.event.request.status == "incomplete"


class TestUsage:
    async def test_usage_of_all_calls_is_added_up(self) -> None:
        detailed = {
            **USAGE,
            "usage": {**USAGE["usage"], "completion_tokens_details": {"reasoning_tokens": 2}, "cost": 0.5},
        }
        first = sse(chunk({"content": f"{TRUE} {FALSE}"}), chunk({}, "stop"), detailed)
        second = sse(chunk({"content": TRUE}), chunk({}, "stop"), detailed)
        at, stream = await streamed(first, second, stream_options={"include_usage": True})
        (usage,) = [frame["usage"] for frame in stream if isinstance(frame, dict) and frame.get("usage")]
        # Whether the first call reported its usage before it was cancelled depends on timing, so only the usage of the
        # second call is certain.
        assert usage["prompt_tokens"] > 7
        assert usage["completion_tokens"] > 5
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        row = at.event.request
        assert (row.prompt_tokens, row.completion_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])

    async def test_cancelled_call_is_counted_by_its_text(self) -> None:
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

    async def test_final_block_counts_every_call(self) -> None:
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


CALL = {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
OTHER: dict[str, dict[str, Any]] = {
    "tool_calls": CALL,
    "function_call": {"function_call": {"name": "f", "arguments": "{}"}},
    "refusal": {"refusal": "I won't say."},
    "audio": {"audio": {"id": "a-1", "data": "UklGRg==", "expires_at": 1}},
}
"""Content of each kind that a chat reply can have besides text and reasoning."""


@pytest.mark.parametrize("mode", ["hold", "final"])
@pytest.mark.parametrize("kind", OTHER)
class TestOtherContent:
    async def test_reply_is_not_replaced_after_other_content_was_sent(self, kind: str, mode: str) -> None:
        first = sse(chunk({"content": f"{TRUE} "}), chunk(OTHER[kind]), chunk({"content": FALSE}), chunk({}, "stop"))
        at, stream = await streamed(first, said(TRUE), rules=RULES | {"stream_mode": mode})
        assert (len(at.forwarded), finish_of(stream)) == (1, ["content_filter"])
        assert summary_of(stream)["not_regenerated"] == "content"

    async def test_content_after_the_replaced_sentence_is_not_sent(self, kind: str, mode: str) -> None:
        first = sse(chunk({"content": f"{TRUE} "}), chunk({"content": FALSE}), chunk(OTHER[kind]), chunk({}, "stop"))
        _, stream = await streamed(first, said(TRUE), rules=RULES | {"stream_mode": mode})
        assert summary_of(stream)["regenerations"] == 1
        assert not any(kind in choice["delta"] for frame in stream[:-1] for choice in frame["choices"])
        assert "not_checked" not in summary_of(stream)

    async def test_content_of_a_replaced_whole_reply_is_not_sent(self, kind: str, mode: str) -> None:
        at = await bench(answers(whole(f"{TRUE} {FALSE}", **OTHER[kind]), whole(f"Rather: {TRUE}")), policy(**RULES))
        body = await at.unary()
        assert body["grounding"]["regenerations"] == 1
        assert body["choices"][0]["message"] == {"role": "assistant", "content": f"{TRUE} Rather: {TRUE}"}


async def test_citation_of_the_replaced_text_does_not_count() -> None:
    place = {"start_index": len(TRUE) + 1, "end_index": len(TRUE) + 5, "url": "https://hr.test/7", "title": "HR"}
    note = {"annotations": [{"type": "url_citation", "url_citation": place}]}
    rules = RULES | {"min_citations": 1, "action_on_violation": "block"}
    first = sse(chunk({"content": f"{TRUE} "}), chunk({"content": FALSE}), chunk(note), chunk({}, "stop"))
    _, stream = await streamed(first, said(TRUE), rules=rules, documents=LINKED)
    assert finish_of(stream) == ["content_filter"]


@pytest.mark.parametrize("whole_reply", [True, False])
async def test_error_in_the_further_reply_is_forwarded(whole_reply: bool) -> None:
    error = {"error": {"message": "overloaded", "type": "server_error"}}
    at, stream = await streamed(said(f"{TRUE} ", FALSE), error if whole_reply else sse(chunk({"content": TRUE}), error))
    assert error in stream
    assert at.event.request.status == "upstream_error"


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
    async def test_unavailable_regeneration_is_explained_and_the_action_applies(
        self, fields: dict[str, Any], reason: str
    ) -> None:
        at, stream = await streamed(said(f"{TRUE} ", FALSE), **fields)
        assert len(at.forwarded) == 1
        assert finish_of(stream) == ["content_filter"]
        told = [f["grounding"] for f in stream if isinstance(f, dict) and "verdict" in f.get("grounding", {})]
        assert told[0]["not_regenerated"] == reason

    async def test_delivered_text_cannot_be_regenerated(self) -> None:
        _, stream = await streamed(said(FALSE), rules=RULES | {"stream_mode": "live"})
        assert summary_of(stream)["not_regenerated"] == "live"

    async def test_unavailability_is_not_mentioned_unless_something_failed(self) -> None:
        _, stream = await streamed(said(TRUE), n=2)
        assert "not_regenerated" not in summary_of(stream)


class TestTheClientGoesAway:
    async def test_running_call_is_cancelled(self) -> None:
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

    async def test_pending_second_call_is_cancelled(self) -> None:
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
async def test_streamed_and_unary_replies_agree_for_any_chunking(
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
