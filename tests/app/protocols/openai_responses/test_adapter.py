"""The Responses API through the pipeline, streamed and not."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.auth import GatewayKey
from app.errors import PolicyBlockedError, UpstreamConnectError
from tests.support.apis.responses_api import (
    CALL,
    REASONING,
    USAGE,
    Event,
    ask,
    consistent,
    events,
    message,
    of,
    output_text,
    read,
    refusal,
    response,
    said,
    shown,
    sse,
    stream,
    stream_bytes,
    types,
    unary,
)
from tests.support.gateways.in_process_gateway import DOCUMENTS, FALSE, TRUE, UNKNOWN, bench, policy

pytestmark = pytest.mark.anyio

BLOCK = {"contradiction_action": "block", "abstention_response": "Please ask HR."}
SEARCH = {
    "type": "file_search_call",
    "id": "fs_1",
    "queries": ["leave"],
    "status": "completed",
    "results": [{"file_id": "f", "filename": "hr.pdf", "score": 0.8, "text": TRUE, "attributes": {}}],
}
HR_KEY = GatewayKey(id="key_1", name="hr", prefix="gl-aaaaaaaa", digest=b"", collections=("hr-*",))
LATER = "Ask the front desk for a form."


def last(found: list[Event]) -> dict[str, Any]:
    return dict(found[-1]["response"])


class TestHold:
    async def test_each_sentence_is_sent_with_its_claims_and_the_end_has_the_delivered_text(self) -> None:
        found = await stream(await bench(said(f"{TRUE} {UNKNOWN}")))
        consistent(found)
        deltas = of(found, "output_text.delta")
        assert [event["delta"] for event in deltas] == [TRUE, f" {UNKNOWN}"]
        assert [event["grounding"]["claims"][0]["verdict"] for event in deltas] == ["supported", "unverifiable"]
        assert types(found) == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.annotation.added",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
        assert last(found)["grounding"]["verdict"] == "has_unverifiable"
        assert last(found)["usage"] == USAGE
        assert last(found)["x_vendor"] == {"kept": True}

    async def test_annotations_are_flat_and_file_citations_have_an_index(self) -> None:
        web = {**DOCUMENTS[0], "url": "https://hr.test/7", "title": "Leave"}
        (added,) = of(await stream(await bench(said(TRUE)), documents=[web]), "output_text.annotation.added")
        place = {"start_index": 0, "end_index": len(TRUE)}
        assert added["annotation"] == {"type": "url_citation", "url": "https://hr.test/7", "title": "Leave", **place}
        (added,) = of(await stream(await bench(said(TRUE))), "output_text.annotation.added")
        named = {"file_id": "hr-7", "filename": "hr.pdf", "index": len(TRUE)}
        assert added["annotation"] == {"type": "file_citation", **named, **place}

    async def test_no_character_of_a_blocked_sentence_is_sent(self) -> None:
        at = await bench(said(f"{TRUE} {FALSE} {LATER}"), policy(**BLOCK))
        data = await stream_bytes(at)
        assert b"40 days" not in data
        assert LATER.encode() not in data
        found = read(data)
        consistent(found)
        assert shown(found) == f"{TRUE} Please ask HR."
        assert types(found)[-5:] == [
            "output_text.annotation.added",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "incomplete",
        ]
        final = last(found)
        assert (final["status"], final["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
        assert final["output"][0]["status"] == "incomplete"
        assert final["usage"]["total_tokens"] == final["usage"]["input_tokens"] + final["usage"]["output_tokens"]
        assert final["grounding"]["action"] == "block"
        assert "x_vendor" not in final
        row = at.event.request
        assert (row.status, row.finish_reason, row.api) == ("blocked", "content_filter", "responses")
        assert [claim.delivered for claim in at.event.claims] == [True, False]

    async def test_usage_is_that_of_the_upstream_if_reported_in_time(self) -> None:
        at = await bench(said(TRUE), policy(min_citations=3, action_on_violation="block", stream_mode="final"))
        found = await stream(at)
        consistent(found)
        assert found[-1]["type"] == "response.incomplete"
        assert shown(found) != TRUE

    async def test_stripped_sentences_are_in_no_event(self) -> None:
        note = {"type": "url_citation", "url": "https://x.test", "title": "X"}
        early = {**note, "start_index": 0, "end_index": len(TRUE)}
        late = {**note, "start_index": len(TRUE) + 1, "end_index": len(TRUE) + 1 + len(UNKNOWN)}
        body = response(message(f"{TRUE} {UNKNOWN} {TRUE}", annotations=[early, late]))
        for answer in (sse(events(body)), body):
            at = await bench(answer, policy(unverifiable_action="strip"))
            data = await stream_bytes(at)
            assert b"Bicycles" not in data
            found = read(data)
            consistent(found)
            assert shown(found) == f"{TRUE} {TRUE}"
            annotations = last(found)["output"][0]["content"][0]["annotations"]
            assert early in annotations
            assert late not in annotations
            assert found[-1]["type"] == "response.completed"

    async def test_non_text_items_pass_in_order_and_are_named(self) -> None:
        body = response(REASONING, message(TRUE), CALL)
        upstream = events(body)
        found = await stream(await bench(sse(upstream)))
        consistent(found)
        kept: list[Event] = [e for e in upstream if "output_text" not in e["type"] and "content_part" not in e["type"]]
        order = [kind for kind in types(found) if not kind.startswith(("output_text", "content_part"))]
        assert order == types(kept)
        assert of(found, "function_call_arguments.done")[0]["arguments"] == CALL["arguments"]
        assert last(found)["output"][2] == CALL
        assert last(found)["grounding"]["not_checked"] == ["reasoning", "tool_calls"]

    async def test_tool_calls_alone_are_not_judged(self) -> None:
        strict = policy(require_source_grounding=True, action_on_violation="block")
        for answer in (response(CALL), sse(events(response(CALL)))):
            at = await bench(answer, strict)
            found = await stream(at)
            assert found[-1]["type"] == "response.completed"
            assert last(found)["grounding"]["verdict"] == "not_checked"
            assert at.event.request.finish_reason == "tool_calls"

    async def test_refusal_passes(self) -> None:
        found = await stream(await bench(sse(events(response(refusal("I won't."))))))
        consistent(found)
        assert last(found)["output"] == [refusal("I won't.")]
        assert last(found)["grounding"]["not_checked"] == ["refusal"]

    async def test_each_text_part_is_judged_separately(self) -> None:
        body = response(message(TRUE, UNKNOWN), CALL, message(TRUE, item_id="msg_2"))
        found = await stream(await bench(sse(events(body))))
        consistent(found)
        claims = last(found)["grounding"]["claims"]
        assert [(c["output_index"], c["content_index"]) for c in claims] == [(0, 0), (0, 1), (2, 0)]
        assert [c["span"]["start"] for c in claims] == [0, 0, 0]
        assert last(found)["grounding"]["total_claims"] == 3

    async def test_blocked_part_keeps_the_text_before_it(self) -> None:
        body = response(message(TRUE, FALSE), CALL)
        for answer in (sse(events(body)), body):
            at = await bench(answer, policy(**BLOCK))
            found = await stream(at)
            consistent(found)
            assert [shown(found, (0, i)) for i in (0, 1)] == [TRUE, "Please ask HR."]
            (item,) = last(found)["output"]
            assert [part["text"] for part in item["content"]] == [TRUE, "Please ask HR."]

    async def test_truncated_text_is_judged(self) -> None:
        body = response(
            message(f"{TRUE} It is returned", status="incomplete"),
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        )
        for answer in (sse(events(body)), body):
            at = await bench(answer)
            found = await stream(at)
            consistent(found)
            assert shown(found) == f"{TRUE} It is returned"
            assert last(found)["incomplete_details"] == {"reason": "max_output_tokens"}
            assert last(found)["grounding"]["total_claims"] == 2
            assert at.event.request.finish_reason == "length"

    async def test_log_probabilities_are_sent_only_with_their_text(self) -> None:
        text = f"{TRUE} {UNKNOWN} {TRUE}"
        tokens: list[Event] = [
            {"token": f"{word} ", "logprob": -0.1, "bytes": [], "top_logprobs": []} for word in text.split()
        ]
        words = [str(token["token"]) for token in tokens]
        upstream = events(response(message(text + " ", logprobs=tokens)), pieces={(0, 0): words})
        for event, token in zip(of(upstream, "output_text.delta"), tokens, strict=True):
            event["logprobs"] = [token]
        of(upstream, "output_text.done")[0]["logprobs"] = tokens
        found = await stream(await bench(sse(upstream), policy(unverifiable_action="strip")))
        (done,) = of(found, "output_text.done")
        for kept in (done["logprobs"], last(found)["output"][0]["content"][0]["logprobs"]):
            assert "".join(token["token"] for token in kept).rstrip() == f"{TRUE} {TRUE}"

    async def test_text_only_in_repeating_events_is_judged(self) -> None:
        """Some upstreams send no deltas, or no end of the text, or neither."""
        full = events(response(message(f"{TRUE} {FALSE}")))
        added, text = ["content_part.added", "output_item.added"], ["output_text.delta", "output_text.done"]
        done = ["content_part.done", "output_item.done"]
        for missing in (
            ["output_text.delta"],
            ["output_text.done"],
            ["output_text.done", "content_part.done"],
            ["output_text.done", *done],
            [*text, "content_part.added", "content_part.done"],
            [*text, *added, "content_part.done"],
            [*text, *added, *done],
        ):
            left = [event for event in full if event["type"].removeprefix("response.") not in missing]
            data = await stream_bytes(await bench(sse(left), policy(**BLOCK)))
            assert b"40 days" not in data, missing
            assert shown(read(data)) == f"{TRUE} Please ask HR.", missing
            passed = await stream(await bench(sse(left)))
            assert shown(passed) == f"{TRUE} {FALSE}", missing

    async def test_text_in_opening_events_waits_for_its_verdict(self) -> None:
        full = events(response(message(FALSE)), pieces={(0, 0): []})
        of(full, "content_part.added")[0]["part"]["text"] = FALSE[:20]
        of(full, "created")[0]["response"] = response(message(FALSE))
        of(full, "output_item.added")[0]["item"]["content"] = message(FALSE[:10])["content"]
        data = await stream_bytes(await bench(sse(full), policy(**BLOCK)), grounding={"include": []})
        assert FALSE[:9].encode() not in data
        assert shown(read(data)) == "Please ask HR."
        assert shown(await stream(await bench(sse(full)))) == FALSE

    async def test_repeated_text_of_the_response_is_the_delivered_text(self) -> None:
        body = response(message(f"{TRUE} {UNKNOWN}"), output_text=f"{TRUE} {UNKNOWN}")
        for answer in (body, sse(events(body))):
            at = await bench(answer, policy(unverifiable_action="strip"))
            data = await stream_bytes(at)
            assert b"Bicycles" not in data
            assert last(read(data))["output_text"] == TRUE
            blocked = await bench(answer, policy(unverifiable_action="block", action_on_violation="block"))
            assert b"Bicycles" not in await stream_bytes(blocked)

    async def test_parts_with_short_type_names_are_text(self) -> None:
        body = response(message(f"{TRUE} {FALSE}", type="text"))
        for answer in (body, sse(events(body))):
            data = await stream_bytes(await bench(answer, policy(**BLOCK)))
            assert b"40 days" not in data
            assert shown(read(data)) == f"{TRUE} Please ask HR."

    async def test_text_after_its_end_is_not_sent(self) -> None:
        upstream = events(response(message(TRUE)))
        late = {**of(upstream, "output_text.delta")[0], "delta": f" {FALSE}"}
        again = of(upstream, "output_text.done")[0]
        at = await bench(sse([*upstream[:-2], late, {**again, "text": f"{TRUE} {FALSE}"}, *upstream[-2:]]))
        assert shown(await stream(at)) == TRUE
        assert b"40 days" not in await stream_bytes(at)

    async def test_numbers_inside_an_event_are_unchanged(self) -> None:
        upstream = events(response(message(TRUE), {**CALL, "sequence_number": 3, "arguments": '"sequence_number": 4'}))
        found = await stream(await bench(sse(upstream)))
        consistent(found)
        assert last(found)["output"][1]["sequence_number"] == 3
        assert of(found, "function_call_arguments.done")[0]["arguments"] == '"sequence_number": 4'

    async def test_events_of_unknown_shape_pass_and_unreadable_ones_do_not(self) -> None:
        upstream = events(response(message(TRUE)))
        odd = b'event: vendor.note\ndata: {"type": "vendor.note", "n": [1]}\n\n'
        added = odd + b"data: not JSON\n\n: hello\n\n"
        data = await stream_bytes(await bench(sse(upstream[:7]) + added + sse(upstream[7:])))
        assert odd + b": hello\n\n" in data
        assert b"not JSON" not in data
        assert shown(read(data)) == TRUE

    async def test_include_nothing_is_clean_and_still_checked(self) -> None:
        at = await bench(said(TRUE))
        data = await stream_bytes(at, grounding={"include": []})
        assert b"grounding" not in data
        assert b"file_citation" not in data
        assert len(at.event.claims) == 1
        assert last(read(data)) == response(message(TRUE))

    async def test_frames_without_names_stay_unnamed(self) -> None:
        data = await stream_bytes(await bench(sse(events(response(message(TRUE))), named=False)))
        assert b"event:" not in data
        consistent(read(data))


class TestLive:
    async def test_text_is_sent_at_once_and_verdicts_follow(self) -> None:
        upstream = events(response(message(TRUE)))
        at = await bench(sse(upstream), policy(stream_mode="live"))
        found = await stream(at)
        consistent(found)
        assert shown(found) == TRUE
        verdicts = [e for e in of(found, "output_text.delta") if "grounding" in e]
        assert [(e["delta"], e["grounding"]["claims"][0]["verdict"]) for e in verdicts] == [("", "supported")]
        assert last(found)["grounding"]["verdict"] == "supported"

    async def test_text_in_opening_events_counts_as_shown(self) -> None:
        upstream = events(response(message(TRUE)), pieces={(0, 0): [TRUE[20:]]})
        of(upstream, "content_part.added")[0]["part"]["text"] = TRUE[:20]
        found = await stream(await bench(sse(upstream), policy(stream_mode="live")))
        assert of(found, "output_text.done")[0]["text"] == TRUE
        assert output_text(last(found)) == TRUE
        assert last(found)["grounding"]["verdict"] == "supported"

    async def test_upstream_annotations_pass_at_once_and_ours_are_numbered_after_them(self) -> None:
        theirs = {"type": "url_citation", "url": "https://x.test", "title": "X", "start_index": 0, "end_index": 9}
        upstream = events(response(message(TRUE, annotations=[theirs])))
        found = await stream(await bench(sse(upstream), policy(stream_mode="live")))
        consistent(found)
        first, second = of(found, "output_text.annotation.added")
        assert first["annotation"] == theirs
        assert second["annotation"]["type"] == "file_citation"
        assert found.index(first) < found.index(of(found, "output_text.done")[0])

    async def test_block_stops_the_stream(self) -> None:
        at = await bench(said(f"{FALSE} {LATER}"), policy(stream_mode="live", **BLOCK))
        found = await stream(at)
        consistent(found)
        assert FALSE in shown(found)
        assert "Please ask HR." not in shown(found)
        assert last(found)["incomplete_details"] == {"reason": "content_filter"}


class TestFinal:
    async def test_nothing_is_sent_before_the_part_is_decided(self) -> None:
        at = await bench(said(f"{TRUE} {FALSE}"), policy(stream_mode="final", **BLOCK))
        found = await stream(at)
        consistent(found)
        assert shown(found) == "Please ask HR."

    async def test_emptied_reply_is_marked(self) -> None:
        for mode in ("hold", "final"):
            at = await bench(said(UNKNOWN), policy(stream_mode=mode, unverifiable_action="strip"))
            found = await stream(at)
            consistent(found)
            assert "I can't" in shown(found)
            assert found[-1]["type"] == "response.completed"


class TestUnary:
    async def test_supported_reply_gets_annotations_and_a_summary(self) -> None:
        body = response(REASONING, message(TRUE), CALL)
        reply = await unary(await bench(body))
        grounding = reply.pop("grounding")
        (annotation,) = reply["output"][1]["content"][0]["annotations"]
        reply["output"][1]["content"][0]["annotations"] = []
        assert reply == body
        assert (grounding["verdict"], grounding["action"]) == ("supported", "allow")
        assert annotation["file_id"] == "hr-7"

    async def test_blocked_reply_is_replaced(self) -> None:
        at = await bench(response(message(f"{TRUE} {FALSE}")), policy(**BLOCK))
        reply = await unary(at)
        assert "40 days" not in json.dumps(reply)
        assert output_text(reply) == "Please ask HR."
        assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
        assert reply["usage"] == USAGE
        assert (at.event.request.prompt_tokens, at.event.request.completion_tokens) == (50, 20)
        assert not at.event.request.usage_estimated

    async def test_block_can_be_an_error(self) -> None:
        at = await bench(response(message(FALSE)), policy(on_block="error", **BLOCK))
        with pytest.raises(PolicyBlockedError) as caught:
            await ask(at)
        assert caught.value.code == "GROUNDING_CONTRADICTION"
        streamed = await bench(said(FALSE), policy(on_block="error", **BLOCK))
        found = await stream(streamed)
        assert found[-1]["type"] == "error"
        assert found[-1]["code"] == "GROUNDING_CONTRADICTION"
        assert "40 days" not in json.dumps(found)
        assert [event["sequence_number"] for event in found] == list(range(len(found)))

    async def test_blocked_reply_without_text_gets_one(self) -> None:
        strict = policy(require_source_grounding=True, action_on_violation="block", abstention_response="Please ask.")
        body = response(SEARCH)
        for answer in (body, sse(events(body))):
            found = await stream(await bench(answer, strict))
            consistent(found)
            assert shown(found) == "Please ask."
            assert [item["type"] for item in last(found)["output"]] == ["message"]
            assert last(found)["incomplete_details"] == {"reason": "content_filter"}
        assert output_text(await unary(await bench(body, strict))) == "Please ask."
        live = await bench(
            sse(events(body)), policy(stream_mode="live", **strict.rules.model_dump(exclude={"stream_mode"}))
        )
        assert last(await stream(live))["output"] == [SEARCH]

    async def test_usage_missing_from_the_upstream_is_counted(self) -> None:
        for answer in (response(message(FALSE), usage=None), sse(events(response(message(FALSE), usage=None)))):
            at = await bench(answer, policy(**BLOCK))
            usage = last(await stream(at))["usage"]
            assert usage["output_tokens"] > 0
            assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
            assert at.event.request.usage_estimated

    async def test_unexpected_stream_is_merged(self) -> None:
        reply = await unary(await bench(said(TRUE)))
        assert output_text(reply) == TRUE
        assert reply["grounding"]["verdict"] == "supported"
        plain = await unary(await bench(said(TRUE)), documents=None)
        assert plain == response(message(TRUE))

    async def test_invalid_json_is_a_bad_gateway(self) -> None:
        at = await bench(lambda _: httpx.Response(200, content=b"oops", headers={"content-type": "application/json"}))
        with pytest.raises(UpstreamConnectError):
            await ask(at)


class TestUntouched:
    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    async def test_streamed_bytes_are_unchanged(self, end: str) -> None:
        body = response(REASONING, message(TRUE, FALSE), CALL)
        made = [{**event, "obfuscation": "x"} for event in events(body)]
        data = sse(made[:4], end=end) + f": note{end}{end}".encode() + sse(made[4:], end=end)
        for answer in (data, data + f"data: [DONE]{end}{end}".encode()):
            at = await bench(answer)
            assert await stream_bytes(at, documents=None) == answer
            row = at.event.request
            assert (row.status, row.prompt_tokens, row.completion_tokens) == ("completed", 50, 20)

    async def test_whole_reply_bytes_are_unchanged(self) -> None:
        answer = json.dumps(response(message(TRUE)), indent=1).encode()
        at = await bench(lambda _: httpx.Response(200, content=answer, headers={"content-type": "application/json"}))
        assert (await ask(at, documents=None)).body == answer

    async def test_other_media_type_is_converted_to_events(self) -> None:
        """A whole reply although a stream was requested, with parts that are not text."""
        found = await stream(await bench(response(refusal("I won't."), {**CALL, "status": "completed"})))
        consistent(found)
        assert last(found)["output"] == [refusal("I won't."), CALL]

    async def test_done_without_a_final_event_ends_the_reply(self) -> None:
        data = sse(events(response(message(TRUE)))[:-1]) + b"data: [DONE]\n\n"
        at = await bench(data)
        raw = await stream_bytes(at)
        assert raw.endswith(b"data: [DONE]\n\n")
        assert shown(read(raw.removesuffix(b"data: [DONE]\n\n"))) == TRUE
        assert at.event.request.status == "completed"
        assert await stream_bytes(await bench(data), documents=None) == data


class TestFailures:
    @pytest.mark.parametrize("documents", [DOCUMENTS, None])
    async def test_interrupted_stream_is_reported(self, documents: Any) -> None:
        at = await bench(sse(events(response(message(TRUE)))[:-1]))
        found = await stream(at, documents=documents)
        assert shown(found) == TRUE
        assert found[-1]["type"] == "error"
        assert [event["sequence_number"] for event in found] == list(range(len(found)))
        assert at.event.request.status == "incomplete"

    @pytest.mark.parametrize("documents", [DOCUMENTS, None])
    async def test_connection_lost_after_text_loses_no_text(self, documents: Any) -> None:
        async def broken() -> AsyncIterator[bytes]:
            yield sse(events(response(message(f"{TRUE} {UNKNOWN}")))[:-3])
            raise httpx.ReadError("gone")

        def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=broken())

        at = await bench(answer)
        found = await stream(at, documents=documents)
        assert shown(found) == of(found, "output_text.done")[0]["text"] == f"{TRUE} {UNKNOWN}"
        assert found[-1]["type"] == "error"
        assert at.event.request.status == "incomplete"

    @pytest.mark.parametrize("documents", [DOCUMENTS, None])
    async def test_error_event_follows_the_text(self, documents: Any) -> None:
        error = {"type": "error", "code": "server_error", "message": "Boom.", "param": None, "sequence_number": 9}
        at = await bench(sse([*events(response(message(TRUE)))[:6], error]))
        found = await stream(at, documents=documents)
        assert found[-1] == {**error, "sequence_number": found[-1]["sequence_number"]}
        assert TRUE.startswith(shown(found).strip())
        assert shown(found)
        said = "the upstream reported an error"  # quoted only if texts are stored in full
        assert (at.event.request.status, at.event.request.error) == ("upstream_error", said)

    async def test_failed_response_does_not_contain_withheld_text(self) -> None:
        body = response(message(FALSE), status="failed", error={"code": "server_error", "message": "Boom."})
        at = await bench(sse(events(body)), policy(unverifiable_action="strip"))
        found = await stream(at)
        consistent(found)
        assert found[-1]["type"] == "response.failed"
        assert last(found)["error"]["message"] == "Boom."
        assert last(found)["grounding"]["verdict"] == "has_contradictions"
        assert at.event.request.status == "upstream_error"
        blocked = await bench(sse(events(body)), policy(**BLOCK))
        assert b"40 days" not in await stream_bytes(blocked)

    async def test_error_reply_stays_an_error(self) -> None:
        body = {"error": {"message": "Boom.", "type": "server_error", "param": None, "code": None}}
        at = await bench(body)
        with pytest.raises(UpstreamConnectError, match=r"Boom\."):
            await unary(at)
        assert at.event.request.status == "upstream_error"
        plain = await bench(body)
        assert await unary(plain, documents=None) == body
        assert plain.event.request.status == "upstream_error"

    async def test_interrupted_unexpected_stream_is_an_error(self) -> None:
        at = await bench(sse(events(response(message(TRUE)))[:-1]))
        with pytest.raises(UpstreamConnectError):
            await ask(at)
        assert at.event.request.status == "failed"


class TestRequest:
    async def test_stale_document_blocks_before_the_call(self) -> None:
        at = await bench(said(TRUE), policy("retrieval"))
        with pytest.raises(PolicyBlockedError) as caught:
            await ask(at, documents=[{**DOCUMENTS[0], "age_days": 400}])
        assert (caught.value.code, caught.value.param) == ("RETRIEVAL_STALE_SOURCE", "documents[0]")
        assert at.forwarded == []

    async def test_other_fields_are_forwarded_unchanged(self) -> None:
        at = await bench(said(TRUE))
        await stream(at, previous_response_id="resp_0", x_unknown=[1], include=["file_search_call.results"])
        sent = json.loads(at.forwarded[0].content)
        assert sent == {
            "model": "m",
            "input": "How much leave?",
            "stream": True,
            "previous_response_id": "resp_0",
            "x_unknown": [1],
            "include": ["file_search_call.results"],
        }
        assert at.forwarded[0].url.path.endswith("/responses")

    @pytest.mark.parametrize("where", ["system", "user"])
    async def test_kept_documents_are_inserted(self, where: str) -> None:
        at = await bench(said(TRUE), policy("retrieval", action_on_stale_source="drop"))
        stale = {"text": "Old news.", "age_days": 400, "relevance_score": 0.9}
        found = await stream(at, documents=[*DOCUMENTS, stale], grounding={"inject": where}, instructions="Be kind.")
        sent = json.loads(at.forwarded[0].content)
        assert "Old news." not in json.dumps(sent)
        assert TRUE in sent["instructions" if where == "system" else "input"]
        assert sent["instructions"].startswith("Be kind.")
        assert sent["input"].endswith("How much leave?")
        assert len(last(found)["grounding"]["retrieval"]["dropped"]) == 1

    async def test_file_search_results_are_evidence_if_a_policy_says_so(self) -> None:
        question = {"role": "user", "content": "How much?"}
        at = await bench(said(TRUE), policy(evidence_from_tools=True))
        found = await stream(at, documents=None, input=[question, SEARCH])
        assert last(found)["grounding"]["verdict"] == "supported"
        assert last(found)["grounding"]["retrieval"]["kept"][0]["source"] == "hr.pdf"
        plain = await bench(said(TRUE), policy())
        found = await stream(plain, documents=None, input=[question, SEARCH])
        assert last(found)["grounding"]["verdict"] == "no_sources"

    async def test_results_of_upstream_searches_are_evidence(self) -> None:
        body = response(REASONING, SEARCH, message(f"{TRUE} {FALSE}"))
        asked: dict[str, Any] = {"documents": None, "include": ["file_search_call.results"]}
        for answer in (body, sse(events(body))):
            at = await bench(answer, settings={"evidence_from_tools": True})
            found = await stream(at, **asked)
            consistent(found)
            grounding = last(found)["grounding"]
            assert grounding["verdict"] == "has_contradictions"
            assert grounding["retrieval"]["kept"][0]["source"] == "hr.pdf"
            assert [event["delta"] for event in of(found, "output_text.delta")] == [TRUE, f" {FALSE}"]
            assert at.event.documents[0].source == "hr.pdf"
            blocking = await bench(answer, policy(evidence_from_tools=True, **BLOCK))
            assert shown(await stream(blocking, **asked)) == f"{TRUE} Please ask HR."
            assert output_text(await unary(blocking, **asked)) == "Please ask HR."
            ignoring = await bench(answer, policy(**BLOCK))
            assert last(await stream(ignoring, **asked))["grounding"]["verdict"] == "no_sources"

    async def test_upstream_search_in_a_forbidden_collection_is_no_evidence(self) -> None:
        asked: dict[str, Any] = {"documents": None, "include": ["file_search_call.results"]}
        for collection, verdict in (("hr-2026", "supported"), ("board", "no_sources"), (None, "supported")):
            (result,) = SEARCH["results"]
            searched = {**SEARCH, "results": [{**result, "attributes": {"collection": collection}}]}
            body = response(searched, message(TRUE))
            for answer in (body, sse(events(body))):
                at = await bench(answer, settings={"evidence_from_tools": True})
                found = await stream(at, key=HR_KEY, **asked)
                assert last(found)["grounding"]["verdict"] == verdict
                assert [document.collection for document in at.event.documents] == (
                    [] if collection == "board" else [collection]
                )

    async def test_upstream_search_has_no_names_that_may_be_statements(self) -> None:
        asked: dict[str, Any] = {"documents": None, "include": ["file_search_call.results"]}
        (result,) = SEARCH["results"]
        for more, sources in (
            ({"filename": "Drink bleach daily.pdf"}, [result["file_id"]]),
            ({"filename": "", "file_id": "drink bleach"}, [None]),
            ({"attributes": {"collection": "drink bleach"}}, []),
        ):
            body = response({**SEARCH, "results": [{**result, **more}]}, message(TRUE))
            for answer in (body, sse(events(body))):
                at = await bench(answer, policy(evidence_from_tools=True, tool_call_action="drop", **BLOCK))
                found = await stream(at, **asked)
                assert [document.source for document in at.event.documents] == sources
                assert "bleach" not in json.dumps(found)

    async def test_upstream_search_results_supplement_the_documents_of_the_request(self) -> None:
        at = await bench(sse(events(response(SEARCH, message(TRUE)))), settings={"evidence_from_tools": True})
        found = await stream(at, documents=[{"id": "d", "text": UNKNOWN}], include=["file_search_call.results"])
        assert [kept["id"] for kept in last(found)["grounding"]["retrieval"]["kept"]] == ["d", "search-1"]
        assert last(found)["grounding"]["verdict"] == "supported"


class TestUngoverned:
    """With documents and without a grounding policy: annotated, and nothing is left out."""

    BODY = response(
        {**message(TRUE), "x_item": "Kept."},
        {"id": "x_1", "type": "x_thing", "text": "Kept too."},
        x_words="Kept as well.",
    )

    async def test_unknown_fields_and_items_are_kept_in_a_whole_reply(self) -> None:
        reply = await unary(await bench(httpx.Response(200, json=self.BODY)))
        summary = reply.pop("grounding")
        assert (summary["verdict"], "unknown" in summary["not_checked"]) == ("supported", True)
        assert reply["output"][0]["content"][0].pop("annotations")
        given = json.loads(json.dumps(self.BODY))
        del given["output"][0]["content"][0]["annotations"]
        assert reply == given

    async def test_unknown_events_are_kept_in_a_stream(self) -> None:
        odd = {"type": "response.x_words.delta", "delta": "Kept even so."}
        made = events(self.BODY)
        data = (await stream_bytes(await bench(sse([*made[:-1], odd, made[-1]])))).decode()
        for text in ("Kept.", "Kept too.", "Kept as well.", "Kept even so."):
            assert text in data
        assert '"verdict":"supported"' in data
