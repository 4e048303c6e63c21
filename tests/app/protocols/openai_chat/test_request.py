"""Chat requests: evidence in messages, in chat template arguments and in tool results, and the body sent upstream."""

import json
from typing import Any

import pytest

from app.errors import InvalidRequestError, PolicyBlockedError
from app.protocols.documents import Limits, ParsedRequest, read_chat
from tests.support.gateways.in_process_gateway import FALSE, TRUE, bench, policy, whole

HELLO = {"role": "user", "content": "How much leave?"}


def read(*messages: Any, **fields: Any) -> ParsedRequest:
    body = {"model": "m", "messages": list(messages or (HELLO,)), **fields}
    return read_chat(json.dumps(body).encode(), {}, Limits())


def refused(*messages: Any, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequestError) as caught:
        read(*messages, **fields)
    return caught.value.param


def texts(parsed: ParsedRequest) -> list[str]:
    return [chunk.text for chunk in parsed.chunks]


class TestBesideTheMessages:
    def test_chat_template_documents_are_read_and_forwarded(self) -> None:
        arguments = {"documents": [{"title": "Leave", "text": TRUE}], "enable_thinking": False}
        parsed = read(chat_template_kwargs=arguments)
        assert (texts(parsed), parsed.paths) == ([TRUE], ("chat_template_kwargs.documents[0]",))
        assert parsed.raw is not None
        assert parsed.body["chat_template_kwargs"] == arguments

    def test_chat_template_documents_are_removed_if_the_gateway_writes_the_prompt(self) -> None:
        arguments = {"documents": [{"title": "Leave", "text": TRUE}], "enable_thinking": False}
        parsed = read(chat_template_kwargs=arguments, grounding={"inject": "system"})
        assert parsed.body == {"model": "m", "messages": [HELLO], "chat_template_kwargs": {"enable_thinking": False}}
        alone = read(chat_template_kwargs={"documents": [TRUE]}, grounding={"inject": "system"})
        assert alone.body == {"model": "m", "messages": [HELLO]}

    def test_literal_extra_body_is_understood(self) -> None:
        extra = {"documents": [TRUE], "grounding": {"agent": "a"}, "vendor": {"x": 1}}
        parsed = read(extra_body=extra)
        assert (texts(parsed), parsed.options.agent) == ([TRUE], "a")
        assert parsed.body == {"model": "m", "messages": [HELLO], "extra_body": {"vendor": {"x": 1}}}
        assert "extra_body" not in read(extra_body={"documents": [TRUE]}).body
        assert read(extra_body=extra, grounding={"agent": "b"}).options.agent == "b"

    @pytest.mark.parametrize("value", [5, "x", [], None, {"documents": None}])
    def test_other_values_of_extra_body_are_ignored(self, value: Any) -> None:
        parsed = read(extra_body=value, chat_template_kwargs=value)
        assert parsed.chunks == ()

    def test_errors_name_the_position(self) -> None:
        assert refused(extra_body={"documents": [{"text": 5}]}) == "extra_body.documents[0].text"
        assert refused(extra_body={"grounding": {"x": 1}}) == "extra_body.grounding.x"
        assert refused(extra_body={"grounding": 5}) == "extra_body.grounding"
        assert refused(chat_template_kwargs={"documents": "x"}) == "chat_template_kwargs.documents"


SOURCE = {"type": "grounding_source", "text": TRUE, "source": "hr.pdf", "score": 0.9, "age_days": 3}
QUERY = {"type": "query", "text": "How much leave?"}
TEXT = {"type": "text", "text": "Be brief."}


class TestGroundingParts:
    def test_source_parts_are_documents_and_forwarded_as_text(self) -> None:
        system, user = {"role": "system", "content": [SOURCE]}, {"role": "user", "content": [TEXT, QUERY]}
        parsed = read(system, user)
        (chunk,) = parsed.chunks
        assert (chunk.text, chunk.source, chunk.relevance_score, chunk.age_days) == (TRUE, "hr.pdf", 0.9, 3)
        assert parsed.paths == ("messages[0].content[0]",)
        assert parsed.query == "How much leave?"
        assert parsed.body["messages"] == [
            {"role": "system", "content": [{"type": "text", "text": TRUE}]},
            {"role": "user", "content": [TEXT, {"type": "text", "text": "How much leave?"}]},
        ]
        assert parsed.raw is None

    def test_source_parts_are_removed_if_the_gateway_writes_the_prompt(self) -> None:
        system, user = {"role": "system", "content": [SOURCE]}, {"role": "user", "content": [SOURCE, QUERY]}
        parsed = read(system, user, grounding={"inject": "system"})
        assert len(parsed.chunks) == 2
        assert parsed.body["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "How much leave?"}]},
        ]

    def test_query_option_takes_precedence_over_the_parts(self) -> None:
        assert read({"role": "user", "content": [QUERY]}, grounding={"query": "q"}).query == "q"
        assert read(grounding={"query": "q"}).query == "q"
        assert read({"role": "user", "content": [QUERY, QUERY]}).query == "How much leave?\nHow much leave?"
        assert read().query is None

    @pytest.mark.parametrize(
        ("part", "name"),
        [({"type": "grounding_source"}, ".text"), ({"type": "grounding_source", "text": ""}, ".text"),
         ({**SOURCE, "score": "7"}, ".score"), ({"type": "query"}, ".text"), ({"type": "query", "text": 5}, ".text")],
    )  # fmt: skip
    def test_errors_name_the_position(self, part: Any, name: str) -> None:
        assert refused(HELLO, {"role": "user", "content": [TEXT, part]}) == f"messages[1].content[1]{name}"

    def test_score_on_another_scale_keeps_its_position_for_the_policies(self) -> None:
        parsed = read(HELLO, {"role": "user", "content": [TEXT, {**SOURCE, "score": 7}]})
        assert parsed.unscaled == ("messages[1].content[1].score", 7)


