"""Any request is either parsed, or rejected with the path of a field in it, and is sent upstream without our fields."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidRequestError
from app.protocols.documents import Limits, ParsedRequest, read_chat
from app.protocols.openai_completions.request import read_text

LIMITS = Limits(documents=4, document_chars=200, total_chars=400)

NAMES = st.sampled_from(
    ["text", "content", "data", "document", "node", "metadata", "meta", "attributes", "kwargs", "lc", "id", "score",
     "relevance_score", "age_days", "updated_at", "created_at", "source", "title", "url", "type", "documents",
     "grounding", "_excludes", "text_resource", "agent", "inject", "include", "reported", "query", "results", "x"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["text", "search_result", "document", "grounding_source", "query", "tool_result", "content", "A fact.",
         "system", "user", "2026-01-31", "2026-01-31T10:00:00Z", 0.5, 1_700_000_000, 2**70, "[{}]"]
    ),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=12
)
DOCUMENTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=5) | st.text(max_size=8) | VALUES, max_size=5) | VALUES
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "search_result", "document", "grounding_source", "query", "tool_result", "x"])},
    optional={name: VALUES for name in ("text", "content", "source", "document", "title", "score")},
)
CONTENT = st.text(max_size=8) | st.lists(PARTS | VALUES, max_size=3) | VALUES
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]) | VALUES},
    optional={"content": CONTENT, "tool_calls": VALUES, "name": VALUES, "tool_call_id": VALUES},
)
BODY = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE | VALUES, max_size=3) | VALUES},
    optional={
        "documents": DOCUMENTS,
        "grounding": st.dictionaries(NAMES, VALUES, max_size=3) | VALUES,
        "extra_body": st.fixed_dictionaries({}, optional={"documents": DOCUMENTS, "grounding": VALUES, "x": VALUES}),
        "chat_template_kwargs": st.fixed_dictionaries({}, optional={"documents": DOCUMENTS, "x": VALUES}),
        "n": VALUES,
        "stream": st.booleans() | VALUES,
        "x_vendor": VALUES,
    },
)
GOOD = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.just("user"), "content": CONTENT}), min_size=1, max_size=3
        )
    },
    optional={
        "documents": st.lists(
            st.fixed_dictionaries({"text": st.just("A fact."), "score": st.floats(0, 1)}), max_size=3
        ),
        "grounding": st.fixed_dictionaries({}, optional={"inject": st.sampled_from(["none", "system", "user"])}),
        "chat_template_kwargs": st.fixed_dictionaries({}, optional={"documents": st.just(["A fact."]), "x": VALUES}),
        "extra_body": st.fixed_dictionaries({}, optional={"documents": st.just(["A fact."]), "x": VALUES}),
        "x_vendor": VALUES,
    },
)


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


def steps(param: str) -> list[str | int]:
    return [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", param)]


def stands_or_is_missing(body: Any, param: str) -> bool:
    """Whether the path exists in ``body``, at least up to its last part."""
    path = steps(param)
    for position, step in enumerate(path):
        if isinstance(body, dict) and isinstance(step, str):
            if step not in body:
                return position == len(path) - 1
            body = body[step]
        elif isinstance(body, list) and isinstance(step, int) and step < len(body):
            body = body[step]
        else:
            return False
    return True


def attempt(make: Callable[[], ParsedRequest]) -> ParsedRequest | InvalidRequestError:
    try:
        return make()
    except InvalidRequestError as error:
        return error


def checked(made: ParsedRequest | InvalidRequestError, body: Any) -> ParsedRequest | None:
    """The parsed request, or None if it is rejected properly."""
    if isinstance(made, ParsedRequest):
        return made
    assert made.status == 400
    assert made.message.encode()
    assert made.param is not None
    assert stands_or_is_missing(body, made.param), made.param
    return None


def read(body: Mapping[str, Any]) -> ParsedRequest | None:
    raw = encoded(body)
    return checked(attempt(lambda: read_chat(raw, {}, LIMITS)), json.loads(raw))


@given(BODY)
def test_any_body_is_read_or_rejected_with_an_existing_field(body: dict[str, Any]) -> None:
    parsed = read(body)
    if parsed is None:
        return
    assert len(parsed.paths) == len(parsed.chunks) <= LIMITS.documents
    assert all(chunk.text.strip() and chunk.id for chunk in parsed.chunks)
    assert all(chunk.relevance_score is None or 0 <= chunk.relevance_score <= 1 for chunk in parsed.chunks)
    assert all(chunk.age_days is None or chunk.age_days >= 0 for chunk in parsed.chunks)
    assert all(stands_or_is_missing(body, path) for path in parsed.paths)
    told = checked(attempt(parsed.with_tools), body)
    assert told is None or told.chunks[: len(parsed.chunks)] == parsed.chunks


@given(BODY | GOOD)
def test_reading_is_repeatable_and_changes_nothing(body: dict[str, Any]) -> None:
    before = encoded(body)
    first, second = read(body), read(body)
    assert encoded(body) == before
    if first is not None and second is not None:
        assert (first.chunks, first.paths, first.options, first.query) == (
            second.chunks, second.paths, second.options, second.query,
        )  # fmt: skip
        assert first.body == second.body


@given(GOOD)
def test_forwarded_body_contains_no_fields_of_ours(body: dict[str, Any]) -> None:
    parsed = read(body)
    if parsed is None or not parsed.body["messages"]:
        return
    again = read(parsed.body)
    assert again is not None
    assert again.body == parsed.body
    assert again.raw is not None
    if parsed.options.inject != "none":
        assert again.chunks == ()


@given(BODY | GOOD)
def test_forwarded_body_is_the_request_without_our_fields(body: dict[str, Any]) -> None:
    parsed = read(body)
    if parsed is None:
        return
    given = json.loads(encoded(body))
    same = {"messages", "extra_body", "chat_template_kwargs", "documents", "grounding"}
    assert {k: v for k, v in parsed.body.items() if k not in same} == {k: v for k, v in given.items() if k not in same}
    assert not {"documents", "grounding"} & parsed.body.keys()
    extra = parsed.body.get("extra_body")
    assert extra is None or not {"documents", "grounding"} & extra.keys()
    assert (parsed.raw is not None) is (parsed.body == given), "bytes go on exactly where nothing is taken out"


@given(BODY)
def test_messages_keep_everything_but_their_evidence(body: dict[str, Any]) -> None:
    parsed = read(body)
    if parsed is None:
        return
    assert kept(parsed.body["messages"]) == kept(json.loads(encoded(body))["messages"])


def kept(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Fields of messages beside their content, and parts of the content that are neither evidence nor text."""
    ours = ("search_result", "document", "grounding_source", "query", "tool_result", "text")
    plain = [
        [part for part in message["content"] if not (isinstance(part, dict) and part.get("type") in ours)]
        for message in messages
        if isinstance(message.get("content"), list)
    ]
    return [parts for parts in plain if parts]


@given(
    st.fixed_dictionaries({"prompt": VALUES}, optional={"documents": DOCUMENTS, "grounding": VALUES, "echo": VALUES})
)
def test_plain_completions_are_read_or_rejected_likewise(body: dict[str, Any]) -> None:
    raw = encoded(body)
    parsed = checked(attempt(lambda: read_text(raw, {}, LIMITS)), json.loads(raw))
    if parsed is not None:
        ours = ("documents", "grounding")
        assert parsed.body == {name: value for name, value in json.loads(raw).items() if name not in ours}
