"""Chat completions are rebuilt from known fields under a grounding policy, and unchanged without one."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import httpx
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.support.gateways.in_process_gateway import (
    DOCUMENTS,
    FALSE,
    TRUE,
    Bench,
    bench,
    chunk,
    finish_of,
    frames,
    policy,
    sse,
    summary_of,
    text_of,
    whole,
)

pytestmark = pytest.mark.anyio

MARK = "Zebras"
UNREAD = f"{MARK} take eight tablets."
RULES: dict[str, Any] = {"contradiction_action": "block", "unverifiable_action": "strip", "max_unverifiable_ratio": 1}
LINKED = [{**DOCUMENTS[0], "url": "https://example.org/hr"}]
MODES = pytest.mark.parametrize("mode", ["hold", "live", "final"])

OF_A_MESSAGE: dict[str, dict[str, Any]] = {
    "unknown field": {"note": UNREAD},
    "unknown object": {"vendor": {"note": [UNREAD]}},
    "a name that is text": {UNREAD: 1},
    "text beside content": {"text": UNREAD},
    "role": {"role": UNREAD},
    "role list": {"role": [UNREAD]},
    "audio transcript": {"audio": {"id": "audio_1", "expires_at": 1, "data": "aGk=", "transcript": UNREAD}},
    "audio data": {"audio": {"id": "audio_1", "expires_at": 1, "data": UNREAD, "transcript": ""}},
    "annotation title": {
        "annotations": [{"type": "url_citation", "url_citation": {"url": "https://x.example", "title": UNREAD}}]
    },
    "tool call": {
        "tool_calls": [
            {"index": 0, "id": UNREAD, "type": UNREAD, "note": UNREAD, "function": {"name": UNREAD, "arguments": "{}"}}
        ]
    },
    "function call": {"function_call": {"name": UNREAD, "arguments": "{}", "note": UNREAD}},
    "reasoning details": {"reasoning_details": [{"type": "reasoning.text", "text": UNREAD}]},
    "images": {"images": [{"type": "image_url", "image_url": {"url": UNREAD}}]},
}
PARTS: dict[str, Any] = {
    "output text": {"type": "output_text", "text": UNREAD},
    "no type": {"text": UNREAD},
    "unknown type": {"type": UNREAD, "text": UNREAD},
    "refusal": {"type": "refusal", "refusal": UNREAD},
    "bare string": UNREAD,
    "extra": {"type": "text", "text": "", "note": UNREAD},
}
OF_A_CHOICE: dict[str, dict[str, Any]] = {
    "unknown field": {"note": UNREAD},
    "text": {"text": UNREAD},
    "finish reason": {"finish_reason": UNREAD},
    "finish reason list": {"finish_reason": [UNREAD]},
    "stop reason": {"stop_reason": UNREAD},
    "filter results": {"content_filter_results": {"hate": {"filtered": False, "severity": UNREAD}, "x": UNREAD}},
    "legacy logprobs": {"logprobs": {"tokens": [UNREAD], "token_logprobs": [-1.0], "text_offset": [0]}},
    "logprobs of other text": {
        "logprobs": {"content": [{"token": UNREAD, "logprob": -1, "bytes": None, "top_logprobs": []}]}
    },
    "logprobs of a refusal": {
        "logprobs": {"refusal": [{"token": UNREAD, "logprob": -1, "bytes": None, "top_logprobs": []}]}
    },
}
OF_A_FRAME: dict[str, dict[str, Any]] = {
    "unknown field": {"note": UNREAD},
    "citations": {"citations": [UNREAD], "search_results": [{"title": UNREAD}]},
    "id": {"id": UNREAD},
    "object": {"object": UNREAD},
    "created": {"created": UNREAD},
    "fingerprint": {"system_fingerprint": UNREAD},
    "tier": {"service_tier": UNREAD},
    "usage": {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "note": UNREAD, "total_tokens": UNREAD}},
    "usage as text": {"usage": UNREAD},
    "groq": {"x_groq": {"id": "req_1", "error": UNREAD}},
    "prompt filter": {"prompt_filter_results": [{"prompt_index": 0, "note": UNREAD}]},
}  # fmt: skip


async def guarded(answer: Any, mode: str = "hold", **settings: Any) -> Bench:
    return await bench(answer, policy(stream_mode=mode, **RULES), settings=settings)


def changed(odd: Mapping[str, Any], *, choice: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk whose delta has ``odd`` beside its text."""
    made = chunk({"content": f"{TRUE} ", **odd}, **fields)
    made["choices"][0].update(choice or {})
    return made


