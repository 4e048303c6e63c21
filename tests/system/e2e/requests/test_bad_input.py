"""Invalid input: a clear 4xx that names the field, nothing forwarded, and a server that continues."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

MESSAGES = [{"role": "user", "content": "Q?"}]
GOOD = {"model": "test-model-1", "messages": MESSAGES}
FUTURE = "2999-01-01T00:00:00Z"


@pytest.fixture(autouse=True)
def _nothing_reaches_the_upstream_and_the_server_goes_on(gateway: Gateway) -> Iterator[None]:
    gateway.upstream.script(answer("Fine.", stream=False))
    yield
    assert gateway.upstream.exchanges == []
    with gateway.call(GOOD) as call:
        assert call.status == 200
        assert call.json()["choices"][0]["message"]["content"] == "Fine."


def refused(gateway: Gateway, body: Any, *, status: int = 400, path: str = "/v1/chat/completions") -> dict[str, Any]:
    """The error for ``body``, in OpenAI's format, with a message of one line and no stack trace."""
    with gateway.call(body, path=path) as call:
        assert call.status == status
        assert (call.header("content-type") or "").startswith("application/json")
        error: dict[str, Any] = call.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert error["message"]
    assert len(error["message"]) < 500
    for leak in ("Traceback", ".py", "pydantic", "errors.pydantic.dev"):
        assert leak not in error["message"]
    return error


def with_document(**fields: Any) -> dict[str, Any]:
    return {**GOOD, "documents": [{"text": "fine"}, {"text": "fine too"}, {"text": "A text.", **fields}]}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"not json",
        b'{"model": "m", "messages": [{"role": "user", "content": "Q"}],}',
        b"\xff\xfe",
        b'{"model": "\xe9", "messages": []}',
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
    ids=["empty", "cut", "words", "trailing-comma", "not-utf8", "latin1", "open-brackets", "nested-objects"],
)
def test_invalid_json_is_rejected(gateway: Gateway, raw: bytes) -> None:
    assert "JSON" in refused(gateway, raw)["message"]


@pytest.mark.parametrize("body", [[], "text", 7, None, True], ids=repr)
def test_non_object_body_is_rejected(gateway: Gateway, body: Any) -> None:
    assert "object" in refused(gateway, json.dumps(body).encode())["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m"}, "messages"),
        ({**GOOD, "messages": []}, "messages"),
        ({**GOOD, "messages": "Q?"}, "messages"),
        ({**GOOD, "messages": ["Q?"]}, "messages[0]"),
        ({**GOOD, "messages": [*MESSAGES, None]}, "messages[1]"),
        ({**GOOD, "model": 7}, "model"),
        ({**GOOD, "stream": "yes"}, "stream"),
        ({**GOOD, "stream_options": True}, "stream_options"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_types_are_rejected(gateway: Gateway, body: Any, param: str) -> None:
    assert refused(gateway, body)["param"] == param


@pytest.mark.parametrize(
    "fields",
    [
        {"relevance_score": 7},
        {"relevance_score": -0.1},
        {"relevance_score": "high"},
        {"relevance_score": True},
        {"relevance_score": 10**400},
        {"score": 1.5},
        {"similarity": []},
        {"age_days": -1},
        {"age_days": "old"},
        {"age_days": False},
        {"updated_at": "yesterday"},
        {"updated_at": True},
        {"updated_at": ["2026-01-31"]},
        {"updated_at": 4_000_000_000},
        {"updated_at": FUTURE},
        {"published_at": FUTURE},
        {"id": {"a": 1}},
        {"source": 7},
        {"collection": ["kb"]},
        {"title": 1},
        {"url": 1},
        {"metadata": "none"},
    ],
    ids=lambda fields: json.dumps(fields)[:40],
)
def test_bad_field_of_a_document_is_named(gateway: Gateway, fields: dict[str, Any]) -> None:
    (name,) = fields
    error = refused(gateway, with_document(**fields))
    assert error["param"] == f"documents[2].{name}"
    assert f"documents[2].{name}" in error["message"]


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize("name", ["relevance_score", "age_days"])
def test_invalid_numbers_are_named(gateway: Gateway, name: str, constant: str) -> None:
    body = f'{{"model": "m", "messages": [{{"role": "user"}}], "documents": [{{"text": "t", "{name}": {constant}}}]}}'
    assert refused(gateway, body.encode())["param"] == f"documents[0].{name}"


def test_nan_elsewhere_in_the_request_is_named(gateway: Gateway) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "Q"}], "temperature": NaN}'
    assert refused(gateway, body)["param"] == "temperature"


