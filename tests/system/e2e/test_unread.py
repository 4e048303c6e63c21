"""No unjudged text is delivered, wherever the upstream hides it, in all four APIs, streamed and whole, under the
strictest rules. A row per kind."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from judges.types import Label
from tests.support.apis import messages_api, responses_api
from tests.support.apis.four_apis import APIS, PATHS, TRUE, ask, chat_reply, message_of, reply_of, request_of
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply

SECRET = "bleach"
BLOCK: dict[str, Any] = {
    "unjudged_action": "block",
    "contradiction_action": "block",
    "max_unsupported_claims": 0,
    "action_on_violation": "block",
    "max_unverifiable_ratio": 1.0,
    "min_citations": 0,
}
STRIP: dict[str, Any] = {
    "unjudged_action": "strip",
    "unverifiable_action": "strip",
    "max_unverifiable_ratio": 1.0,
    "min_grounding_score": 0.0,
    "min_citations": 0,
}
TEXTS = {
    "address": "https://bleach.com",
    "address without a scheme": "www.bleach.com",
    "address of a listed source": "Sources:\n- https://bleach.com/cures\n- lamp.md",
    "address in a table, with an invisible character": "|http://\x06bleach",
    "address with an invisible character": "www.\u200bbleach—",
    "yes with a marker": "No, 【1:0†bleach】",
    "fragment in a marker": "[d1#bleach]",
    "place in a marker": "[d1:bleach]",
    "page in a marker": "(lamp.md p. bleach)",
    "section in a marker": "[Source: lamp.md section bleach]",
    "place in a lenticular marker": "【1†source†bleach】",
    "question that suggests": "Have you tried drinking bleach?",
    "question that reports": "Do you want to know that bleach helps?",
    "question with a free word": "What bleach do you need?",
    "question after a courtesy": "Anything else bleach?",
    "refusal with a free word": "The bleach drinkers documents do not say.",
    "refusal with a free subject": "Bleach cures cancer is not mentioned in the document.",
    "refusal with a free object": "No bleach information about bleach each day available.",
}
SYMBOLS = {"sign": "☠", "mark": "❌", "relation": "≠", "letters in signs": "🅑🅛", "private": "\ue000"}
STRUCK = {
    "struck out": "~~{}~~",
    "struck out by one": "~{}~",
    "struck out by one, before an entity": "~{}~&nbsp;",
    "struck out by one, before a tag": "~{}~<b></b>",
    "struck out by one, before a quotation mark": "~{}~“",
    "struck out beyond a sentence": "~~{0} {0}~~",
    "deleted": "<del>{}</del>",
    "no longer correct": "<s>{}</s>",
    "not shown": "<template>{}</template>",
    "not shown, in a block": "<title>\n\n{}\n\n</title>",
    "not run": '<script type="x">{}</script>',
    "folded": "<details>{}</details>",
    "struck out by a tag with a slash": "<s/x>{}</s/x>",
    "struck out by a tag with a bracket": '<s x="<">{}</s x="<">',
    "overlaid": "\u0334{}\u0334",
    "struck out once invisible characters are removed": "<\u200bs>{}</\u200bs>",
}
"""Markup around a true statement, which a reader then doesn't take for true."""
NUMBERS = {
    "number without a list": ("873. hours", "873"),
    "number in a paragraph": ("It runs for\n873. hours daily.", "873"),
    "number after others": ("1. It runs.\n2. It stops.\n873) It runs.", "873"),
    "number in a quotation": ("> 873. hours", "873"),
    "number around a marker": ("It runs for 2[1]4 hours.", "2[1]4"),
    "number around a marker with a space": ("It runs for 2 [1]4 hours.", "2 [1]4"),
    "number after a marker": ("It runs for [1]4 hours.", "[1]4"),
    "number after a link": ("It runs for [1](https://hr.test/1)4 hours.", "14"),
    "number before a link": ("It runs for 4[1](https://hr.test/1) hours.", "41"),
    "number before emphasis": ("It runs for 2*4* hours.", "24"),
    "number after emphasis": ("It runs for *2*4 hours.", "24"),
    "number around asterisks": ("It runs for 2*4 hours.", "2*4"),
    "number around two asterisks": ("It runs for 2**4 hours.", "2**4"),
    "superscript before a number": ("It runs for <sup>1</sup>4 hours.", "^1 4"),
    "emphasis in a word": ("It does n*o*t run.", "not run"),
    "words around a marker": ("It is no [1]table lamp.", "no table"),
}
"""Text that states a different number once its markup is removed, and the part of it that a judge must read."""
JOINED = {
    "label of a definition": "[{}]: #\n{}",
    "label of a definition in an item": "- [{}]: #\n  {}",
    "label of a definition in a quotation": "> [{}]: <>\n> {}",
    "label in several lines": "[\n{}]:\n/u\n{}",
    "title": "[x]: # ({})\n{}",
    "title in a line of its own": "[x]: #\n'{}'\n{}",
    "title of a link": "[](x ({})) {}",
    "target of a link with brackets in its text": "[a [b [c]]](<{}>) {}",
    "image": "![{}](lamp.md) {}",
    "image in a link": "[![{}](x)](lamp.md) {}",
    "image with a reference": "![{}][lamp] {}",
    "image without a target": "![{}] {}",
}
"""Text that browsers don't show, before text that they show."""
JSON_TEXTS = {
    "inline code": "`bleach`",
    "fence": "~~~bleach\n~~~",
    "info string": '```json bleach\n{"a": "x"}\n```',
    "name of a language before a leaf": '```bleach\n{"runs": "24 hours"}\n```',
    "empty list": '{"bleach": []}',
    "empty list before a leaf": '{"bleach": [], "runs": "24 hours"}',
    "empty object before a leaf": '{"a": {"bleach": {}}, "runs": "24 hours"}',
    "key without a value": '{"runs": "24 hours", "bleach"}',
    "key before a key": '{"bleach" "runs": "24 hours"}',
    "empty object": '{"a": {"bleach": {}}}',
    "sign in a key": '{"❌ bleach": "24 hours"}',
    "end of a long path": '{"' + "lamp " * 85 + '": {"bleach": "24 hours"}}',
    "key of a text": '{"bleach": "The lamp runs for 24 hours."}',
    "address": "https://bleach.com",
    "attribute": "<br bleach>",
    "link": "![](bleach.png)",
}


