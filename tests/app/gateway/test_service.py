"""One governed request, from the documents to the record, streamed and unary."""

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from math import ceil
from typing import Any

import brotli
import httpx
import pytest
import zstandard

from app.errors import PolicyBlockedError, UpstreamConnectError
from app.events.records import RequestEvent
from app.events.request_record import RequestRecord
from app.reply.citation_annotations import cite_sentence
from judges.testing import ScriptedJudge
from judges.types import Probabilities, Sentence
from policies.citations.document_names import DocumentNames
from policies.types import Citation
from tests.support.gateways.in_process_gateway import (
    DOCUMENTS,
    FALSE,
    LINKED,
    TRUE,
    UNKNOWN,
    URL,
    USAGE,
    bench,
    chunk,
    finish_of,
    frames,
    policy,
    said,
    sse,
    summary_of,
    text_of,
    verdict,
    whole,
)

pytestmark = pytest.mark.anyio

BLOCK = {"contradiction_action": "block", "abstention_response": "Please ask HR."}


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def phases(event: Any) -> list[tuple[str, str]]:
    return [(decision.phase.value, decision.action.value) for decision in event.decisions]


class TestHold:
    async def test_each_sentence_is_sent_once_checked_with_its_claims(self) -> None:
        at = await bench(
            said("Permanent staff receive ", "25 days of annual leave. Bicycles may", " be parked behind the canteen.")
        )
        stream = await at.stream()
        texts = [f["choices"][0]["delta"].get("content") for f in stream if isinstance(f, dict)]
        assert texts == ["", TRUE, f" {UNKNOWN}", None]
        verdicts = [f["grounding"]["claims"][0]["verdict"] for f in stream[1:3] if isinstance(f, dict)]
        assert verdicts == ["supported", "unverifiable"]
        assert stream[-1] == "[DONE]"
        assert summary_of(stream)["verdict"] == "has_unverifiable"

    async def test_no_character_of_a_blocked_sentence_is_sent(self) -> None:
        at = await bench(said(TRUE, " ", FALSE, " ", UNKNOWN), policy(**BLOCK))
        data = await at.stream_bytes(stream_options={"include_usage": True})
        assert b"40 days" not in data
        assert UNKNOWN.encode() not in data
        stream = frames(data)
        assert text_of(stream) == f"{TRUE} Please ask HR."
        assert finish_of(stream) == ["content_filter"]
        assert summary_of(stream)["action"] == "block"
        usage = next(f["usage"] for f in stream if isinstance(f, dict) and "usage" in f)
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert at.event.request.status == "blocked"
        assert at.event.request.usage_estimated
        assert phases(at.event) == [("before_workflow", "allow"), ("mid_execution", "block")]
        assert [claim.delivered for claim in at.event.claims] == [True, False]

    async def test_usage_is_that_of_the_upstream_if_reported_in_time(self) -> None:
        at = await bench(said(TRUE, usage=True), policy(min_citations=3, action_on_violation="block"))
        stream = await at.stream(stream_options={"include_usage": True})
        assert finish_of(stream) == ["content_filter"]
        assert [f["usage"]["total_tokens"] for f in stream if isinstance(f, dict) and "usage" in f] == [12]
        assert not at.event.request.usage_estimated

    async def test_non_text_parts_pass_in_order(self) -> None:
        reasoning, tool = chunk({"reasoning_content": "Hm."}), chunk({"tool_calls": [{"index": 0, "id": "x"}]})
        at = await bench(sse(reasoning, chunk({"content": f"{TRUE} "}), tool, chunk({}, "tool_calls")))
        stream = await at.stream()
        assert stream[0] == reasoning
        assert tool in stream
        assert finish_of(stream) == ["tool_calls"]
        assert summary_of(stream)["not_checked"] == ["reasoning_content", "tool_calls"]

    @pytest.mark.parametrize("extra", ["tool_calls", "refusal", "audio"])
    @pytest.mark.parametrize("mode", ["hold", "final"])
    async def test_call_stays_after_its_text_and_is_not_sent_after_a_block(self, mode: str, extra: str) -> None:
        content = [{"index": 0, "id": "x"}] if extra == "tool_calls" else {"id": "x"} if extra == "audio" else "x"
        call = chunk({extra: content})
        text, lie = FALSE.removesuffix("."), TRUE.removesuffix(".")
        rules = {**BLOCK, "stream_mode": mode}
        blocked = await (await bench(sse(chunk({"content": text}), call, chunk({}, "stop")), policy(**rules))).stream()
        assert call not in blocked
        assert finish_of(blocked) == ["content_filter"]
        passed = await (await bench(sse(chunk({"content": lie}), call, chunk({}, "stop")), policy(**rules))).stream()
        order = [
            "text" if lie in text_of([frame]) else "call"
            for frame in passed
            if lie in text_of([frame]) or frame == call
        ]
        assert order == ["text", "call"]

    async def test_reply_of_tool_calls_alone_is_not_judged(self) -> None:
        tool = chunk({"role": "assistant", "content": None, "tool_calls": [{"index": 0, "id": "x"}]})
        at = await bench(
            sse(tool, chunk({}, "tool_calls")), policy(require_source_grounding=True, action_on_violation="block")
        )
        stream = await at.stream()
        assert stream[0] == tool
        assert finish_of(stream) == ["tool_calls"]
        assert summary_of(stream)["verdict"] == "not_checked"

    async def test_text_after_an_early_finish_is_delivered(self) -> None:
        at = await bench(sse(chunk({"reasoning_content": "Hm."}, "stop"), chunk({"content": TRUE}), chunk({}, "stop")))
        stream = await at.stream()
        assert text_of(stream) == TRUE
        assert finish_of(stream) == ["stop"]

    async def test_unknown_fields_survive(self) -> None:
        first = chunk({"role": "assistant", "content": TRUE[:9], "x_delta": [1]}, x_top="keep")
        first["choices"][0]["x_choice"] = {"a": 1}
        stream = await (await bench(sse(first, chunk({"content": TRUE[9:]}), chunk({}, "stop")))).stream()
        assert isinstance(stream[0], dict)
        assert stream[0]["x_top"] == "keep"
        assert stream[0]["choices"][0]["x_choice"] == {"a": 1}
        assert stream[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "x_delta": [1]}

    async def test_log_probabilities_are_sent_only_with_their_text(self) -> None:
        def token(text: str) -> dict[str, Any]:
            made = chunk({"content": text})
            made["choices"][0]["logprobs"] = {"content": [{"token": text, "logprob": -0.1}]}
            return made

        words = [f"{word} " for word in f"{TRUE} {UNKNOWN} {TRUE}".split()]
        at = await bench(sse(*map(token, words), chunk({}, "stop")), policy(unverifiable_action="strip"))
        stream = await at.stream()
        tokens = [
            entry["token"]
            for f in stream
            if isinstance(f, dict)
            for choice in f["choices"]
            for entry in (choice.get("logprobs") or {}).get("content", ())
        ]
        assert "".join(tokens).rstrip() == text_of(stream).rstrip() == f"{TRUE} {TRUE}"

    async def test_choices_are_judged_separately(self) -> None:
        pieces = [
            chunk({"content": FALSE[:20]}, index=1),
            chunk({"content": TRUE}),
            chunk({"content": FALSE[20:]}, index=1),
        ]
        ends = [chunk({}, "stop"), chunk({}, "stop", index=1)]
        at = await bench(sse(*pieces, *ends), policy(**BLOCK))
        stream = await at.stream(n=2)
        assert (text_of(stream, 0), finish_of(stream, 0)) == (TRUE, ["stop"])
        assert (text_of(stream, 1), finish_of(stream, 1)) == ("Please ask HR.", ["content_filter"])
        assert stream[-1] == "[DONE]"

    async def test_truncated_sentence_is_delivered_as_a_fragment(self) -> None:
        at = await bench(said(f"{TRUE} It is returned", finish="length"))
        stream = await at.stream()
        assert text_of(stream) == f"{TRUE} It is returned"
        assert finish_of(stream) == ["length"]

    async def test_reading_continues_while_a_sentence_is_judged(self) -> None:
        gate, asked = asyncio.Event(), asyncio.Event()

        class Watched(ScriptedJudge):
            async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
                if len(self.calls) == 2:
                    asked.set()
                return await super().score(pairs)

        judge = Watched(verdict, gate=gate)
        at = await bench(said(f"{TRUE} ", f"{UNKNOWN} ", TRUE), judge=judge)
        reply = await at.ask(stream=True)
        assert reply.stream is not None
        iterator = aiter(reply.stream)
        await anext(iterator)  # the role
        pending = asyncio.ensure_future(anext(iterator))
        await asked.wait()
        assert not pending.done()
        gate.set()
        assert b"25 days" in await pending
        await reply.stream.aclose()


