"""Parsing requests: errors name every invalid field, valid fields are read, and the rest of the body is unchanged."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.errors import InvalidRequestError
from app.protocols.documents import Limits, ParsedRequest, read_chat

HELLO = [{"role": "user", "content": "Hello"}]


def read(headers: dict[str, str] | None = None, **fields: Any) -> ParsedRequest:
    body = {"model": "m", "messages": HELLO, **fields}
    return read_chat(json.dumps(body).encode(), headers or {}, Limits(documents=3))


def refused(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(**fields)
    return caught.value


def document(**fields: Any) -> dict[str, Any]:
    return {"text": "A fact.", **fields}


BAD_FIELDS = [
    ({"documents": "x"}, "documents"),
    ({"documents": [1]}, "documents[0]"),
    ({"documents": ["a", "b", "c", "d"]}, "documents"),
    ({"documents": [{"id": "d"}]}, "documents[0].text"),
    ({"documents": [document(), {"text": " "}]}, "documents[1].text"),
    ({"documents": [{"text": 5}]}, "documents[0].text"),
    ({"documents": [{"snippet": 5}]}, "documents[0].snippet"),
    ({"documents": [document(id=True)]}, "documents[0].id"),
    ({"documents": [document(source=7)]}, "documents[0].source"),
    ({"documents": [document(metadata=[])]}, "documents[0].metadata"),
    ({"documents": [document(relevance_score="0.5")]}, "documents[0].relevance_score"),
    ({"documents": [document(relevance_score=True)]}, "documents[0].relevance_score"),
    ({"documents": [document(relevance_score=float("nan"))]}, "documents[0].relevance_score"),
    ({"documents": [document(score=float("inf"))]}, "documents[0].score"),
    ({"documents": [document(age_days=-1)]}, "documents[0].age_days"),
    ({"documents": [document(age_days=float("-inf"))]}, "documents[0].age_days"),
    ({"documents": [document(age_days=10**400)]}, "documents[0].age_days"),
    ({"documents": [document(updated_at="yesterday")]}, "documents[0].updated_at"),
    ({"documents": [document(published_at="2999-01-01")]}, "documents[0].published_at"),
    ({"documents": [document(created_at=5)]}, "documents[0].created_at"),
    ({"grounding": []}, "grounding"),
    ({"grounding": {"injekt": "system"}}, "grounding.injekt"),
    ({"grounding": {"inject": "prompt"}}, "grounding.inject"),
    ({"grounding": {"include": ["everything"]}}, "grounding.include[0]"),
    ({"grounding": {"agent": 5}}, "grounding.agent"),
    ({"grounding": {"reported": {"grounding_scores": [0.5, 2]}}}, "grounding.reported.grounding_scores[1]"),
    ({"grounding": {"reported": {"output_confidence": float("nan")}}}, "grounding.reported.output_confidence"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [5]}, "messages[0]"),
    ({"model": 5}, "model"),
    ({"model": "m" * 513}, "model"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"temperature": float("nan")}, "temperature"),
    ({"metadata": {"a": [1, float("inf")]}}, "metadata.a[1]"),
]


@pytest.mark.parametrize("score", [7, -0.1])
def test_score_on_another_scale_is_marked_for_the_policies(score: float) -> None:
    parsed = read(documents=[document(score=0.5), document(metadata={"similarity": score})])
    assert parsed.unscaled == ("documents[1].metadata.similarity", score)
    assert [chunk.relevance_score for chunk in parsed.chunks] == [0.5, score]
    assert read(documents=[document(score=1)]).unscaled is None


@pytest.mark.parametrize(("fields", "param"), BAD_FIELDS, ids=[param for _, param in BAD_FIELDS])
def test_bad_field_is_named(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert error.param == param
    assert error.message.startswith(param)
    assert error.status == 400


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"5", b'{"a":1,}', b"\xff", b"[" * 100_000])
def test_non_object_body_is_rejected(raw: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="request body"):
        read_chat(raw, {}, Limits(documents=3))


def test_our_fields_are_removed_and_all_others_kept() -> None:
    parsed = read(documents=["x"], grounding={}, seed=2**63 - 1, top_k=20, extra={"a": [1, 2.5, None]})
    assert parsed.body == {
        "model": "m", "messages": HELLO, "seed": 2**63 - 1, "top_k": 20, "extra": {"a": [1, 2.5, None]}
    }  # fmt: skip
    assert parsed.raw is None


def test_body_without_our_fields_is_forwarded_unchanged() -> None:
    raw = b'{ "messages":[{"role":"user","content":"Hi"}], "seed": 123456789012345678901234567890, "x": 1.0 }'
    assert read_chat(raw, {}, Limits(documents=3)).raw == raw


def test_documents_are_read_under_any_alias() -> None:
    parsed = read(
        documents=[
            {
                "id": "a",
                "text": "t",
                "source": "s",
                "collection": "c",
                "relevance_score": 0.5,
                "age_days": 3,
                "url": "u",
            },
            {"page_content": "p", "similarity": 1, "filename": "f.pdf"},
            "plain",
        ]
    )
    first, second, third = parsed.chunks
    assert (first.id, first.text, first.source, first.collection) == ("a", "t", "s", "c")
    assert (first.relevance_score, first.age_days, first.url) == (0.5, 3, "u")
    assert (second.id, second.text, second.source, second.relevance_score) == ("doc-2", "p", "f.pdf", 1.0)
    assert (third.id, third.text, third.relevance_score, third.age_days) == ("doc-3", "plain", None, None)


def test_cohere_documents_are_read() -> None:
    (chunk,) = read(documents=[{"id": "1", "title": "T", "data": {"snippet": "Text."}}]).chunks
    assert (chunk.text, chunk.title) == ("Text.", "T")


def test_age_comes_from_the_first_date_given() -> None:
    now = datetime.now(UTC)
    old, new = (now - timedelta(days=400, hours=1)).isoformat(), (now - timedelta(days=2, hours=1)).isoformat()
    (updated, created, given) = read(
        documents=[
            document(updated_at=new, created_at=old),
            document(created_at=old.replace("+00:00", "Z")),
            document(age_days=7.5, updated_at=old),
        ]
    ).chunks
    assert (updated.age_days, created.age_days, given.age_days) == (2, 400, 7.5)


def test_agent_and_run_come_from_headers_unless_in_the_body() -> None:
    headers = {"x-groundlane-agent": "from-header", "x-groundlane-run-id": "run-1"}
    assert read(headers).options.agent == "from-header"
    options = read(headers, grounding={"agent": "from-body", "run_id": None}).options
    assert (options.agent, options.run_id) == ("from-body", "run-1")


def test_include_defaults_to_everything_and_empty_means_nothing() -> None:
    assert read().options.shows("claims")
    assert not read(grounding={"include": ["documents"]}).options.shows("claims")
    assert read(grounding={"include": []}).options.silent
    assert not read(grounding={"include": None}).options.silent