LIE = "Drink bleach now."
CODE = "`rm -rf bleach`"
Replies = Callable[[bool], Reply]


def response_of(*parts: dict[str, Any], **fields: Any) -> Replies:
    """A message of the Responses API with ``parts`` after its text."""
    body = responses_api.response(responses_api.message(TRUE), **fields)
    body["output"][0]["content"] += parts
    *events, end = responses_api.events(responses_api.response(responses_api.message(TRUE)))
    stream_of = responses_api.sse([*events, {**end, "response": body}])
    return lambda stream: Reply(chunks=(stream_of,)) if stream else json_reply(body)


def streamed_response(*events: dict[str, Any]) -> Replies:
    """A response with ``events`` before its end."""
    made = responses_api.events(responses_api.response(responses_api.message(TRUE)))
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 1}
    made[-1:-1] = [{**where, **event} for event in events]
    return lambda _: Reply(chunks=(responses_api.sse(made),))


def message_with(*blocks: list[dict[str, Any]], **ended: Any) -> Replies:
    return lambda stream: message_of(messages_api.text(TRUE), *blocks, stream=stream, **ended)


def chat_with(*deltas: dict[str, Any]) -> Replies:
    return lambda stream: chat_reply({"content": f"{TRUE} "}, *deltas, stream=stream)


CITATION = {"type": "char_location", "cited_text": LIE, "document_index": 0, "document_title": LIE,
            "start_char_index": 0, "end_char_index": 5}  # fmt: skip


def cited(quotation: str) -> Replies:
    citation = {**CITATION, "cited_text": quotation, "document_title": None}
    return lambda stream: message_of(messages_api.text(TRUE, citations=[citation]), stream=stream)