class TestOtherModes:
    async def test_live_mode_sends_upstream_bytes_followed_by_verdicts(self) -> None:
        upstream = said(TRUE[:10], f"{TRUE[10:]} ", UNKNOWN)
        at = await bench(upstream, policy(stream_mode="live"))
        stream = await at.stream()
        originals = [f for f in stream if isinstance(f, dict) and "grounding" not in f]
        assert originals == frames(upstream)[:4]
        verdicts = [
            f for f in stream if isinstance(f, dict) and "grounding" in f and f["choices"][0]["finish_reason"] is None
        ]
        assert [f["choices"][0]["delta"] for f in verdicts] == [{}, {}]
        assert summary_of(stream)["verdict"] == "has_unverifiable"

    async def test_live_mode_stops_at_a_block_without_a_replacement(self) -> None:
        at = await bench(said(f"{FALSE} ", UNKNOWN), policy(stream_mode="live", **BLOCK))
        stream = await at.stream()
        assert "Please ask HR." not in text_of(stream)
        assert finish_of(stream) == ["content_filter"]
        assert stream[-1] == "[DONE]"

    async def test_live_mode_sends_no_text_of_a_choice_after_its_block(self) -> None:
        """Even if it arrives in frames with text of a choice that goes on."""

        def both(first: str, second: str) -> dict[str, Any]:
            frame = chunk({"content": first})
            return {**frame, "choices": [*frame["choices"], *chunk({"content": second}, index=1)["choices"]]}

        pairs = [both(f"{TRUE} ", f"{FALSE} "), *(both(f"{TRUE} ", f"{UNKNOWN} ") for _ in range(5))]
        at = await bench(
            sse(*pairs, chunk({}, "stop"), chunk({}, "stop", index=1)), policy(stream_mode="live", **BLOCK)
        )
        stream = await at.stream(n=2)
        assert text_of(stream) == f"{TRUE} " * 6
        choices = [
            choice
            for frame in stream
            if isinstance(frame, dict)
            for choice in frame["choices"]
            if choice["index"] == 1 and (choice["delta"].get("content") or choice["finish_reason"])
        ]
        assert choices[-1]["finish_reason"] == "content_filter"
        assert sum(choice["finish_reason"] is not None for choice in choices) == 1

    async def test_final_mode_shows_nothing_of_a_blocked_reply(self) -> None:
        at = await bench(
            said(f"{TRUE} ", UNKNOWN),
            policy(stream_mode="final", score_eval_mode="average", action_on_violation="block"),
        )
        stream = await at.stream()
        assert "25 days" not in text_of(stream)
        assert finish_of(stream) == ["content_filter"]
        assert not any(claim.delivered for claim in at.event.claims)

    async def test_final_mode_releases_everything_at_the_end(self) -> None:
        at = await bench(said(f"{TRUE} ", TRUE), policy(stream_mode="final"))
        assert text_of(await at.stream()) == f"{TRUE} {TRUE}"

    async def test_stripped_sentence_is_left_out_and_spans_are_adjusted(self) -> None:
        at = await bench(said(f"{UNKNOWN} ", TRUE), policy(unverifiable_action="strip"))
        stream = await at.stream(documents=LINKED)
        assert text_of(stream) == TRUE
        (annotation,) = next(
            f["choices"][0]["delta"]["annotations"]
            for f in stream
            if isinstance(f, dict) and f["choices"][0]["delta"].get("annotations")
        )
        assert annotation["url_citation"] == {
            "start_index": 0,
            "end_index": len(TRUE),
            "url": URL,
            "title": "hr.pdf",
        }
        shown = [claim["claim"] for claim in summary_of(stream)["claims"]]
        assert shown == [None, TRUE]