def rows(table: Mapping[str, Any]) -> Any:
    return pytest.mark.parametrize("odd", table.values(), ids=table)


class TestStreamed:
    async def check(self, odd: dict[str, Any], mode: str) -> None:
        at = await guarded(sse(odd, chunk({"content": TRUE}), chunk({}, "stop")), mode)
        data = await at.stream_bytes(documents=LINKED)
        assert MARK not in data.decode()
        received = frames(data)
        assert text_of(received).startswith(TRUE)
        for each in received:
            if isinstance(each, dict):
                ChatCompletionChunk.model_validate(each)

    @MODES
    @rows(OF_A_MESSAGE)
    async def test_unknown_fields_of_a_delta_are_left_out(self, odd: dict[str, Any], mode: str) -> None:
        await self.check(changed(odd), mode)
        await self.check(chunk(odd), mode)

    @MODES
    @rows(PARTS)
    async def test_unknown_content_parts_are_left_out(self, odd: Any, mode: str) -> None:
        await self.check(chunk({"content": [odd, {"type": "text", "text": f"{TRUE} "}]}), mode)

    @MODES
    @rows(OF_A_CHOICE)
    async def test_unknown_fields_of_a_choice_are_left_out(self, odd: dict[str, Any], mode: str) -> None:
        await self.check(changed({}, choice=odd), mode)

    @MODES
    @rows(OF_A_FRAME)
    async def test_unknown_fields_of_a_frame_are_left_out(self, odd: dict[str, Any], mode: str) -> None:
        await self.check(changed({}, **odd), mode)
        await self.check({**chunk({}), "choices": [], **odd}, mode)

    @MODES
    @pytest.mark.parametrize(
        "frame",
        [
            f": {UNREAD}\n\n",
            f": {UNREAD}\ndata: {json.dumps(chunk({'role': 'assistant'}))}\n\n",
            f"event: {UNREAD}\nid: {UNREAD}\ndata: {json.dumps(chunk({'content': ''}))}\n\n",
            f"data: {UNREAD}\n\n",
            f"data: [{json.dumps(UNREAD)}]\n\n",
            f'data: {{"choices":"{UNREAD}"}}\n\n',
            f'data: {{"choices":["{UNREAD}"]}}\n\n',
            f'data: {{"choices":[{{"index":0,"delta":"{UNREAD}"}}]}}\n\n',
            f'data: {{"choices":[{{"index":0,"delta":{{"content":"{UNREAD}","content":""}}}}]}}\n\n',
            f'data: {{"id":"{UNREAD}","id":"c-1","choices":[]}}\n\n',
            f'data: {{"note":"{UNREAD}"}}\n\n',
        ],
    )
    async def test_text_in_other_frames_is_left_out(self, frame: str, mode: str) -> None:
        at = await guarded(sse(frame, chunk({"content": TRUE}), chunk({}, "stop"), f": {UNREAD}\n"), mode)
        data = await at.stream_bytes()
        assert MARK not in data.decode()
        assert text_of(frames(data)) == TRUE

    async def test_unknown_fields_of_the_final_frame_are_left_out(self) -> None:
        data = sse(chunk({"content": TRUE}), chunk({}, "stop"), done=False) + f": {UNREAD}\ndata: [DONE]\n\n".encode()
        received = await (await guarded(data)).stream_bytes()
        assert MARK not in received.decode()
        assert received.endswith(b"data: [DONE]\n\n")

    async def test_unknown_fields_of_an_error_are_left_out(self) -> None:
        error = {"message": "overloaded", "type": UNREAD, "code": UNREAD, "metadata": {"raw": UNREAD}}
        received = await (await guarded(sse(chunk({"content": TRUE}), {"error": error, "note": UNREAD}))).stream_bytes()
        assert MARK not in received.decode()
        assert {"error": {"message": "overloaded"}} in frames(received)

    @pytest.mark.parametrize("error", [[UNREAD], {"note": UNREAD}])
    async def test_error_without_a_message_gets_one(self, error: Any) -> None:
        received = await (await guarded(sse(chunk({"content": TRUE}), {"error": error}))).stream_bytes()
        assert MARK not in received.decode()
        assert b"The upstream reported an error." in received

    @pytest.mark.parametrize(
        ("said", "expected"),
        [("stop", "stop"), ("max_tokens", "length"), ("eos", "stop"), (UNREAD, "stop"), ("tool_use", "tool_calls")],
    )
    async def test_finish_reasons_are_published_ones(self, said: str, expected: str) -> None:
        received = await (await guarded(sse(chunk({"content": TRUE}), chunk({}, said)))).stream()
        assert finish_of(received) == [expected]