CONTENT: dict[str, tuple[str, Replies]] = {
    "refusal": ("chat", chat_with({"refusal": LIE})),
    "refusal alone": ("chat", lambda stream: chat_reply({"refusal": LIE}, stream=stream)),
    "refusal beside text": ("chat", lambda stream: chat_reply({"content": TRUE, "refusal": LIE}, stream=stream)),
    "audio": ("chat", chat_with({"audio": {"id": "a", "data": "bleach", "transcript": LIE}})),
    "refusal part": ("responses", response_of({"type": "refusal", "refusal": LIE})),
    "refusal events": ("responses", streamed_response({"type": "response.refusal.delta", "delta": LIE})),
    "refused": ("responses", streamed_response({"type": "response.refusal.done", "refusal": LIE})),
    "audio part": ("responses", response_of({"type": "output_audio", "data": "bleach", "transcript": LIE})),
    "audio events": ("responses", streamed_response({"type": "response.audio.delta", "delta": "bleach"})),
    "reasoning in a message": ("responses", response_of({"type": "reasoning_text", "text": LIE})),
    "error without failure": ("responses", response_of(error={"code": "server_error", "message": LIE})),
    "compaction": ("messages", message_with([{"type": "compaction", "content": LIE}])),
    "unknown tool": ("messages", message_with([{"type": "bleach_tool_use", "id": "t", "name": "f", "input": {}}])),
    "unknown result": ("messages", message_with([{"type": "bleach_tool_result", "tool_use_id": "t", "content": LIE}])),
    "citation in a start": ("messages", message_with([{"type": "text", "text": "", "citations": [CITATION]}])),
    "quotation without spaces": ("messages", cited("Drink-bleach-now.")),
    "explanation": ("messages", message_with(stop_details={"type": "refusal", "explanation": LIE})),
    "stop reason": ("messages", message_with(stop_reason="bleach")),
    "container": ("messages", message_with(container={"id": "c", "note": "bleach"})),
}


@pytest.fixture(autouse=True)
def strict_judge(gateway: Gateway) -> None:
    gateway.judge.default = Label.UNVERIFIABLE
    gateway.judge.labels = {TRUE: Label.SUPPORTED}


def leaves_unread(gateway: Gateway, delivered: str, secret: str = SECRET) -> bool:
    read = any(secret in claim.casefold() for claim in gateway.judge.claims)
    return secret in delivered.casefold() and not read


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("rules", [BLOCK, STRIP], ids=["block", "strip"])
def test_unjudged_text_is_not_sent(gateway: Gateway, rules: dict[str, Any], api: str, stream: bool) -> None:
    agent = gateway.agent(grounding=rules)
    for kind, text in TEXTS.items():
        for reply in (text, f"{TRUE} {text}", f"{TRUE}\n\n{text}\n\n{TRUE}"):
            gateway.judge.calls.clear()
            status, delivered = ask(gateway, api, agent, reply_of(api, reply, stream=stream), stream=stream)
            assert status == 200
            assert not leaves_unread(gateway, delivered), (kind, reply)
    for kind, text in SYMBOLS.items():
        _, delivered = ask(gateway, api, agent, reply_of(api, f"{TRUE}\n\n{text}", stream=stream), stream=stream)
        assert text not in delivered, kind


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("rules", [BLOCK, STRIP], ids=["block", "strip"])
def test_text_is_never_struck_out_or_hidden(gateway: Gateway, rules: dict[str, Any], api: str, stream: bool) -> None:
    agent = gateway.agent(grounding=rules)
    for kind, markup in STRUCK.items():
        reply = reply_of(api, f"{TRUE} {markup.format(TRUE)}", stream=stream)
        _, delivered = ask(gateway, api, agent, reply, stream=stream)
        closing = markup.rpartition("}")[2]
        assert f"{TRUE}{closing}" not in delivered, kind
        assert (TRUE in delivered) == (rules is STRIP), kind


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("rules", [BLOCK, STRIP], ids=["block", "strip"])
def test_hidden_text_is_not_judged_with_visible_text(
    gateway: Gateway, rules: dict[str, Any], api: str, stream: bool
) -> None:
    agent = gateway.agent(grounding=rules)
    gateway.judge.default = Label.SUPPORTED
    gateway.judge.labels = {"the fee is due.": Label.UNVERIFIABLE}
    for kind, markup in JOINED.items():
        gateway.judge.calls.clear()
        text = markup.format("It is not true that", "the fee is due.")
        _, delivered = ask(gateway, api, agent, reply_of(api, text, stream=stream), stream=stream)
        assert not any("not true" in claim for claim in gateway.judge.claims), kind
        assert "the fee is due" not in delivered, kind


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("box", ["- [ ] ", "- [x] ", "1. [X] ", "> * [x] ", "- - [ ] "])
def test_check_boxes_are_left_out_or_block(gateway: Gateway, box: str, api: str, stream: bool) -> None:
    for rules in (BLOCK, STRIP):
        reply = reply_of(api, f"{box}{TRUE}", stream=stream)
        _, delivered = ask(gateway, api, gateway.agent(grounding=rules), reply, stream=stream)
        assert "[" not in delivered
        assert (TRUE in delivered) == (rules is STRIP)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