class TestUnary:
    async def test_supported_reply_is_unchanged_except_for_our_fields(self) -> None:
        upstream = whole(TRUE, refusal=None)
        upstream["x"] = {"kept": True}
        at = await bench(upstream)
        reply = await at.ask(documents=LINKED)
        body = json.loads(reply.body)
        assert body.pop("grounding")["verdict"] == "supported"
        assert body["choices"][0]["message"].pop("annotations")[0]["type"] == "url_citation"
        assert body == upstream
        headers = dict(reply.headers)
        assert (headers["x-groundlane-action"], headers["x-groundlane-verdict"]) == ("allow", "supported")
        assert headers["x-groundlane-trust-score"] == "1.0000"
        assert at.event.request.prompt_tokens == 7

    async def test_blocked_reply_is_replaced_and_keeps_its_usage(self) -> None:
        at = await bench(whole(f"{TRUE} {FALSE}"), policy(**BLOCK))
        reply = await at.ask()
        assert b"40 days" not in reply.body
        body = json.loads(reply.body)
        assert body["choices"][0]["message"]["content"] == "Please ask HR."
        assert body["choices"][0]["finish_reason"] == "content_filter"
        assert body["usage"]["total_tokens"] == 12
        assert body["grounding"]["action"] == "block"
        assert reply.status == 200

    async def test_on_block_error_answers_400(self) -> None:
        at = await bench(whole(FALSE), policy(on_block="error", **BLOCK))
        with pytest.raises(PolicyBlockedError) as caught:
            await at.ask()
        assert caught.value.body()["error"]["type"] == "grounding_policy_violation"
        assert caught.value.code == "GROUNDING_CONTRADICTION"
        assert "40 days" not in json.dumps(caught.value.body())
        assert (at.event.request.status, at.event.request.http_status) == ("blocked", 400)

    async def test_without_documents_and_policies_bytes_are_unchanged(self) -> None:
        raw = b'{ "choices" : [ ], "odd":1.0 }'
        at = await bench(lambda _: httpx.Response(200, content=raw, headers={"content-type": "application/json"}))
        assert (await at.ask(documents=None)).body == raw
        assert at.event.request.status == "completed"

    @pytest.mark.parametrize(
        ("encoding", "pack"), [("gzip", gzip.compress), ("br", brotli.compress), ("zstd", zstandard.compress)]
    )
    async def test_compressed_reply_is_judged_and_sent_uncompressed(
        self, encoding: str, pack: Callable[[bytes], bytes]
    ) -> None:
        packed = pack(json.dumps(whole(TRUE)).encode())
        headers = {"content-type": "application/json", "content-encoding": encoding}
        for documents in (DOCUMENTS, None):
            at = await bench(lambda _: httpx.Response(200, headers=headers, content=_once(packed)))
            reply = await at.ask(documents=documents)
            assert json.loads(reply.body)["choices"][0]["message"]["content"] == TRUE
            assert not {"content-encoding", "content-length"} & {name for name, _ in reply.headers}

    async def test_include_nothing_leaves_the_bytes_unchanged(self) -> None:
        upstream = whole(TRUE)
        at = await bench(upstream)
        assert await at.unary(grounding={"include": []}) == upstream
        assert at.event.request.verdict == "supported"

    async def test_unexpected_stream_is_merged_into_a_completion(self) -> None:
        at = await bench(said(TRUE[:9], TRUE[9:], usage=True))
        for documents in (DOCUMENTS, None):
            body = await at.unary(documents=documents)
            assert body["object"] == "chat.completion"
            assert body["choices"][0]["message"]["content"] == TRUE
            assert body["choices"][0]["finish_reason"] == "stop"
            assert body["usage"]["total_tokens"] == 12

    async def test_unexpected_completion_is_converted_to_a_stream(self) -> None:
        at = await bench(whole(TRUE))
        stream = await at.stream()
        assert text_of(stream) == TRUE
        assert finish_of(stream) == ["stop"]
        assert stream[-1] == "[DONE]"


