"""Plain completions: streamed and whole, several prompts, echoed prompts, and log-probabilities in the legacy
format."""

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import UpstreamConnectError
from app.protocols.common.logprobs import entries_of, joined, logprobs_of
from app.protocols.openai_completions.adapter import CompletionsAdapter
from app.protocols.openai_completions.echo import Echo
from tests.support.apis.completions_api import (
    BLOCK,
    HEAD,
    STRIP,
    USAGE,
    ask,
    choices_of,
    forwarded,
    logprobs,
    part,
    stream,
    text_of,
    tokens,
    unary,
    whole,
)
from tests.support.gateways.in_process_gateway import FALSE, LINKED, TRUE, UNKNOWN, URL, bench, policy, sse, summary_of

pytestmark = pytest.mark.anyio


class TestWhole:
    async def test_reply_is_kept_with_its_findings(self) -> None:
        at = await bench(whole(TRUE))
        body = await unary(at, documents=LINKED)
        assert at.forwarded[0].url.path.endswith("/completions")
        assert (body["object"], body["usage"], body["x_vendor"]) == ("text_completion", USAGE, 1)
        (choice,) = body["choices"]
        assert (choice["text"], choice["finish_reason"]) == (TRUE, "stop")
        assert choice["annotations"][0]["url_citation"]["url"] == URL
        assert body["grounding"]["verdict"] == "supported"
        assert (at.event.request.api, at.event.request.reply is not None) == ("completions", True)

    async def test_blocked_reply_is_replaced(self) -> None:
        at = await bench(whole(f"{TRUE} {FALSE}", logprobs=logprobs("x")), policy(**BLOCK))
        (choice,) = (await unary(at))["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("Please ask HR.", "content_filter")
        assert choice["logprobs"] is None

    async def test_each_prompt_has_its_own_judged_choice(self) -> None:
        at = await bench(whole(TRUE, FALSE), policy(**BLOCK))
        body = await unary(at, prompt=["How much?", "How many?"])
        assert [choice["text"] for choice in body["choices"]] == [TRUE, "Please ask HR."]
        assert [claim["choice"] for claim in body["grounding"]["claims"]] == [0, 1]

    async def test_unexpected_stream_is_merged(self) -> None:
        at = await bench(
            sse(part(f"{TRUE} "), part(UNKNOWN), part("", "stop"), {**HEAD, "choices": [], "usage": USAGE})
        )
        body = await unary(at)
        assert [choice["text"] for choice in body["choices"]] == [f"{TRUE} {UNKNOWN}"]
        assert (body["choices"][0]["finish_reason"], body["usage"]) == ("stop", USAGE)

    async def test_log_probabilities_of_removed_text_are_removed(self) -> None:
        spoken = [*tokens(TRUE), *tokens(f" {UNKNOWN}")[1:], *tokens(f" {TRUE}")[1:]]
        at = await bench(whole("".join(spoken), logprobs=logprobs(*spoken, offset=15)), policy(**STRIP))
        (choice,) = (await unary(at))["choices"]
        assert choice["text"] == f"{TRUE} {TRUE}"
        kept = choice["logprobs"]
        assert "".join(kept["tokens"]) == choice["text"]
        assert kept["text_offset"] == logprobs(*kept["tokens"], offset=15)["text_offset"]
        assert {len(values) for values in kept.values()} == {len(kept["tokens"])}

    async def test_log_probabilities_of_unchanged_text_are_kept(self) -> None:
        given = logprobs(*tokens(TRUE), offset=15)
        at = await bench(whole(TRUE, logprobs=given))
        (choice,) = (await unary(at))["choices"]
        assert choice["logprobs"] == given


class TestStream:
    async def test_sentences_are_sent_one_by_one_with_their_claims(self) -> None:
        at = await bench(
            sse(part("Permanent staff receive 25 days "), part(f"of annual leave. {UNKNOWN}"), part("", "stop"))
        )
        received = await stream(at)
        assert [choice["text"] for choice in choices_of(received)] == [TRUE, f" {UNKNOWN}", ""]
        assert [choice["finish_reason"] for choice in choices_of(received)] == [None, None, "stop"]
        assert received[-1] == "[DONE]"
        first = received[0]
        assert isinstance(first, dict)
        assert (first["id"], first["object"]) == ("cmpl-1", "text_completion")
        assert first["grounding"]["claims"][0]["verdict"] == "supported"
        assert summary_of(received)["verdict"] == "has_unverifiable"

    async def test_no_character_of_a_blocked_sentence_is_sent(self) -> None:
        at = await bench(sse(part(f"{TRUE} "), part(f"{FALSE} "), part(UNKNOWN, "stop")), policy(**BLOCK))
        received = await stream(at, stream_options={"include_usage": True})
        assert text_of(received) == f"{TRUE} Please ask HR."
        assert "40 days" not in json.dumps(received)
        assert choices_of(received)[-1]["finish_reason"] == "content_filter"
        assert any(isinstance(frame, dict) and frame.get("usage") for frame in received)

    async def test_interleaved_choices_are_separated(self) -> None:
        at = await bench(
            sse(part(TRUE, index=0), part(FALSE, index=1), part("", "stop", 0), part("", "stop", 1)), policy(**BLOCK)
        )
        received = await stream(at, prompt=["a", "b"])
        assert (text_of(received, 0), text_of(received, 1)) == (TRUE, "Please ask HR.")

    async def test_live_mode_forwards_bytes_unchanged(self) -> None:
        at = await bench(sse(part(f"{TRUE} "), part(UNKNOWN), part("", "stop")), policy(stream_mode="live"))
        received = await stream(at)
        assert received[0] == part(f"{TRUE} ")
        assert text_of(received) == f"{TRUE} {UNKNOWN}"
        claims = [
            frame["grounding"]["claims"] for frame in received if isinstance(frame, dict) and "grounding" in frame
        ]
        assert [claim["verdict"] for claim in claims[0]] == ["supported"]

    async def test_log_probabilities_are_sent_with_their_text(self) -> None:
        spoken = tokens(f"{TRUE} {UNKNOWN}")
        listed = logprobs(*spoken)
        pieces = [
            part(token, logprobs={name: [values[position]] for name, values in listed.items()})
            for position, token in enumerate(spoken)
        ]
        received = await stream(await bench(sse(*pieces, part("", "stop"))))
        sent = [choice for choice in choices_of(received) if choice["text"]]
        assert ["".join(choice["logprobs"]["tokens"]) for choice in sent] == [TRUE, f" {UNKNOWN}"]
        assert joined(listed, [choice["logprobs"] for choice in sent]) == listed

    async def test_mid_stream_error_is_forwarded(self) -> None:
        at = await bench(sse(part(TRUE), {"error": {"message": "overloaded"}}, done=False))
        received = await stream(at)
        assert {"error": {"message": "overloaded"}} in received
        assert at.event.request.status == "upstream_error"

    async def test_nothing_is_changed_without_documents_and_policy(self) -> None:
        data = sse(part("Hello"), part(" there.", "stop"))
        at = await bench(data)
        reply = await ask(at, documents=None, stream=True)
        assert reply.stream is not None
        assert b"".join([piece async for piece in reply.stream]) == data
        await reply.stream.aclose()


class TestOddUpstreams:
    async def test_several_choices_in_one_chunk(self) -> None:
        both = {**HEAD, "choices": [part(TRUE, "stop", 0)["choices"][0], part(FALSE, "stop", 1)["choices"][0]]}
        received = await stream(await bench(sse(both), policy(**BLOCK)), prompt=["a", "b"])
        assert (text_of(received, 0), text_of(received, 1)) == (TRUE, "Please ask HR.")

    async def test_chunks_without_text_pass_unchanged(self) -> None:
        empty = {**HEAD, "choices": [{"text": "", "index": 0, "x": 1}, {"index": 1}]}
        at = await bench(sse(part("", x=1), empty, part(TRUE), part("", "stop", model="m-2")))
        received = await stream(at, prompt=["a", "b"])
        assert received[0] == part("", x=1)
        assert [choice.get("x") for choice in choices_of(received[1:3])] == [1, None]
        assert "".join(choice["text"] for choice in choices_of(received[3:])) == TRUE

    @pytest.mark.parametrize("choices", [5, "x", {"text": FALSE}, [FALSE], [{"index": 0, "text": [FALSE]}]])
    async def test_unjudgeable_text_is_not_sent(self, choices: Any) -> None:
        at = await bench(sse({**HEAD, "choices": choices}, part(TRUE, "stop")), policy(**BLOCK))
        received = await stream(at)
        assert text_of(received) == TRUE
        assert "40 days" not in json.dumps(received)

    async def test_error_carries_no_text(self) -> None:
        at = await bench(sse({**part(FALSE), "error": {"message": "overloaded"}}), policy(**BLOCK))
        assert "40 days" not in json.dumps(await stream(at))

    async def test_choices_without_an_index_are_numbered(self) -> None:
        body = whole(TRUE, FALSE)
        for choice in body["choices"]:
            choice["index"] = None
        at = await bench(body, policy(**BLOCK))
        assert [choice["text"] for choice in (await unary(at, n=2))["choices"]] == [TRUE, "Please ask HR."]

    async def test_malformed_text_is_no_text(self) -> None:
        for text in (None, 5, ["x"]):
            body = await unary(await bench({**HEAD, "choices": [{"index": 0, "text": text}, 5]}))
            assert body["choices"][0].get("text") in (text, "")

    async def test_error_in_place_of_a_reply_is_an_error(self) -> None:
        at = await bench({"error": {"message": "overloaded", "code": 1}})
        with pytest.raises(UpstreamConnectError, match="overloaded"):
            await unary(at)
        assert at.event.request.status == "upstream_error"

    async def test_include_limits_the_shown_fields(self) -> None:
        body = await unary(await bench(whole(TRUE)), grounding={"include": []})
        assert "grounding" not in body
        assert "annotations" not in body["choices"][0]
        some = await unary(await bench(whole(TRUE)), grounding={"include": ["documents"]})
        assert "claims" not in some["grounding"]

    async def test_unexpected_stream_can_be_blocked(self) -> None:
        at = await bench(sse(part(f"{TRUE} "), part(FALSE), part("", "stop")), policy(**BLOCK))
        (choice,) = (await unary(at))["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("Please ask HR.", "content_filter")

    async def test_malformed_offsets_are_left_alone(self) -> None:
        spoken = [*tokens(TRUE), *tokens(f" {UNKNOWN}")[1:]]
        given = {**logprobs(*spoken), "text_offset": [None] * len(spoken), "top_logprobs": None}
        at = await bench(whole("".join(spoken), logprobs=given), policy(**STRIP))
        (choice,) = (await unary(at))["choices"]
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == TRUE
        assert set(choice["logprobs"]["text_offset"]) == {None}
        assert choice["logprobs"]["top_logprobs"] is None


class TestPrompt:
    @pytest.mark.parametrize("where", ["system", "user"])
    async def test_documents_are_inserted_before_each_prompt(self, where: str) -> None:
        at = await bench(whole(TRUE, TRUE))
        await unary(at, prompt=["How much?", "How many?"], grounding={"inject": where}, suffix="!")
        first, second = forwarded(at)["prompt"]
        assert first.endswith("\n\nHow much?")
        assert second.endswith("\n\nHow many?")
        assert f"[1] hr.pdf\n{TRUE}" in first
        assert forwarded(at)["suffix"] == "!"

    async def test_single_prompt_keeps_its_type(self) -> None:
        for prompt, kind in (("a", str), (["a"], list)):
            at = await bench(whole(TRUE))
            await unary(at, prompt=prompt, grounding={"inject": "system"})
            assert isinstance(forwarded(at)["prompt"], kind)

    async def test_body_is_forwarded_without_our_fields(self) -> None:
        at = await bench(whole(TRUE))
        await unary(at, prompt=[1, 2, 3], grounding={}, logit_bias={"5": -1})
        assert forwarded(at) == {"model": "m", "prompt": [1, 2, 3], "logit_bias": {"5": -1}}

    def test_prompt_text_includes_all_prompts_and_the_suffix(self) -> None:
        body = {"prompt": ["a", [1, 2], "b"], "suffix": "c"}
        assert CompletionsAdapter(body).prompt_text(body) == "a\nb\nc"
        assert CompletionsAdapter({}).prompt_text({}) == ""


class TestEcho:
    PROMPT = "All bicycles fly. How much leave?"

    async def test_echoed_prompt_is_forwarded_unchecked(self) -> None:
        at = await bench(whole(f"{self.PROMPT} {TRUE}"))
        body = await unary(at, prompt=self.PROMPT, echo=True, documents=LINKED)
        (choice,) = body["choices"]
        assert choice["text"] == f"{self.PROMPT} {TRUE}"
        (claim,) = body["grounding"]["claims"]
        assert choice["text"][claim["span"]["start"] : claim["span"]["end"]] == TRUE
        cited = choice["annotations"][0]["url_citation"]
        assert choice["text"][cited["start_index"] : cited["end_index"]] == TRUE
        assert body["grounding"]["not_checked"] == ["echo"]

    @pytest.mark.parametrize("cut", [1, 10, len(PROMPT), len(PROMPT) + 3])
    async def test_echoed_prompt_is_recognised_in_a_stream_for_any_chunking(self, cut: int) -> None:
        text = f"{self.PROMPT} {FALSE}"
        at = await bench(sse(part(text[:cut]), part(text[cut:]), part("", "stop")), policy(**BLOCK))
        received = await stream(at, prompt=self.PROMPT, echo=True)
        assert text_of(received).startswith(self.PROMPT)
        assert "40 days" not in text_of(received)

    @pytest.mark.parametrize("streamed", [True, False])
    async def test_inserted_documents_are_not_echoed(self, streamed: bool) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            text = json.loads(request.content)["prompt"] + f" {TRUE}"
            if not streamed:
                return httpx.Response(200, json=whole(text, logprobs=logprobs(*tokens(text))))
            data = sse(part(text[:50]), part(text[50:]), part("", "stop"))
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=data)

        at = await bench(answer)
        options: dict[str, Any] = {"prompt": self.PROMPT, "echo": True, "grounding": {"inject": "system"}}
        if streamed:
            assert text_of(await stream(at, **options)) == f"{self.PROMPT} {TRUE}"
        else:
            (choice,) = (await unary(at, **options))["choices"]
            assert choice["text"] == f"{self.PROMPT} {TRUE}"

    async def test_reply_without_an_echo_is_checked_from_the_start(self) -> None:
        at = await bench(whole(FALSE), policy(**BLOCK))
        (choice,) = (await unary(at, prompt=self.PROMPT, echo=True))["choices"]
        assert choice["text"] == "Please ask HR."

    async def test_echo_alone_contains_no_claim(self) -> None:
        at = await bench(whole(self.PROMPT))
        body = await unary(at, prompt=self.PROMPT, echo=True, max_tokens=0)
        assert body["choices"][0]["text"] == self.PROMPT
        assert (body["grounding"]["total_claims"], body["grounding"]["verdict"]) == (0, "not_checked")

    async def test_log_probabilities_of_the_echo_are_kept_when_text_is_removed(self) -> None:
        spoken = tokens(f"{self.PROMPT} {TRUE} {UNKNOWN}")
        at = await bench(whole("".join(spoken), logprobs=logprobs(*spoken)), policy(**STRIP))
        (choice,) = (await unary(at, prompt=self.PROMPT, echo=True))["choices"]
        assert choice["text"] == f"{self.PROMPT} {TRUE}"
        assert choice["logprobs"] == {
            name: values[: len(choice["logprobs"]["tokens"])] for name, values in logprobs(*spoken).items()
        }
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]

    async def test_live_mode_removes_the_inserted_prompt_from_the_bytes(self) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            prompt = json.loads(request.content)["prompt"]
            listed = logprobs(*tokens(prompt))
            data = sse(part(prompt, logprobs=listed), part(f" {TRUE}"), part("", "stop"))
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=data)

        at = await bench(answer, policy(stream_mode="live"))
        received = await stream(at, prompt=self.PROMPT, echo=True, grounding={"inject": "user"})
        assert text_of(received) == f"{self.PROMPT} {TRUE}"
        first = choices_of(received)[0]["logprobs"]
        assert self.PROMPT.endswith("".join(first["tokens"]).strip())
        claims = [
            claim
            for frame in received
            if isinstance(frame, dict)
            for claim in frame.get("grounding", {}).get("claims", ())
        ]
        spans = {text_of(received)[claim["span"]["start"] : claim["span"]["end"]] for claim in claims}
        assert spans == {TRUE}

    @pytest.mark.parametrize("streamed", [True, False])
    @pytest.mark.parametrize("end", [[part("", "stop")], []], ids=["finished", "cut off"])
    async def test_beginning_of_the_prompt_is_ordinary_text(self, end: list[dict[str, Any]], streamed: bool) -> None:
        prompt = f"{FALSE} {TRUE} Is that right?"
        for text in (FALSE, f"{FALSE} {TRUE} Is that", f"{FALSE} No."):
            frames = [part(text[:3]), part(text[3:9]), part(text[9:]), *end]
            at = await bench(sse(*frames) if streamed else whole(text), policy(**BLOCK))
            if streamed:
                delivered = text_of(await stream(at, prompt=prompt, echo=True))
            else:
                delivered = (await unary(at, prompt=prompt, echo=True))["choices"][0]["text"]
            assert "40 days" not in delivered

    async def test_beginning_of_the_prompt_is_sent_once_judged(self) -> None:
        spoken = tokens(TRUE)
        frames = [part(token, logprobs=logprobs(token)) for token in spoken]
        at = await bench(sse(*frames, part("", "stop")), policy(**STRIP))
        received = await stream(at, prompt=f"{TRUE} Is that right?", echo=True, logprobs=1)
        assert text_of(received) == TRUE
        listed = [choice["logprobs"]["tokens"] for choice in choices_of(received) if choice.get("logprobs")]
        assert [token for one in listed for token in one] == spoken

    @given(st.text(min_size=1), st.text(), st.lists(st.integers(0, 20)))
    def test_echo_is_held_until_the_prompt_is_complete(self, prompt: str, text: str, cuts: list[int]) -> None:
        echo, rest, said = Echo(prompt), text, ""
        for size in [*cuts, 10**6]:
            piece, rest = rest[:size], rest[size:]
            held = echo.hold({"text": piece}, ends=not rest and size == 10**6)
            if held is not None:
                _, repeated = echo.take(held["text"])
                assert held["text"][:repeated] in ("", prompt)
                said += held["text"]
        assert said == text
        assert not echo.held

    @given(st.text(), st.text(), st.lists(st.integers(0, 20)), st.integers(0, 5))
    def test_chunking_does_not_change_the_end_of_the_echo(
        self, prompt: str, text: str, cuts: list[int], hidden: int
    ) -> None:
        hidden = min(hidden, len(prompt))
        echo, rest, left, shown, behind = Echo(prompt, hidden), prompt + text, [*cuts, 10**6], "", ""
        for size in left:
            piece, rest = rest[:size], rest[size:]
            skipped, repeated = echo.take(piece)
            shown, behind = shown + piece[skipped:repeated], behind + piece[repeated:]
        assert (shown, behind) == (prompt[hidden:], text)


class TestLogprobs:
    def test_lists_become_entries_and_lists_again(self) -> None:
        given: Mapping[str, Any] = {**logprobs("a", " b"), "x_vendor": 1}
        entries = entries_of({"logprobs": given})
        assert entries is not None
        assert [entry["token"] for entry in entries] == ["a", " b"]
        assert logprobs_of(given, entries) == given

    @pytest.mark.parametrize("given", [None, {}, {"tokens": "ab"}, {"tokens": ["a"], "text_offset": [0, 1]}])
    def test_malformed_lists_are_ignored(self, given: Any) -> None:
        assert entries_of({"logprobs": given}) is None

    def test_missing_lists_are_not_made_up(self) -> None:
        given = {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": None}
        entries = entries_of({"logprobs": given})
        assert entries is not None
        assert logprobs_of(given, entries) == given