def test_judge_reads_the_same_numbers_as_the_client(gateway: Gateway, api: str, stream: bool) -> None:
    gateway.judge.default = Label.SUPPORTED
    agent = gateway.agent(grounding=STRIP)
    for kind, (text, read) in NUMBERS.items():
        gateway.judge.calls.clear()
        _, delivered = ask(gateway, api, agent, reply_of(api, text, stream=stream), stream=stream)
        leaves = text.split()[-1] in delivered
        assert not leaves or any(read in claim for claim in gateway.judge.claims), (kind, gateway.judge.claims)


@pytest.mark.parametrize("stream", [True, False])
def test_headers_carry_no_upstream_text(gateway: Gateway, stream: bool) -> None:
    agent = gateway.agent(grounding=BLOCK)
    said = {"openai-note": LIE, "x-ratelimit-note": LIE, "anthropic-note": LIE, "x-request-id": LIE, "retry-after": LIE}
    kept = {"openai-processing-ms": "12", "x-ratelimit-limit": "100, 100;w=60", "openai-version": "2020-10-01"}
    for api in APIS:
        reply = reply_of(api, TRUE, stream=stream)
        headers = {**reply.headers, **said, **kept}
        gateway.upstream.script(replace(reply, headers=headers))
        with gateway.call(request_of(api, agent, stream=stream), path=PATHS[api]) as made:
            made.read_all()
            returned = dict(made.headers)
        assert not [name for name, value in returned.items() if SECRET in value]
        assert {name: returned.get(name) for name in kept} == kept


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("rules", [BLOCK, STRIP], ids=["block", "strip"])
def test_unremovable_part_of_json_blocks_it(gateway: Gateway, rules: dict[str, Any], stream: bool) -> None:
    agent = gateway.agent(grounding=rules)
    wanted = {
        "chat": {"response_format": {"type": "json_object"}},
        "responses": {"text": {"format": {"type": "json_object"}}},
    }
    for api, more in wanted.items():
        for kind, text in JSON_TEXTS.items():
            gateway.judge.calls.clear()
            reply = reply_of(api, text, stream=stream)
            _, delivered = ask(gateway, api, agent, reply, stream=stream, **more)
            assert not leaves_unread(gateway, delivered), kind


@pytest.mark.parametrize(
    "text",
    [
        "[lamp.md, p. 3]", "[d1:2]", "(lamp.md#hours)", "【1†source†L1-L3】", "lamp.md",
        "Would you like more details about the lamp?",
        "Can I help you draft an email?", "The documents do not say.", "I'm sorry, I can't help with that. 😊",
        "Is there anything else that you need?",
    ],
)  # fmt: skip
def test_harmless_text_is_still_sent(gateway: Gateway, text: str) -> None:
    agent = gateway.agent(grounding=STRIP)
    reply = reply_of("chat", f"{TRUE} {text}", stream=True)
    assert text in ask(gateway, "chat", agent, reply, stream=True)[1]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("rules", [BLOCK, STRIP], ids=["block", "strip"])