class TestRetrieval:
    async def test_stale_document_blocks_before_the_upstream_call(self) -> None:
        at = await bench(whole(TRUE), policy("retrieval"))
        stale = [DOCUMENTS[0], {**DOCUMENTS[0], "age_days": 400}]
        with pytest.raises(PolicyBlockedError) as caught:
            await at.ask(documents=stale)
        error = caught.value.body()["error"]
        assert error["message"] == "Source age (400 days) exceeds max (90 days)"
        assert (error["type"], error["code"]) == ("retrieval_policy_violation", "RETRIEVAL_STALE_SOURCE")
        assert error["param"] == "documents[1]"
        assert error["violations"][0]["metadata"]["age_days"] == 400
        assert at.forwarded == []
        assert phases(at.event) == [("before_workflow", "block")]
        assert at.event.request.http_status == 400

    async def test_dropped_document_is_neither_in_the_prompt_nor_judged(self) -> None:
        judge = ScriptedJudge(verdict)
        at = await bench(whole(TRUE), policy("retrieval", action_on_stale_source="drop"), judge=judge)
        old = {"id": "old", "text": "Staff once had 12 days.", "age_days": 400, "relevance_score": 1.0}
        body = await at.unary(documents=[old, DOCUMENTS[0]], grounding={"inject": "system"})
        prompt = at.forwarded[0].content.decode()
        assert "12 days" not in prompt
        assert "25 days" in prompt
        assert "documents" not in json.loads(prompt)
        assert not any("12 days" in evidence for evidence, _ in judge.pairs)
        assert [d["id"] for d in body["grounding"]["retrieval"]["dropped"]] == ["old"]
        assert [(d.document_id, d.kept) for d in at.event.documents] == [("old", False), ("hr-7", True)]
        assert at.event.claims[0].document_index == 1

    async def test_drop_becomes_block_if_the_caller_wrote_the_prompt(self) -> None:
        at = await bench(whole(TRUE), policy("retrieval", action_on_stale_source="drop"))
        with pytest.raises(PolicyBlockedError, match="Source age"):
            await at.ask(documents=[{**DOCUMENTS[0], "age_days": 400}])

    async def test_request_without_documents_is_not_evaluated(self) -> None:
        at = await bench(whole(TRUE), policy("retrieval", min_chunks=3, action_on_chunk_violation="block"), policy())
        body = await at.unary(documents=None)
        assert body["grounding"]["verdict"] == "no_sources"
        assert [d.category for d in at.event.decisions] == ["grounding"] * 3


