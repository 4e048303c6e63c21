"""Plain completions of upstreams that put text in unexpected fields: unjudged text isn't sent."""

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from app.errors import UpstreamConnectError
from app.protocols.common.known_fields import KnownFields
from app.protocols.common.logprobs import spelling, within
from app.protocols.openai_completions.fields import indices_of, rebuild
from tests.support.apis.completions_api import (
    BLOCK,
    HEAD,
    STRIP,
    USAGE,
    ask,
    choices_of,
    logprobs,
    part,
    stream,
    text_of,
    tokens,
    unary,
    whole,
)
from tests.support.gateways.in_process_gateway import FALSE, TRUE, UNKNOWN, Bench, bench, policy, sse, summary_of

pytestmark = pytest.mark.anyio

BOTH = f"{TRUE} {UNKNOWN}"
MARKS = ("40 days", "Bicycles")


def body_of(*choices: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {**HEAD, "choices": list(choices), "usage": USAGE, **fields}


def choice(text: Any = TRUE, index: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": "stop", **fields}


def says(**fields: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 0, "finish_reason": None, **fields}]}


async def strict(answer: Any, **fields: Any) -> Bench:
    return await bench(answer, policy(**{**STRIP, **BLOCK, **fields}))


async def raw_bench(body: bytes, kind: str = "application/json") -> Bench:
    return await strict(lambda _: httpx.Response(200, headers={"content-type": kind}, content=body))


def free_of_marks(told: Any) -> bool:
    return not any(mark in json.dumps(told) for mark in MARKS)


class TestWholeChoices:
    @pytest.mark.parametrize("index", [1, -1, True, 5, 0, None, "1"])
    async def test_surplus_choice_is_left_out(self, index: Any) -> None:
        body = await unary(await strict(body_of(choice(), choice(FALSE, index))))
        assert [(one["index"], one["text"]) for one in body["choices"]] == [(0, TRUE)]
        assert free_of_marks(body)

    @pytest.mark.parametrize("index", [1, True, -1, 5, None])
    async def test_only_choice_is_judged_under_any_index(self, index: Any) -> None:
        body = await unary(await strict(body_of(choice(FALSE, index))))
        assert [(one["index"], one["text"]) for one in body["choices"]] == [(0, "Please ask HR.")]

    async def test_reordered_choices_keep_their_index(self) -> None:
        at = await strict(body_of(choice(FALSE, 1), choice(TRUE, 0)))
        body = await unary(at, prompt=["a", "b"])
        assert [(one["index"], one["text"]) for one in body["choices"]] == [(1, "Please ask HR."), (0, TRUE)]

    @pytest.mark.parametrize("body", [{}, {"choices": None}, {"choices": FALSE}, {"choices": [5]}, {"x": FALSE}])
    async def test_malformed_completion_is_a_bad_gateway(self, body: dict[str, Any]) -> None:
        with pytest.raises(UpstreamConnectError, match="not a completion"):
            await unary(await strict({**HEAD, **body}))

    @pytest.mark.parametrize("body", [b"data: hello\n\ndata: [DONE]\n\n", b"data: [DONE]\n\n"])
    async def test_empty_stream_is_a_bad_gateway(self, body: bytes) -> None:
        with pytest.raises(UpstreamConnectError):
            await unary(await raw_bench(body, "text/event-stream"))

    @pytest.mark.parametrize(
        "body",
        [
            json.dumps({**whole(TRUE), "x": float("nan")}).encode(),
            json.dumps(whole(f"{TRUE} abc\ud83d")).encode(),
            json.dumps(whole(f"{TRUE} abcQ")).encode().replace(b"Q", b"\xff"),
        ],
        ids=["nan", "half-character", "bad-utf8"],
    )
    async def test_json_of_lenient_parsers_is_read(self, body: bytes) -> None:
        reply = await ask(await raw_bench(body))
        assert json.loads(reply.body)["choices"][0]["text"].startswith(TRUE)

    async def test_unexpected_untouched_stream_is_merged(self) -> None:
        data = sse(part("Hello"), {**HEAD, "choices": 5}, says(text=5), part(" there.", "length"))
        body = await unary(await bench(data), documents=None)
        assert body["choices"] == [{"index": 0, "text": "Hello there.", "logprobs": None, "finish_reason": "length"}]


BESIDE: list[dict[str, Any]] = [
    {"text": TRUE, "message": {"content": FALSE}},
    {"text": TRUE, "delta": {"content": FALSE}},
    {"text": None, "message": {"content": FALSE}},
    {"delta": {"content": FALSE}},
    {"text": "", "content": FALSE},
    {"text": "", "message": {"content": FALSE}, "finish_reason": "stop"},
    {"text": [FALSE]},
    {"text": "", FALSE: 1},
    {"text": "", "logprobs": {"content": [{"token": FALSE}]}},
    {"text": "", "finish_reason": FALSE},
    {"text": "", "finish_reason": [FALSE]},
]