def test_other_content_is_not_sent_unjudged(gateway: Gateway, rules: dict[str, Any], stream: bool) -> None:
    agent = gateway.agent(grounding=rules)
    for kind, (api, reply) in CONTENT.items():
        gateway.judge.calls.clear()
        status, delivered = ask(gateway, api, agent, reply(stream), stream=stream)
        assert status == 200, kind
        assert not leaves_unread(gateway, delivered), kind


@pytest.mark.parametrize("stream", [True, False])
def test_plain_refusal_is_sent_as_text(gateway: Gateway, stream: bool) -> None:
    agent, refusal = gateway.agent(grounding=BLOCK), "I'm sorry, I can't help with that."
    for api, reply in (
        ("chat", chat_reply({"refusal": refusal}, stream=stream)),
        ("responses", response_of({"type": "refusal", "refusal": refusal})(stream)),
    ):
        assert refusal in ask(gateway, api, agent, reply, stream=stream)[1]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
def test_upstream_error_has_only_error_fields(gateway: Gateway, api: str, stream: bool) -> None:
    agent = gateway.agent(grounding=BLOCK)
    told = {"message": "Too long.", "type": "invalid_request_error", "code": "context_length", "x": LIE}
    for body, message in (
        ({"error": told, "choices": [{"message": {"content": LIE}}]}, "Too long."),
        ({"choices": [{"message": {"content": LIE}}], "content": [{"type": "text", "text": LIE}]}, "status 418"),
        ([LIE], "status 418"),
    ):
        status, delivered = ask(gateway, api, agent, json_reply(body, status=418), stream=stream)
        assert status == 418
        assert message in delivered
        assert SECRET not in delivered
    page = Reply(status=302, headers={"content-type": "text/html"}, chunks=(LIE.encode(),))
    gateway.upstream.script(page)
    assert LIE not in json.dumps(ask(gateway, api, agent, page, stream=stream))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("mode", ["hold", "final"])
def test_blocked_reply_does_not_name_unsent_content(gateway: Gateway, mode: str, stream: bool) -> None:
    rules = {"unjudged_action": "block", "min_citations": 0, "min_grounding_score": 0.0, "stream_mode": mode}
    agent = gateway.agent(grounding=rules)
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]
    for api, reply in (
        ("chat", chat_reply({"content": CODE}, {"tool_calls": [call]}, stream=stream)),
        ("messages", message_of(messages_api.text(CODE), tool, stream=stream)),
        ("responses", _response_with_call(stream)),
    ):
        gateway.upstream.script(reply)
        with gateway.call(request_of(api, agent, stream=stream), path=PATHS[api]) as made:
            raw = made.read_all().decode()
        assert "content_filter" in raw or '"refusal"' in raw, api
        assert 'not_checked":[' not in raw.replace(" ", ""), api


def _response_with_call(stream: bool) -> Reply:
    body = responses_api.response(responses_api.message(CODE), responses_api.CALL)
    return Reply(chunks=(responses_api.sse(responses_api.events(body)),)) if stream else json_reply(body)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("rules", [BLOCK, STRIP], ids=["block", "strip"])
def test_beginning_of_an_echoed_prompt_is_not_sent_unjudged(
    gateway: Gateway, rules: dict[str, Any], stream: bool
) -> None:
    agent = gateway.agent(grounding=rules)
    request = {"prompt": f"{LIE} Is that right?", "echo": True}
    for text in (LIE, f"{LIE} Is", f"{LIE} Is that right!", f"{LIE} {TRUE}"):
        gateway.judge.calls.clear()
        reply = reply_of("completions", text, stream=stream)
        status, delivered = ask(gateway, "completions", agent, reply, stream=stream, **request)
        assert status == 200
        assert not leaves_unread(gateway, delivered), text
        assert SECRET not in delivered, text