class TestWhole:
    async def check(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await (await guarded(body)).ask(documents=LINKED)
        assert MARK not in answer.body.decode()
        made = dict(json.loads(answer.body))
        ChatCompletion.model_validate(made)
        assert made["choices"][0]["message"]["role"] == "assistant"
        return made

    @rows(OF_A_MESSAGE)
    async def test_unknown_fields_of_a_message_are_left_out(self, odd: dict[str, Any]) -> None:
        made = await self.check(whole(TRUE, **odd))
        assert made["choices"][0]["message"]["content"] == TRUE

    @rows(PARTS)
    async def test_unknown_content_parts_are_left_out(self, odd: Any) -> None:
        body = whole("")
        body["choices"][0]["message"]["content"] = [odd, {"type": "text", "text": TRUE}]
        answer = await (await guarded(body)).ask()
        assert MARK not in answer.body.decode()
        assert json.loads(answer.body)["choices"][0]["message"]["content"] == TRUE

    @rows(OF_A_CHOICE)
    async def test_unknown_fields_of_a_choice_are_left_out(self, odd: dict[str, Any]) -> None:
        body = whole(TRUE)
        body["choices"][0].update(odd)
        await self.check(body)

    @rows(OF_A_FRAME)
    async def test_unknown_fields_beside_the_choices_are_left_out(self, odd: dict[str, Any]) -> None:
        answer = await (await guarded({**whole(TRUE), **odd})).ask()
        assert MARK not in answer.body.decode()

    async def test_judged_value_of_a_duplicate_key_is_sent(self) -> None:
        data = json.dumps(whole(TRUE)).replace('"content":', f'"content": "{UNREAD}", "content":').encode()

        def answer(_: Any) -> Any:
            return httpx.Response(200, headers={"content-type": "application/json"}, content=data)

        made = await (await guarded(answer)).ask()
        assert MARK not in made.body.decode()
        assert json.loads(made.body)["choices"][0]["message"]["content"] == TRUE


class TestBlocked:
    BESIDE: ClassVar[dict[str, Any]] = {
        "refusal": UNREAD,
        "reasoning_content": UNREAD,
        "audio": {"id": "audio_1", "data": "aGk=", "transcript": UNREAD, "expires_at": 1},
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": UNREAD}}],
        "annotations": [{"type": "url_citation", "url_citation": {"url": "https://x.example/zebra", "title": UNREAD}}],
    }  # fmt: skip

    async def test_nothing_of_the_message_is_sent(self) -> None:
        answer = await (await guarded(whole(FALSE, **self.BESIDE))).ask()
        assert MARK not in answer.body.decode()
        (choice,) = json.loads(answer.body)["choices"]
        message = choice["message"]
        assert choice["finish_reason"] == "content_filter"
        assert set(message) == {"role", "content", "refusal"}
        assert message["refusal"] is None

    @pytest.mark.parametrize("mode", ["hold", "final"])
    async def test_nothing_follows_in_a_stream(self, mode: str) -> None:
        after = {name: value for name, value in self.BESIDE.items() if name != "tool_calls"}
        call = {"tool_calls": [{"index": 0, **self.BESIDE["tool_calls"][0]}]}
        at = await guarded(sse(chunk({"content": f"{FALSE} "}), chunk(after), chunk(call), chunk({}, "stop")), mode)
        data = await at.stream_bytes()
        assert MARK not in data.decode()
        assert finish_of(frames(data)) == ["content_filter"]


def token(word: str, **fields: Any) -> dict[str, Any]:
    return {"token": word, "logprob": -0.5, "bytes": list(word.encode()), "top_logprobs": [], **fields}


def with_tokens(text: str, *tokens: dict[str, Any]) -> dict[str, Any]:
    made = chunk({"content": text})
    made["choices"][0]["logprobs"] = {"content": list(tokens), "refusal": None}
    return made


def tokens_in(received: Any) -> list[str]:
    choices = [choice for each in received if isinstance(each, dict) for choice in each["choices"]]
    return [entry["token"] for choice in choices for entry in (choice.get("logprobs") or {}).get("content") or ()]


class TestLogProbabilities:
    @MODES
    async def test_tokens_are_sent_with_the_text_they_spell(self, mode: str) -> None:
        words = [token(word) for word in (TRUE[:10], TRUE[10:])]
        received = await (await guarded(sse(with_tokens(TRUE, *words), chunk({}, "stop")), mode)).stream()
        assert "".join(tokens_in(received)) == text_of(received) == TRUE

    @MODES
    @pytest.mark.parametrize(
        "tokens",
        [
            [token(TRUE), token(f" {UNREAD}")],
            [token(UNREAD)],
            [token(TRUE, bytes=list(UNREAD.encode()))],
            [{"token": TRUE, "logprob": UNREAD, "bytes": UNREAD, "note": UNREAD}],
            [token(TRUE, top_logprobs=[token(UNREAD)])],
        ],
        ids=["ahead", "other", "bytes", "odd values", "alternatives"],
    )
    async def test_tokens_that_do_not_spell_the_text_are_left_out(
        self, tokens: list[dict[str, Any]], mode: str
    ) -> None:
        data = await (await guarded(sse(with_tokens(TRUE, *tokens), chunk({}, "stop")), mode)).stream_bytes()
        assert MARK not in data.decode()
        assert str(list(UNREAD.encode()))[1:-1].replace(" ", "") not in data.decode()
        body = whole(TRUE)
        body["choices"][0]["logprobs"] = {"content": tokens, "refusal": tokens}
        answer = await (await guarded(body)).ask()
        assert MARK not in answer.body.decode()
        assert str(list(UNREAD.encode()))[1:-1].replace(" ", "") not in answer.body.decode()

    @MODES
    async def test_tokens_of_a_split_character_wait_for_the_rest(self, mode: str) -> None:
        train = "\U0001f686".encode()
        halves = [token("\\xf0\\x9f", bytes=list(train[:2])), token("\\x9a\\x86", bytes=list(train[2:]))]
        text = f" \U0001f686 {TRUE}"
        first, rest = with_tokens("", halves[0]), with_tokens("\U0001f686", halves[1])
        received = await (
            await guarded(sse(first, rest, chunk({"content": f" {TRUE}"}), chunk({}, "stop")), mode)
        ).stream()
        assert text_of(received) == text.lstrip()
        assert tokens_in(received) == [half["token"] for half in halves]

    async def test_tokens_without_following_text_are_left_out(self) -> None:
        data = sse(chunk({"content": TRUE}), *[with_tokens("", token(UNREAD))] * 99, chunk({}, "stop"))
        assert MARK not in (await (await guarded(data)).stream_bytes()).decode()


class TestWhatIsKept:
    async def test_configured_extra_fields_are_kept(self) -> None:
        kept = {"keep_fields": "provider, choices.delta.note"}
        at = await guarded(sse(changed({"note": "x"}, provider="p", other="y"), chunk({}, "stop")), **kept)
        received = [each for each in await at.stream() if isinstance(each, dict)]
        assert any(each.get("provider") == "p" for each in received)
        assert any(choice["delta"].get("note") == "x" for each in received for choice in each["choices"])
        assert not any("other" in each for each in received)

    async def test_documented_fields_are_kept(self) -> None:
        message = {
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "audio": {"id": "audio_1", "expires_at": 1, "data": "aGk=", "transcript": ""},
        }
        body = {**whole(TRUE, **message), "system_fingerprint": "fp_1", "service_tier": "default"}
        made = await (await guarded(body)).unary()
        assert {name: made["choices"][0]["message"][name] for name in message} == message
        assert {name: made[name] for name in body if name != "choices"} == {
            n: v for n, v in body.items() if n != "choices"
        }

    async def test_removed_fields_are_counted(self) -> None:
        at = await guarded(sse(": x\n\n", changed({"text": "y", "Take 8": 1}), chunk({}, "stop")))
        seen: list[tuple[str, str]] = []
        at.gateway = type(at.gateway)(
            **{
                **{n: getattr(at.gateway, n) for n in at.gateway.__slots__},
                "on_dropped_field": lambda *f: seen.append(f),
            }
        )
        await at.stream()
        assert seen == [("chat.completions", name) for name in ("comment", "text", "other")]

    @MODES
    async def test_everything_is_kept_without_a_grounding_policy(self, mode: str) -> None:
        at = await bench(sse(changed({"note": "x"}, provider="p"), chunk({}, "stop")))
        received = await at.stream()
        assert any(each.get("provider") == "p" for each in received if isinstance(each, dict))
        assert summary_of(received)
        data = sse(": note\n\n", changed({"note": "x"}), chunk({}, "stop"))
        assert await (await bench(data)).stream_bytes(documents=None) == data


class TestChunksAlike:
    """Most chunks differ from the previous one only in their text, so their fields aren't examined again."""

    @MODES
    @pytest.mark.parametrize("padded", [False, True])
    @pytest.mark.parametrize("tight", [False, True])
    async def test_equal_chunks_give_the_same_output_as_separate_decoding(
        self, mode: str, padded: bool, tight: bool
    ) -> None:
        words = ['Say "hi" ', "C:\\ \n", "caf\u00e9 ", "\U0001f686 ", "{}", '","content":"x', " ", "end."]
        chunks = [
            chunk({"content": word}, **({"obfuscation": "abc"[: n % 3 + 1]} if padded else {}))
            for n, word in enumerate(words)
        ]
        separators = (",", ":") if tight else None
        data = [
            f"data: {json.dumps(each, separators=separators, ensure_ascii=tight)}\n\n"
            for each in [*chunks, chunk({}, "stop")]
        ]
        at = await bench(sse(*data), policy(stream_mode=mode))
        received = await at.stream()
        assert text_of(received) == "".join(words)
        assert "obfuscation" not in json.dumps(received)

    @pytest.mark.parametrize(
        "odd",
        [
            '"content":"a","content":"b"',
            '"content":"","note":"b"',
            '"content":"a\\","note":"b"',
            '"content":"a"},"note":{"x":"b"',
            '"content":"\\q"',
        ],
    )
    async def test_chunks_with_extra_fields_are_not_equal(self, odd: str) -> None:
        frames_of = [json.dumps(chunk({"content": TRUE}), separators=(",", ":"))] * 2
        odd_frame = frames_of[0].replace(f'"content":"{TRUE}"', odd.replace("b", UNREAD))
        assert odd_frame != frames_of[0]
        at = await guarded(sse(*[f"data: {each}\n\n" for each in [*frames_of, odd_frame]], chunk({}, "stop")))
        received = await at.stream_bytes()
        assert MARK not in received.decode()