class TestEnds:
    async def test_upstream_error_passes_with_status_and_headers(self) -> None:
        headers = {"retry-after": "7", "x-ratelimit-remaining-requests": "0", "x-api-key": "secret"}
        at = await bench(lambda _: httpx.Response(429, json={"error": {"message": "slow down"}}, headers=headers))
        reply = await at.ask(stream=True)
        assert (reply.status, json.loads(reply.body)) == (429, {"error": {"message": "slow down"}})
        assert dict(reply.headers)["retry-after"] == "7"
        assert "x-api-key" not in dict(reply.headers)
        assert (at.event.request.status, at.event.request.http_status) == ("upstream_error", 429)

    async def test_unreachable_upstream_is_a_502_and_recorded(self) -> None:
        def refuse(_: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("refused")

        at = await bench(refuse)
        with pytest.raises(UpstreamConnectError):
            await at.ask()
        assert (at.event.request.status, at.event.request.http_status) == ("failed", 502)

    async def test_mid_stream_error_passes_and_is_recorded_as_failed(self) -> None:
        for documents in (None, DOCUMENTS):
            at = await bench(sse(chunk({"content": TRUE}), {"error": "rate limit reached"}))
            stream = await at.stream(documents=documents)
            assert {"error": "rate limit reached"} in stream
            assert stream.count("[DONE]") == 1
            assert (at.event.request.status, at.event.request.error) == (
                "upstream_error",
                "the upstream reported an error",
            )

    async def test_interrupted_reply_is_delivered_as_incomplete(self) -> None:
        for documents in (None, DOCUMENTS):
            at = await bench(said(f"{TRUE} It is", finish=None))
            stream = await at.stream(documents=documents)
            assert text_of(stream) == f"{TRUE} It is"
            assert finish_of(stream) == []
            assert any("error" in f for f in stream if isinstance(f, dict))
            assert stream[-1] == "[DONE]"
            assert at.event.request.status == "incomplete"

    async def test_missing_done_frame_is_added(self) -> None:
        upstream = sse(chunk({"content": TRUE}), chunk({}, "stop"), done=False)
        for documents in (None, DOCUMENTS):
            at = await bench(upstream)
            assert (await at.stream(documents=documents))[-1] == "[DONE]"
            assert at.event.request.status == "completed"

    async def test_client_disconnect_ends_the_upstream_call_and_is_recorded(self) -> None:
        closed = asyncio.Event()

        class Endless(httpx.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                yield sse(chunk({"content": f"{TRUE} Next"}), done=False)
                await asyncio.Event().wait()

            async def aclose(self) -> None:
                closed.set()

        for documents in (None, DOCUMENTS):
            closed.clear()
            at = await bench(
                lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Endless())
            )
            reply = await at.ask(stream=True, documents=documents)
            assert reply.stream is not None
            await anext(aiter(reply.stream))
            await reply.stream.aclose()
            assert closed.is_set()
            assert at.event.request.status == "cancelled"
            assert at.event.request.completion_tokens == ceil(len(f"{TRUE} Next") / 4)

    async def test_cancelled_wait_for_the_upstream_is_recorded(self) -> None:
        at = await bench(lambda _: httpx.Response(200, json=whole(TRUE)))
        gate = asyncio.Event()

        async def never(*_: Any, **__: Any) -> httpx.Response:
            gate.set()
            await asyncio.Event().wait()
            raise AssertionError

        object.__setattr__(at.gateway.upstream, "send", never)
        task = asyncio.ensure_future(at.ask())
        await gate.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert at.event.request.status == "cancelled"

    async def test_unjudged_reply_is_not_recorded_as_clean(self) -> None:
        at = await bench(whole(TRUE), settings={"annotate_by_default": False})
        assert await at.unary() == whole(TRUE)
        assert at.event.request.verdict == "not_checked"

    async def test_reply_abandoned_before_judging_is_not_recorded_as_clean(self) -> None:
        gate = asyncio.Event()
        at = await bench(said(f"{TRUE} ", UNKNOWN), judge=ScriptedJudge(verdict, gate=gate))
        reply = await at.ask(stream=True)
        assert reply.stream is not None
        await anext(aiter(reply.stream))
        await reply.stream.aclose()
        assert (at.event.request.status, at.event.request.verdict) == ("cancelled", "not_checked")

    async def test_unrequested_usage_passes_unchanged(self) -> None:
        at = await bench(said(TRUE, usage=True))
        assert USAGE in await at.stream()
        assert (at.event.request.prompt_tokens, at.event.request.completion_tokens) == (7, 5)

    async def test_texts_are_hashed_unless_full_storage_is_configured(self) -> None:
        for how, expected in (("hash", False), ("none", False), ("full", True)):
            at = await bench(whole(f"{TRUE} {FALSE}"), policy(), settings={"store_text": how})
            await at.ask()
            assert (("40 days" in repr(at.event)), ("25 days" in repr(at.event))) == (expected, expected)


async def test_fully_read_reply_holds_no_connection_while_judged() -> None:
    closed: list[bool] = []
    while_judged: list[bool] = []

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield json.dumps(whole(TRUE)).encode()

        async def aclose(self) -> None:
            closed.append(True)

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, headers={"content-type": "application/json"}, stream=Body())

    def look(evidence: str, claim: str) -> Probabilities:
        while_judged.append(bool(closed))
        return verdict(evidence, claim)

    at = await bench(whole(TRUE), policy(**BLOCK), judge=ScriptedJudge(look), transport=Transport())
    assert (await at.unary())["choices"][0]["message"]["content"] == TRUE
    assert while_judged
    assert all(while_judged)