SEARCH = {
    "type": "search_result",
    "source": "https://example.com/leave",
    "title": "Leave",
    "content": [{"type": "text", "text": TRUE}, {"type": "text", "text": "It is paid."}],
    "citations": {"enabled": True},
}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TRUE}, "title": "Leave"}
BLOCKS = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": TRUE}]}}
COHERE = {"type": "document", "document": {"id": "d9", "data": {"snippet": TRUE, "title": "Leave"}}}


class TestBlocks:
    def test_search_result_blocks_are_documents(self) -> None:
        parsed = read({"role": "user", "content": [SEARCH, TEXT]})
        (chunk,) = parsed.chunks
        assert (chunk.text, chunk.title) == (f"{TRUE}\nIt is paid.", "Leave")
        assert chunk.source == chunk.url == "https://example.com/leave"
        assert parsed.raw is not None

    @pytest.mark.parametrize("block", [DOCUMENT, BLOCKS, COHERE], ids=["text", "content", "cohere"])
    def test_document_blocks_are_documents(self, block: dict[str, Any]) -> None:
        parsed = read({"role": "user", "content": [TEXT, block]})
        assert (texts(parsed), parsed.paths) == ([TRUE], ("messages[0].content[1]",))
        assert parsed.raw is not None

    def test_fields_of_document_blocks_are_read(self) -> None:
        anthropic, cohere = read({"role": "user", "content": [DOCUMENT, COHERE]}).chunks
        assert (anthropic.id, anthropic.title) == ("doc-1", "Leave")
        assert (cohere.id, cohere.title) == ("d9", "Leave")

    def test_blocks_inside_tool_results_are_documents(self) -> None:
        result = {"type": "tool_result", "tool_use_id": "t", "content": [SEARCH, TEXT]}
        parsed = read({"role": "user", "content": [result]})
        assert parsed.paths == ("messages[0].content[0].content[0]",)
        written = read({"role": "user", "content": [result]}, grounding={"inject": "user"})
        assert written.body["messages"] == [{"role": "user", "content": [{**result, "content": [TEXT]}]}]

    def test_blocks_in_tool_messages_are_documents(self) -> None:
        message = {"role": "tool", "tool_call_id": "c", "content": [COHERE]}
        assert texts(read(HELLO, message)) == [TRUE]
        written = read(HELLO, message, grounding={"inject": "system"})
        assert written.body["messages"] == [HELLO, {**message, "content": ""}]

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
            {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
            {"type": "document", "source": 5},
            {"type": "document"},
            {"type": "search_result", "content": []},
            {"type": "search_result", "content": [{"type": "image"}]},
            {"type": "tool_result", "content": None},
            {"type": ["search_result"]},
            {"type": "image_url", "image_url": {"url": "x"}},
            "text",
            5,
        ],
    )
    @pytest.mark.parametrize("inject", ["none", "system"])
    def test_block_without_text_is_no_evidence_and_is_forwarded(self, block: Any, inject: str) -> None:
        message = {"role": "user", "content": [TEXT, block]}
        parsed = read(message, grounding={"inject": inject})
        assert parsed.chunks == ()
        assert parsed.body["messages"] == [message]

    def test_documents_are_read_in_order_of_position(self) -> None:
        parsed = read({"role": "user", "content": [SOURCE]}, documents=["a"], chat_template_kwargs={"documents": ["b"]})
        assert parsed.paths == ("documents[0]", "chat_template_kwargs.documents[0]", "messages[0].content[0]")
        assert [chunk.id for chunk in parsed.chunks] == ["doc-1", "doc-2", "doc-3"]


def tool(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call-1", "content": content, **fields}


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call-1", "type": "function", "function": {"name": "search_hr", "arguments": "{}"}}],
}


