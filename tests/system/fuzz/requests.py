"""The readers of request bodies, of all four APIs: they return a request that can be forwarded, or an error that names
a field."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.errors import InvalidRequestError
from app.gateway.types import GatewayRequest, ProtocolAdapter
from app.gateway.upstream_call import upstream_request
from app.protocols.anthropic_messages import MessagesAdapter
from app.protocols.anthropic_messages.request import read_messages
from app.protocols.documents import Limits, ParsedRequest, read_chat
from app.protocols.openai_chat.adapter import ChatAdapter
from app.protocols.openai_completions.adapter import CompletionsAdapter
from app.protocols.openai_completions.request import read_text
from app.protocols.openai_responses import ResponsesAdapter
from app.protocols.openai_responses.request import read_responses
from app.upstream import BodyFormat
from tests.system.fuzz.draw import Draw, encoded, names_in

LIMITS = Limits(documents=8, document_chars=2_000, total_chars=4_000)
DOCUMENTS: Sequence[Any] = (
    "Staff have 25 days.",
    {
        "id": "d1",
        "text": "Staff have 25 days.",
        "source": "hr.pdf",
        "collection": "hr",
        "relevance_score": 0.9,
        "age_days": 3,
        "title": "HR",
        "url": "https://docs.test/hr",
        "metadata": {"updated_at": "2026-01-31"},
    },
    {"page_content": "A fact.", "metadata": {"source": "a.md", "published_at": "2026-01-31T10:00:00Z"}, "score": 0.5},
    {"data": {"snippet": "A fact.", "title": "T"}, "similarity": 0.2},
    {"node": {"text_resource": {"text": "A fact."}, "metadata": {"file_name": "b"}}, "score": 0.4},
    {"lc": 1, "kwargs": {"page_content": "A fact.", "metadata": {}}},
    {"document": {"content": "A fact.", "meta": {"file_id": "f", "created_at": 1_700_000_000}}, "relevance": 1},
)
OURS: Mapping[str, Any] = {
    "documents": DOCUMENTS,
    "grounding": {
        "agent": "a",
        "run_id": "run_0123456789abcdef0123456789abcdef",
        "query": "How much leave?",
        "inject": "system",
        "include": ["claims", "decisions", "documents"],
        "reported": {
            "grounding_scores": [0.5],
            "citations": ["hr.pdf"],
            "unsupported_claims": ["x"],
            "output_confidence": 1,
        },
    },
    "extra_body": {"documents": ["A fact."], "grounding": {"inject": "user"}},
    "chat_template_kwargs": {"documents": ["A fact."]},
}
SEARCH_RESULT = {
    "type": "search_result",
    "source": "https://docs.test",
    "title": "T",
    "content": [{"type": "text", "text": "A fact."}],
    "citations": {"enabled": True},
}
DOCUMENT = {
    "type": "document",
    "title": "T",
    "context": "c",
    "source": {"type": "text", "media_type": "text/plain", "data": "A fact."},
}
CHAT: Mapping[str, Any] = {
    "model": "m",
    "stream": True,
    "n": 2,
    "stream_options": {"include_usage": True},
    "response_format": {"type": "json_schema", "json_schema": {}},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "How much leave?"},
                {"type": "grounding_source", "text": "A fact."},
                {"type": "query", "text": "leave"},
                SEARCH_RESULT,
                DOCUMENT,
                {"type": "image_url", "image_url": {"url": "data:x"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"results": [{"text": "A fact.", "score": 0.5}]}'},
    ],
    **OURS,
}
RESPONSES: Mapping[str, Any] = {
    "model": "m",
    "stream": True,
    "instructions": "Be brief.",
    "text": {"format": {"type": "json_object"}},
    "tools": [{"type": "file_search", "vector_store_ids": ["v"]}],
    "previous_response_id": "resp_1",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "How much leave?"}]},
        {
            "type": "file_search_call",
            "id": "fs_1",
            "status": "completed",
            "queries": ["leave"],
            "results": [{"file_id": "f", "filename": "hr.pdf", "score": 0.9, "text": "A fact.", "attributes": {}}],
        },
        {"type": "function_call_output", "call_id": "c1", "output": '{"documents": [{"content": "A fact."}]}'},
        {"role": "assistant", "content": [{"type": "output_text", "text": "25 days."}]},
        {"role": "user", "content": "And sick leave?"},
    ],
    **OURS,
}
MESSAGES: Mapping[str, Any] = {
    "model": "m",
    "max_tokens": 99,
    "stream": True,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {}}],
    "messages": [
        {
            "role": "user",
            "content": [
                SEARCH_RESULT,
                DOCUMENT,
                {"type": "text", "text": "How much leave?"},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "A fact."}]}},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [SEARCH_RESULT, DOCUMENT]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "A fact."},
            ],
        },
    ],
    **OURS,
}
TEXT: Mapping[str, Any] = {
    "model": "m",
    "prompt": ["How much leave?", "And sick leave?"],
    "suffix": "s",
    "n": 2,
    "best_of": 2,
    "stream": True,
    "echo": True,
    "stream_options": {"include_usage": True},
    **OURS,
}


def _messages(raw: bytes) -> tuple[ParsedRequest, ProtocolAdapter]:
    request = read_messages(raw, {}, LIMITS)
    return request.parsed, MessagesAdapter(request)


def _text(raw: bytes) -> tuple[ParsedRequest, ProtocolAdapter]:
    parsed = read_text(raw, {}, LIMITS)
    return parsed, CompletionsAdapter(parsed.body)


Reader = Callable[[bytes], tuple[ParsedRequest, ProtocolAdapter]]
APIS: Sequence[tuple[Mapping[str, Any], Reader]] = (
    (CHAT, lambda raw: (read_chat(raw, {}, LIMITS), ChatAdapter())),
    (RESPONSES, lambda raw: (read_responses(raw, {}, LIMITS), ResponsesAdapter())),
    (MESSAGES, _messages),
    (TEXT, _text),
)
NAMES = names_in(*(template for template, _ in APIS))


def check(data: bytes) -> None:
    """A body of one API, made from ``data``: a valid one with something wrong in it, or arbitrary bytes."""
    draw = Draw(data)
    template, read = draw.pick(APIS)
    left_out = draw.byte()
    kept = {name: value for place, (name, value) in enumerate(template.items()) if not left_out >> place % 8 & 1}
    raw = draw.rest() if draw.below(16) == 0 else encoded(draw.edited(kept, NAMES))
    try:
        parsed, adapter = read(raw)
        with_tools = parsed.with_tools()
    except InvalidRequestError as error:
        json.dumps(error.body(), allow_nan=False).encode()
        if not error.message.isprintable() and not any(letter.isspace() for letter in error.message):
            raise AssertionError("an error that cannot be printed") from error
        return
    _send(parsed, adapter)
    _send(with_tools.drop(range(0, len(with_tools.chunks), 2)), adapter)


def _send(parsed: ParsedRequest, adapter: ProtocolAdapter) -> None:
    """The body sent upstream is JSON without our fields, unless the request wasn't read."""
    adapter.prompt_text(parsed.body)
    call = GatewayRequest(adapter=adapter, parsed=parsed, headers=[])
    content = upstream_request(call, parsed.chunks).content
    body = json.loads(
        content(BodyFormat(model="other", renamed=True, documents=True)) if callable(content) else content
    )
    if "grounding" in body:
        raise AssertionError("our fields went upstream")