@pytest.mark.parametrize(
    ("documents", "param"),
    [
        ({}, "documents"),
        ("text", "documents"),
        (7, "documents"),
        ([7], "documents[0]"),
        ([None], "documents[0]"),
        ([["text"]], "documents[0]"),
        ([{}], "documents[0].text"),
        ([{"text": None}], "documents[0].text"),
        ([{"text": ""}], "documents[0].text"),
        ([{"text": "  \n"}], "documents[0].text"),
        ([{"text": 7}], "documents[0].text"),
        ([{"source": "a.pdf"}], "documents[0].text"),
        ([{"text": "a"}, ""], "documents[1]"),
    ],
    ids=lambda value: json.dumps(value)[:30],
)
def test_malformed_documents_are_named(gateway: Gateway, documents: Any, param: str) -> None:
    assert refused(gateway, {**GOOD, "documents": documents})["param"] == param


def test_ten_thousand_documents_are_too_many(gateway: Gateway) -> None:
    error = refused(gateway, {**GOOD, "documents": [{"text": "t"}] * 10_000})
    assert error["param"] == "documents"
    assert "10000" in error["message"].replace(",", "")


def test_body_of_twenty_megabytes_is_too_large(gateway: Gateway) -> None:
    error = refused(gateway, {**GOOD, "padding": "x" * 20_000_000}, status=413)
    assert "16" in error["message"] or str(gateway.settings.max_body_bytes) in error["message"]


def test_body_without_length_is_cut_off_at_the_limit(gateway: Gateway) -> None:
    """Chunked framing doesn't state the length; the limit still applies."""
    piece = b"x" * 1_000_000

    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield piece

    response = gateway.admin.post(
        f"{gateway.base_url}/chat/completions", content=pieces(), headers={"content-type": "application/json"}
    )
    assert response.status_code == 413
    assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("grounding", "param"),
    [
        ([], "grounding"),
        ("hold", "grounding"),
        (True, "grounding"),
        ({"enforce": False}, "grounding.enforce"),
        ({"inject": "prompt"}, "grounding.inject"),
        ({"inject": 1}, "grounding.inject"),
        ({"agent": 7}, "grounding.agent"),
        ({"agent": ""}, "grounding.agent"),
        ({"include": "claims"}, "grounding.include"),
        ({"include": ["everything"]}, "grounding.include[0]"),
        ({"include": ["claims", 1]}, "grounding.include[1]"),
        ({"query": []}, "grounding.query"),
        ({"run_id": {}}, "grounding.run_id"),
        ({"reported": []}, "grounding.reported"),
        ({"reported": {"scores": [1]}}, "grounding.reported.scores"),
        ({"reported": {"grounding_scores": [0.5, 7]}}, "grounding.reported.grounding_scores[1]"),
        ({"reported": {"grounding_scores": ["high"]}}, "grounding.reported.grounding_scores[0]"),
        ({"reported": {"citations": "a.pdf"}}, "grounding.reported.citations"),
        ({"reported": {"output_confidence": 1.2}}, "grounding.reported.output_confidence"),
        ({"reported": {"output_confidence": "sure"}}, "grounding.reported.output_confidence"),
    ],
    ids=lambda value: json.dumps(value)[:50],
)
def test_invalid_grounding_options_are_named(gateway: Gateway, grounding: Any, param: str) -> None:
    error = refused(gateway, {**GOOD, "documents": ["t"], "grounding": grounding})
    assert error["param"] == param
    assert param in error["message"]


def test_lone_surrogate_is_no_crash(gateway: Gateway) -> None:
    raw = b'{"model": "m", "messages": [{"role": "user"}], "documents": [{"text": "\\ud800", "score": 9}]}'
    assert refused(gateway, raw)["param"]


def test_invalid_input_is_never_recorded_as_a_success(gateway: Gateway) -> None:
    model = "refused-model"
    refused(gateway, {**with_document(relevance_score=7), "model": model})
    rows = gateway.admin.get("/requests", params={"model": model}).json()["items"]
    assert all(row["status"] == "failed" for row in rows)


# The admin API


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    body: dict[str, Any] = response.json()
    assert set(body) >= {"type", "title", "status", "detail"}
    assert body["status"] == status
    assert "Traceback" not in response.text
    return body