class TestTextElsewhere:
    @pytest.mark.parametrize("mode", ["hold", "final"])
    @pytest.mark.parametrize("odd", BESIDE)
    async def test_unknown_fields_of_a_streamed_choice_are_left_out(self, odd: dict[str, Any], mode: str) -> None:
        end = () if odd.get("finish_reason") else (part("", "stop"),)
        received = await stream(await strict(sse(part(f"{TRUE} "), says(**odd), *end), stream_mode=mode))
        assert free_of_marks(received)
        judged = odd["text"] if isinstance(odd.get("text"), str) else ""
        assert text_of(received).strip() == f"{TRUE} {judged}".strip()
        assert summary_of(received)["not_checked"]

    @pytest.mark.parametrize("odd", BESIDE)
    async def test_unknown_fields_of_a_whole_choice_are_left_out(self, odd: dict[str, Any]) -> None:
        body = await unary(await strict(body_of({"index": 0, **odd})))
        assert free_of_marks(body)
        assert body["choices"][0]["text"] == (odd.get("text") if isinstance(odd.get("text"), str) else "")
        assert body["grounding"]["not_checked"]

    @pytest.mark.parametrize("name", ["message", "delta"])
    async def test_copy_of_removed_text_is_removed(self, name: str) -> None:
        body = await unary(await strict(body_of(choice(BOTH, **{name: {"content": BOTH}}))))
        assert (body["choices"][0]["text"], body["grounding"]["not_checked"]) == (TRUE, [name])
        assert free_of_marks(body)

    @pytest.mark.parametrize(
        ("odd", "name"),
        [
            ({**part(""), "text": FALSE}, "text"),
            ({**HEAD, "text": FALSE}, "text"),
            ({**HEAD, "choices": [], "text": FALSE}, "text"),
            ({**HEAD, "choices": None, "content": FALSE}, "content"),
            ({**HEAD, "choices": [], "usage": USAGE, "text": FALSE}, "text"),
            ({**HEAD, "choices": [], "usage": {**USAGE, "text": FALSE}}, "text"),
            ({**HEAD, "choices": [], "usage": FALSE}, "usage"),
            ({**HEAD, "choices": [], "id": FALSE}, "id"),
            ({**HEAD, "choices": FALSE}, "choices"),
        ],
    )
    async def test_unknown_fields_beside_the_choices_are_left_out(self, odd: dict[str, Any], name: str) -> None:
        received = await stream(await strict(sse(part(TRUE), odd, part("", "stop"))))
        assert free_of_marks(received)
        assert summary_of(received)["not_checked"] == [name]
        if not isinstance(odd.get("choices"), str):
            body = await unary(await strict({**body_of(choice()), **odd, "choices": [choice()]}))
            assert free_of_marks(body)
            assert body["grounding"]["not_checked"] == [name]

    async def test_unknown_fields_beside_an_error_are_left_out(self) -> None:
        error = {"message": "overloaded", "code": 1}
        received = await stream(await strict(sse(part(TRUE), {"error": error, "text": FALSE})))
        assert {"error": error} in received
        assert free_of_marks(received)

    async def test_unknown_fields_are_kept_without_a_policy(self) -> None:
        fields: dict[str, Any] = {"number": 1.5, "flag": True, "nothing": None, "empty": [], "note": "Any text."}
        body = await unary(await bench({**body_of(choice(**fields)), **fields}))
        for told in (body, body["choices"][0]):
            assert {name: told[name] for name in fields} == fields
        assert not body["grounding"].get("not_checked")

    async def test_configured_extra_fields_are_kept_under_a_policy(self) -> None:
        fields: dict[str, Any] = {"note": {"any": "text"}, "other": 1}
        at = await bench(
            {**body_of(choice(**fields)), **fields}, policy(**STRIP), settings={"keep_fields": "note,choices.note"}
        )
        body = await unary(at)
        for told in (body, body["choices"][0]):
            assert (told["note"], "other" in told) == ({"any": "text"}, False)

    @pytest.mark.parametrize("reason", [FALSE, ["stop"], "x" * 41])
    async def test_unpublished_finish_reason_becomes_stop(self, reason: Any) -> None:
        at = await strict(sse(part(TRUE), part("", reason)))
        assert choices_of(await stream(at))[-1]["finish_reason"] == "stop"
        assert at.event.request.finish_reason == "stop"

    async def test_malformed_model_name_becomes_unknown(self) -> None:
        at = await strict({**body_of(choice()), "model": FALSE})
        assert (await unary(at))["model"] == "unknown"
        assert at.event.request.resolved_model == "m"

    async def test_live_mode_leaves_unknown_fields_out(self) -> None:
        odd = says(text=TRUE, message={"content": "x"}, logprobs={"content": []})
        at = await bench(sse(odd, part("", "stop")), policy(stream_mode="live"))
        assert (await stream(at))[0] == says(text=TRUE, logprobs=None)

    @pytest.mark.parametrize("mode", ["hold", "live", "final"])
    @pytest.mark.parametrize(
        "frame",
        [f": {FALSE}\n\n", f"data: {FALSE}\n\n", f'data: {{"choices":[{{"index":0,"text":"{FALSE}","text":""}}]}}\n\n'],
        ids=["comment", "unreadable", "repeated key"],
    )
    async def test_text_in_other_frames_is_left_out(self, frame: str, mode: str) -> None:
        received = await stream(await strict(sse(frame, part(TRUE), part("", "stop")), stream_mode=mode))
        assert free_of_marks(received)
        assert text_of(received) == TRUE