class TestLongReplies:
    """Replies that take long to process don't block the event loop."""

    @pytest.mark.parametrize(("sentences", "on_loop"), [(2, True), (150, False)])
    async def test_event_of_a_long_reply_is_built_once_and_on_a_thread(
        self, monkeypatch: pytest.MonkeyPatch, sentences: int, on_loop: bool
    ) -> None:
        threads: list[threading.Thread] = []
        build = RequestRecord._make_event

        def built(record: RequestRecord) -> RequestEvent:
            threads.append(threading.current_thread())
            return build(record)

        monkeypatch.setattr(RequestRecord, "_make_event", built)
        at = await bench(said(f"{TRUE} " * sentences))
        await at.stream()
        assert at.event.request.sentences == sentences
        assert [thread is threading.current_thread() for thread in threads] == [on_loop]

    @pytest.mark.parametrize("length", [100, 2_000])
    async def test_citations_of_a_long_sentence_are_found_on_a_thread(
        self, monkeypatch: pytest.MonkeyPatch, length: int
    ) -> None:
        threads: list[threading.Thread] = []

        def cited(sentence: Sentence, names: DocumentNames) -> list[Citation]:
            threads.append(threading.current_thread())
            return cite_sentence(sentence, names)

        monkeypatch.setattr("app.reply.choice.cite_sentence", cited)
        said_at_length = f"Staff receive {'very ' * (length // 5)}long leave [1]."
        at = await bench(said(said_at_length))
        assert "".join(text_of(await at.stream())) == said_at_length
        assert [thread is threading.current_thread() for thread in threads] == [length == 100]

    async def test_other_tasks_run_while_a_long_held_reply_is_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = [0.0]
        monkeypatch.setattr("judges.concurrency.monotonic", lambda: clock[0])
        at = await bench(said(f"{TRUE} " * 150), policy(stream_mode="final"))
        reply = await at.ask(stream=True)
        assert reply.stream is not None
        turns: list[int] = []
        sent = 0

        async def other() -> None:
            while True:
                turns.append(sent)
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        async for _ in reply.stream:
            sent += 1
            clock[0] += 0.001
        task.cancel()
        assert sent > 150
        assert max(after - before for before, after in pairwise(turns)) <= 5
