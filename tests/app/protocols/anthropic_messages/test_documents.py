"""Documents as content blocks of a Messages request: as evidence, in citations, and when they are dropped."""

import json
from typing import Any

import pytest

from app.errors import InvalidRequestError, PolicyBlockedError
from app.protocols.anthropic_messages.document_numbers import DocumentNumbers
from app.protocols.anthropic_messages.request import MessagesRequest, read_messages
from app.protocols.anthropic_messages.whole_reply import message_of
from app.protocols.common.stream_events import SupportingPassage
from app.protocols.documents import Limits
from judges.testing import NEUTRAL, ScriptedJudge, entails
from judges.types import Source, Span
from policies.types import Policy
from tests.support.apis.messages_api import sse, stream, streamed, text, text_of, unary, whole
from tests.support.gateways.in_process_gateway import TRUE, UNKNOWN, Bench, bench, policy

pytestmark = pytest.mark.anyio
Json = dict[str, Any]

OTHER = "The canteen opens at noon."
QUESTION: Json = {"type": "text", "text": "How much leave?"}
PDF: Json = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
PLAIN: Json = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": f"{OTHER} {TRUE}"},
    "title": "Handbook",
    "context": "2026 edition",
    "citations": {"enabled": True},
}
PARTS: Json = {
    "type": "document",
    "source": {"type": "content", "content": [{"type": "text", "text": OTHER}, {"type": "text", "text": TRUE}]},
    "title": "Parts",
}
RESULT: Json = {
    "type": "search_result",
    "source": "https://kb.test/leave",
    "title": "Leave",
    "content": [{"type": "text", "text": OTHER}, {"type": "text", "text": TRUE}],
}
UNRELATED: Json = {
    **RESULT,
    "source": "https://kb.test/canteen",
    "title": "Canteen",
    "content": [{"type": "text", "text": OTHER}],
}
LOOSE: Json = {"min_citations": 0, "min_grounding_score": 0.0}


def result(*content: Json) -> Json:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": list(content)}


def read(*content: Json, **fields: Any) -> MessagesRequest:
    body = {"model": "c", "messages": [{"role": "user", "content": list(content)}], **fields}
    return read_messages(json.dumps(body).encode(), {}, Limits())


async def citations(content: list[Json], documents: Any = None) -> list[Json]:
    body = await unary(await bench(whole(text(TRUE))), documents=documents, content=content)
    (block,) = body["content"]
    found: list[Json] = block["citations"]
    return found


def sent(b: Bench) -> Json:
    return dict(json.loads(b.forwarded[0].content))


def dropping(*sources: str) -> Policy:
    return policy("retrieval", blocked_sources=list(sources), action_on_blocked_source="drop")


def test_blocks_become_documents_and_stay_in_place() -> None:
    request = read(PLAIN, RESULT, result(UNRELATED), QUESTION)
    chunks = request.parsed.chunks
    assert [chunk.text for chunk in chunks] == [f"{OTHER} {TRUE}", f"{OTHER}\n{TRUE}", OTHER]
    assert [(chunk.source, chunk.title, chunk.url) for chunk in chunks] == [
        ("Handbook", "Handbook", None),
        ("https://kb.test/leave", "Leave", "https://kb.test/leave"),
        ("https://kb.test/canteen", "Canteen", "https://kb.test/canteen"),
    ]
    assert chunks[0].metadata == {"context": "2026 edition"}
    assert request.parsed.path_of(2) == "messages[0].content[2].content[0]"
    assert request.parsed.raw is not None