class TestTools:
    def test_tool_results_are_evidence_only_on_request(self) -> None:
        parsed = read(HELLO, CALL, tool(TRUE))
        assert parsed.chunks == ()
        assert texts(parsed.with_tools()) == [TRUE]

    @pytest.mark.parametrize("content", [TRUE, [{"type": "text", "text": TRUE}]])
    def test_text_result_is_a_document_of_the_tool(self, content: Any) -> None:
        parsed = read(HELLO, CALL, tool(content), documents=["a"]).with_tools()
        chunk = parsed.chunks[1]
        assert (chunk.id, chunk.text, chunk.source) == ("tool-1", TRUE, "search_hr")
        assert parsed.paths == ("documents[0]", "messages[2].content")
        assert parsed.standing == 1

    @pytest.mark.parametrize("form", [lambda found: found, lambda found: {"results": found, "query": "leave"}])
    def test_list_of_documents_is_read_as_documents(self, form: Any) -> None:
        found = [{"title": "Leave", "url": "https://x.y", "content": TRUE, "score": 0.9}, {"text": "b", "source": "s"}]
        first, second = read(HELLO, CALL, tool(json.dumps(form(found)))).with_tools().chunks
        assert (first.text, first.url, first.relevance_score, first.source) == (TRUE, "https://x.y", 0.9, "search_hr")
        assert (second.text, second.source) == ("b", "s")
        assert first.id != second.id

    @pytest.mark.parametrize(
        "content",
        ["[1, 2]", "{", '{"results": 5}', '{"balance": 5}', '[{"text": "x", "score": 37}]', '[{"n": 1}]', "[" * 2000],
    )
    def test_other_result_is_one_document(self, content: str) -> None:
        (chunk,) = read(HELLO, tool(content, name="f")).with_tools().chunks
        assert (chunk.text, chunk.source) == (content, "f")

    @pytest.mark.parametrize("content", ["", " ", None, [], [{"type": "image"}], 5])
    def test_empty_result_is_no_document(self, content: Any) -> None:
        assert read(HELLO, tool(content)).with_tools().chunks == ()

    def test_result_without_a_tool_name_has_no_source(self) -> None:
        message = {"role": "function", "content": TRUE, "name": {"x": 1}, "tool_call_id": ["c"]}
        (chunk,) = read(HELLO, {"role": "assistant", "tool_calls": [5, {"function": 5}]}, message).with_tools().chunks
        assert chunk.source is None

    def test_unknown_role_is_accepted(self) -> None:
        message = {"role": ["tool"], "content": [SOURCE]}
        assert read(message, grounding={"inject": "user"}).with_tools().body["messages"] == [{**message, "content": ""}]

    def test_limits_apply_to_tool_results(self) -> None:
        body = json.dumps({"messages": [HELLO, tool("x" * 11)]}).encode()
        parsed = read_chat(body, {}, Limits(document_chars=10))
        with pytest.raises(InvalidRequestError) as caught:
            parsed.with_tools()
        assert caught.value.param == "messages[1].content"


CONVERSATION = [HELLO, CALL, tool(TRUE)]


@pytest.mark.anyio
class TestThroughTheGateway:
    async def test_setting_makes_tool_results_evidence(self) -> None:
        for wanted, verdict in ((True, "supported"), (False, "no_sources")):
            at = await bench(whole(TRUE), policy(), settings={"evidence_from_tools": wanted})
            body = await at.unary(documents=None, messages=CONVERSATION)
            assert body["grounding"]["verdict"] == verdict

    async def test_rule_makes_tool_results_evidence(self) -> None:
        at = await bench(whole(FALSE), policy(evidence_from_tools=True, contradiction_action="block"))
        body = await at.unary(documents=None, messages=CONVERSATION)
        assert body["grounding"]["action"] == "block"
        assert [document.source for document in at.event.documents] == ["search_hr"]

    async def test_documents_in_the_prompt_are_not_written_again(self) -> None:
        at = await bench(whole(TRUE), settings={"evidence_from_tools": True})
        await at.unary(messages=CONVERSATION, documents=["Another text."], grounding={"inject": "system"})
        sent = at.forwarded[0].content.decode()
        assert (sent.count("Another text."), sent.count(TRUE)) == (1, 1)

    async def test_drop_becomes_block_for_tool_results(self) -> None:
        strict = policy("retrieval", action_on_low_relevance="drop")
        at = await bench(whole(TRUE), strict, settings={"evidence_from_tools": True})
        with pytest.raises(PolicyBlockedError) as caught:
            await at.unary(
                messages=CONVERSATION, documents=[{"text": "a", "score": 0.1}], grounding={"inject": "system"}
            )
        assert caught.value.param == "documents[0]"

    async def test_blocked_message_part_is_named(self) -> None:
        at = await bench(whole(TRUE), policy("retrieval", action_on_low_relevance="block"))
        with pytest.raises(PolicyBlockedError) as caught:
            await at.unary(documents=None, messages=[{"role": "user", "content": [TEXT, {**SOURCE, "score": 0.2}]}])
        assert caught.value.param == "messages[0].content[1]"