def field_of(entry: dict[str, Any]) -> str:
    """The field that an entry of ``errors`` names, such as ``rules.min_relevance_score``."""
    loc = entry["loc"]
    parts = [str(part) for part in loc if part != "body"] if isinstance(loc, list) else [str(loc)]
    return ".".join(parts).removeprefix("body.")


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"category": "retrieval", "rules": {}}, "name"),
        ({"name": "p", "rules": {}}, "category"),
        ({"name": "p", "category": "weather", "rules": {}}, "category"),
        ({"name": "p", "category": "retrieval", "rules": {"min_relevance": 0.5}}, "rules.min_relevance"),
        ({"name": "p", "category": "retrieval", "rules": {"min_relevance_score": 7}}, "rules.min_relevance_score"),
        ({"name": "p", "category": "retrieval", "rules": {"min_relevance_score": "0.5"}}, "rules.min_relevance_score"),
        ({"name": "p", "category": "retrieval", "rules": {"max_chunks": 0}}, "rules.max_chunks"),
        ({"name": "p", "category": "retrieval", "rules": {"max_chunks": 2.5}}, "rules.max_chunks"),
        (
            {"name": "p", "category": "retrieval", "rules": {"action_on_stale_source": "shout"}},
            "rules.action_on_stale_source",
        ),
        ({"name": "p", "category": "retrieval", "rules": []}, "rules"),
        ({"name": "p", "category": "grounding", "rules": {"stream_mode": "fast"}}, "rules.stream_mode"),
        ({"name": "p", "category": "grounding", "rules": {"min_citations": -1}}, "rules.min_citations"),
        ({"name": "p", "category": "grounding", "rules": {"on_block": True}}, "rules.on_block"),
        ({"name": "p", "category": "grounding", "rules": {}, "priority": "first"}, "priority"),
        ({"name": "p", "category": "grounding", "rules": {}, "scope": {"agents": "all"}}, "scope.agents"),
        ({"name": "p", "category": "grounding", "rules": {}, "scope": {"users": []}}, "scope.users"),
        ({"name": "p", "category": "grounding", "rules": {}, "enabled": "yes"}, "enabled"),
        ({"name": "p", "category": "grounding", "rules": {}, "colour": "red"}, "colour"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_policy_is_rejected_by_field(gateway: Gateway, policy: dict[str, Any], field: str) -> None:
    errors = problem(gateway.admin.post("/policies", json=policy), 422)["errors"]
    assert field in [field_of(entry) for entry in errors]
    assert all(entry["msg"] for entry in errors)


def test_policy_that_is_not_json_is_rejected(gateway: Gateway) -> None:
    response = gateway.admin.post("/policies", content=b"{", headers={"content-type": "application/json"})
    assert response.status_code in {400, 422}
    problem(response, response.status_code)


def test_stale_etag_is_refused(gateway: Gateway) -> None:
    policy = gateway.policy("retrieval", {}, scope={"agents": ["nobody"]})
    url = f"/policies/{policy['id']}"
    etag = gateway.admin.get(url).headers["etag"]
    body = {"priority": 5}
    assert gateway.admin.patch(url, json=body, headers={"if-match": etag}).status_code == 200
    problem(gateway.admin.patch(url, json=body, headers={"if-match": etag}), 412)
    assert gateway.admin.get(url).json()["version"] == 2


@pytest.mark.parametrize("token", ["Bearer wrong", "Bearer", "Basic YTpi", ""])
@pytest.mark.parametrize("path", ["/policies", "/requests", "/events"])
def test_wrong_token_is_refused(gateway: Gateway, path: str, token: str) -> None:
    response = gateway.admin.get(path, headers={"authorization": token})
    problem(response, 401)
    assert "bearer" in response.headers["www-authenticate"].lower()


def test_unknown_objects_are_not_found(gateway: Gateway) -> None:
    problem(gateway.admin.get("/policies/none"), 404)
    problem(gateway.admin.get("/requests/none"), 404)
    problem(gateway.admin.get("/nowhere"), 404)


@pytest.mark.parametrize("query", ["limit=0", "limit=many", "limit=100000", "cursor=!!"])
def test_invalid_page_is_rejected(gateway: Gateway, query: str) -> None:
    response = gateway.admin.get(f"/requests?{query}")
    assert response.status_code in {400, 422}
    problem(response, response.status_code)