class TestTokensOfOtherText:
    @pytest.mark.parametrize("text", [TRUE, ""])
    @pytest.mark.parametrize(
        "listed",
        [
            logprobs(FALSE),
            {"content": [{"token": FALSE, "logprob": -1}]},
            {**logprobs(*tokens(TRUE)), "text": FALSE},
            {**logprobs(*tokens(TRUE)), "top_logprobs": [{FALSE: -1.0}] * len(tokens(TRUE))},
        ],
        ids=["other-text", "chat-form", "extra-list", "alternatives"],
    )
    async def test_tokens_of_other_text_are_left_out(self, listed: dict[str, Any], text: str) -> None:
        received = await stream(await strict(sse(part(f"{TRUE} "), part(text, logprobs=listed), part("", "stop"))))
        assert free_of_marks(received)
        assert summary_of(received)["not_checked"] == ["logprobs"]
        body = await unary(await strict(body_of(choice(text, logprobs=listed))))
        assert free_of_marks(body)

    async def test_token_across_the_end_of_the_echo_is_left_out(self) -> None:
        text = f"How much leave? {FALSE}"
        answer = sse(part(text, logprobs=logprobs("How much", text.removeprefix("How much"))), part("", "stop"))
        received = await stream(await strict(answer), prompt="How much leave?", echo=True)
        assert choices_of(received)[0]["logprobs"]["tokens"] == ["How much"]
        assert free_of_marks(received)

    def test_lists_are_kept_if_they_spell_the_text(self) -> None:
        given = {**logprobs("a", " b"), "x": 1}
        assert spelling(given, "a b") == logprobs("a", " b")
        assert spelling(given, "a") is None
        assert spelling({**given, "tokens": ["a", 5]}, "a b") is None
        assert spelling({"tokens": [], "top_logprobs": None}, "") == {"tokens": [], "top_logprobs": None}

    def test_values_of_another_type_become_null(self) -> None:
        given = {"tokens": ["a"], "token_logprobs": ["x"], "top_logprobs": ["x"], "text_offset": [float("nan")]}
        assert spelling(given, "a") == {
            "tokens": ["a"],
            "token_logprobs": [None],
            "top_logprobs": [None],
            "text_offset": [None],
        }

    def test_token_belongs_where_it_begins_unless_it_contains_more(self) -> None:
        entries = [{"token": "ab"}, {"token": "c d"}, {"token": "e\n"}, {"token": "f"}]
        assert within(entries, "abc de\nf", 0, 4) == entries[:1]
        assert within(entries, "abc de\nf", 0, 6) == entries[:3]
        assert within(entries, "abc de\nf", 4, 8) == entries[2:]


class TestRebuild:
    def test_names_and_values_that_may_be_text_are_removed(self) -> None:
        fields = KnownFields()
        assert rebuild({"id": "cmpl-1", FALSE: 1, "note": "x", "usage": {**USAGE, "x": FALSE}}, fields) == {
            "id": "cmpl-1",
            "usage": USAGE,
        }
        assert fields.news() == ["other"]
        assert fields.news() == []

    @pytest.mark.parametrize(
        ("said", "expected"),
        [([0, 1], [0, 1]), ([1, 0], [1, 0]), ([0, 0], [0, 1]), ([0, True], [0, 1]), ([1, 2], [0, 1]), ([None], [0])],
    )
    def test_indices_count_only_if_they_separate_choices(self, said: list[Any], expected: list[int]) -> None:
        assert indices_of([{"index": index} for index in said]) == expected