def test_documents_of_our_field_come_first() -> None:
    request = read(RESULT, QUESTION, documents=["Ours."])
    assert [chunk.text for chunk in request.parsed.chunks] == ["Ours.", f"{OTHER}\n{TRUE}"]
    assert request.parsed.paths == ("documents[0]", "messages[0].content[0]")
    assert "documents" not in request.parsed.body


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"stream": "yes"}, "stream"),
        ({"model": 3}, "model"),
        ({"documents": [{"text": "x", "relevance_score": "2"}]}, "documents[0].relevance_score"),
        ({"grounding": {"inject": "here"}}, "grounding.inject"),
    ],
)
def test_invalid_documents_are_named(fields: Json, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(QUESTION, **fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "odd",
    [
        None,
        3,
        "x",
        {"type": "document"},
        {"type": "document", "source": 3},
        {"type": "search_result", "content": None},
        {"type": "tool_result", "content": [3]},
    ],
)
def test_malformed_blocks_are_left_to_the_upstream(odd: Any) -> None:
    assert read(odd, QUESTION).parsed.chunks == ()


async def test_pdf_is_forwarded_and_reported_as_no_evidence() -> None:
    b = await bench(whole(text(TRUE)))
    body = await unary(b, documents=None, content=[PDF, RESULT, QUESTION])
    assert sent(b)["messages"][0]["content"][0] == PDF
    assert body["grounding"]["verdict"] == "supported"
    (warning,) = body["grounding"]["retrieval"]["warnings"]
    assert warning.startswith("messages[0].content[0]: the document is sent upstream")


async def test_cited_passage_is_found_at_its_position() -> None:
    (char,) = await citations([PDF, PLAIN, QUESTION])
    said = PLAIN["source"]["data"]
    assert TRUE in char["cited_text"]
    assert said[char["start_char_index"] : char["end_char_index"]] == char["cited_text"]
    for content in ([PARTS, QUESTION], [result(UNRELATED, RESULT), QUESTION]):
        (found,) = await citations(content)
        assert [OTHER, TRUE][found["start_block_index"] : found["end_block_index"]][-1] == TRUE
        assert found["cited_text"].endswith(TRUE)


def test_each_kind_of_document_is_cited_in_its_own_format() -> None:
    """Numbers are those of the API: each kind of block from zero; our own documents come after the blocks."""
    request = read(PDF, PLAIN, PARTS, result(UNRELATED, RESULT), QUESTION, documents=[{"text": TRUE, "title": "Mine"}])
    references = DocumentNumbers(request.blocks, request.parsed.chunks)

    def cite(position: int) -> Json:
        chunk = request.parsed.chunks[position]
        start = chunk.text.index(TRUE)
        span = Span(start, start + len(TRUE))
        source = Source(
            document_id=chunk.id, document_index=position, source=chunk.source, content=TRUE, score=1.0, span=span
        )
        return references.citation(SupportingPassage(position=position, chunk=chunk, source=source))

    char = {"type": "char_location", "cited_text": TRUE}
    start = len(OTHER) + 1
    blocks = {"cited_text": TRUE, "start_block_index": 1, "end_block_index": 2}
    assert [cite(position) for position in (0, 1, 2, 4)] == [
        {**char, "document_index": 3, "document_title": "Mine", "start_char_index": 0, "end_char_index": len(TRUE)},
        {
            **char,
            "document_index": 1,
            "document_title": "Handbook",
            "start_char_index": start,
            "end_char_index": start + len(TRUE),
        },
        {"type": "content_block_location", "document_index": 2, "document_title": "Parts", **blocks},
        {
            "type": "search_result_location",
            "search_result_index": 1,
            "source": "https://kb.test/leave",
            "title": "Leave",
            **blocks,
        },
    ]


async def test_dropped_block_is_removed_from_the_request() -> None:
    b = await bench(whole(text(TRUE)), dropping("https://kb.test/canteen"))
    content = [result(UNRELATED), UNRELATED, RESULT, QUESTION]
    body = await unary(b, documents=None, content=content)
    assert sent(b)["messages"][0]["content"] == [result(), RESULT, QUESTION]
    assert [d["source"] for d in body["grounding"]["retrieval"]["kept"]] == ["https://kb.test/leave"]
    assert [row.kept for row in b.event.documents] == [False, False, True]


async def test_upstream_citations_use_the_numbers_of_the_client() -> None:
    """If a block is dropped, the upstream counts fewer documents than the client sent."""
    cited: Json = {"type": "search_result_location", "cited_text": TRUE, "search_result_index": 0, "title": "Leave",
             "source": "https://kb.test/leave", "start_block_index": 1, "end_block_index": 2}  # fmt: skip
    blocks = text(TRUE, citations=[cited])
    expected = {**cited, "search_result_index": 1}
    for mode in ("hold", "live", "final"):
        rules = dropping("https://kb.test/canteen"), policy(stream_mode=mode, **LOOSE)
        made = await stream(
            await bench(streamed(blocks), *rules), documents=None, content=[UNRELATED, RESULT, QUESTION]
        )
        found = message_of(sse(made))
        assert found is not None
        assert expected in found["content"][0]["citations"]
    body = await unary(
        await bench(whole(blocks), dropping("https://kb.test/canteen")),
        documents=None,
        content=[UNRELATED, RESULT, QUESTION],
    )
    assert body["content"] == [{"type": "text", "text": TRUE, "citations": [expected]}]


async def test_drop_becomes_block_if_the_document_cannot_be_removed() -> None:
    """A message of documents alone would be empty without them; text from our own field is in the prompt already."""
    for content, documents in (([UNRELATED], None), ([UNRELATED, QUESTION], [{"text": OTHER}])):
        b = await bench(whole(text(TRUE)), dropping("https://kb.test/canteen"))
        with pytest.raises(PolicyBlockedError) as caught:
            await unary(b, documents=documents, content=content)
        assert "cannot be dropped" in caught.value.message
        assert caught.value.param in ("messages[0].content[0]",)
        assert b.forwarded == []


async def test_upstream_citations_count_for_the_policy() -> None:
    cited: Json = {"type": "search_result_location", "cited_text": OTHER, "search_result_index": 0, "title": "Canteen",
             "source": "https://kb.test/canteen", "start_block_index": 0, "end_block_index": 1}  # fmt: skip
    rules: Json = {"min_citations": 1, "min_grounding_score": 0.0, "action_on_violation": "block"}
    for first in (False, True):
        answer = whole(text(TRUE, citations=[{**cited, "search_result_index": 1}], first=first))
        body = await unary(await bench(answer, policy(**rules)), documents=None, content=[UNRELATED, RESULT, QUESTION])
        assert body["stop_reason"] == "end_turn"
    body = await unary(await bench(whole(text(TRUE)), policy(**rules)), documents=None, content=[RESULT, QUESTION])
    assert body["stop_reason"] == "refusal"


async def test_citation_not_supporting_its_sentence_is_found() -> None:
    cited: Json = {"type": "search_result_location", "cited_text": OTHER, "search_result_index": 0, "title": "Canteen",
             "source": "https://kb.test/canteen", "start_block_index": 0, "end_block_index": 1}  # fmt: skip
    rules: Json = {**LOOSE, "require_valid_citations": True, "action_on_violation": "block"}
    content = [UNRELATED, RESULT, QUESTION]
    answer = whole(text(f"{UNKNOWN} "), text(TRUE, citations=[cited]))
    judge = ScriptedJudge(lambda text, claim: entails() if claim in text else NEUTRAL)
    body = await unary(await bench(answer, policy(**rules), judge=judge), documents=None, content=content)
    assert body["stop_reason"] == "refusal"
    (decision,) = [d for d in body["grounding"]["decisions"] if d["action"] == "block"]
    assert decision["reason_code"] == "GROUNDING_BAD_CITATION"


async def test_citation_of_a_pdf_counts_though_unverifiable() -> None:
    cited: Json = {"type": "page_location", "cited_text": "…", "document_index": 0, "document_title": None,
             "start_page_number": 1, "end_page_number": 2}  # fmt: skip
    rules: Json = {"min_citations": 1, "min_grounding_score": 0.0, "require_valid_citations": True,
             "action_on_violation": "block"}  # fmt: skip
    answer = whole(text(TRUE, citations=[cited]))
    body = await unary(await bench(answer, policy(**rules)), documents=None, content=[PDF, RESULT, QUESTION])
    assert body["stop_reason"] == "end_turn"
    assert cited in body["content"][0]["citations"]


async def test_citations_within_a_sentence_stay_with_their_blocks() -> None:
    cited: Json = {"type": "search_result_location", "cited_text": TRUE, "search_result_index": 0, "title": "Leave",
             "source": "https://kb.test/leave", "start_block_index": 1, "end_block_index": 2}  # fmt: skip
    blocks = text(TRUE[:16]), text(TRUE[16:-1], citations=[cited]), text(".")
    made = await stream(await bench(streamed(*blocks)), documents=None, content=[RESULT, QUESTION])
    by_stream = message_of(sse(made))
    by_unary = await unary(await bench(whole(*blocks)), documents=None, content=[RESULT, QUESTION])
    assert by_stream is not None
    assert by_stream["content"] == by_unary["content"]
    assert by_unary["content"][:2] == [
        {"type": "text", "text": TRUE[:16]},
        {"type": "text", "text": TRUE[16:-1], "citations": [cited]},
    ]
    assert text_of(by_unary) == TRUE


@pytest.mark.parametrize("mode", ["hold", "final", "live"])
@pytest.mark.parametrize("end", [".", " .", ".\n"])
async def test_end_of_a_cited_sentence_repeats_no_citation(mode: str, end: str) -> None:
    """Claude puts the full stop of a cited sentence in a separate block."""
    cited: Json = {"type": "search_result_location", "cited_text": TRUE, "search_result_index": 0, "title": "Leave",
             "source": "https://kb.test/leave", "start_block_index": 1, "end_block_index": 2}  # fmt: skip
    blocks = text(TRUE[:-1], citations=[cited]), text(end)
    rules = policy(**LOOSE, stream_mode=mode)
    made = await stream(await bench(streamed(*blocks), rules), documents=None, content=[RESULT, QUESTION])
    whole_reply = await unary(await bench(whole(*blocks), rules), documents=None, content=[RESULT, QUESTION])
    for message in (message_of(sse(made)), whole_reply):
        assert message is not None
        first, last = message["content"]
        assert (first["text"], first["citations"]) == (TRUE[:-1], [cited])
        assert (last["text"].strip(), last.get("citations")) == (".", None)


@pytest.mark.parametrize("mode", ["hold", "final"])
async def test_our_citation_covers_its_sentence(mode: str) -> None:
    blocks = text(TRUE[:-1]), text(".")
    rules = policy(**LOOSE, stream_mode=mode)
    made = await stream(await bench(streamed(*blocks), rules), documents=None, content=[RESULT, QUESTION])
    message = message_of(sse(made))
    assert message is not None
    assert [len(block.get("citations", ())) for block in message["content"]] == [1, 0]


@pytest.mark.parametrize("system", [None, "Be brief.", [{"type": "text", "text": "Be brief."}]])
async def test_documents_are_inserted_after_the_system_text(system: Any) -> None:
    b = await bench(whole(text(TRUE)))
    fields = {} if system is None else {"system": system}
    await unary(b, documents=[{"text": TRUE}], content=[RESULT, QUESTION], grounding={"inject": "system"}, **fields)
    written = sent(b)["system"]
    said = written if isinstance(written, str) else "\n\n".join(part["text"] for part in written)
    assert said.startswith("Be brief.\n\nAnswer from" if system else "Answer from")
    assert said.count(TRUE) == 1
    assert OTHER not in said
    assert sent(b)["messages"][0]["content"] == [RESULT, QUESTION]


async def test_documents_are_inserted_before_the_question_after_tool_results() -> None:
    b = await bench(whole(text(TRUE)))
    await unary(b, documents=[{"text": TRUE}], content=[result(UNRELATED), QUESTION], grounding={"inject": "user"})
    first, second, third = sent(b)["messages"][0]["content"]
    assert (first, third) == (result(UNRELATED), QUESTION)
    assert TRUE in second["text"]
    b = await bench(whole(text(TRUE)))
    await unary(b, documents=[{"text": TRUE}], content="How much leave?", grounding={"inject": "user"})
    assert sent(b)["messages"][0]["content"].endswith("How much leave?")


async def test_tool_results_are_evidence_if_a_policy_says_so() -> None:
    content = [{**result(), "content": TRUE}, QUESTION]
    b = await bench(whole(text(TRUE)), policy(evidence_from_tools=True, **LOOSE))
    body = await unary(b, documents=None, content=content)
    assert body["grounding"]["verdict"] == "supported"
    assert sent(b)["messages"][0]["content"] == content
