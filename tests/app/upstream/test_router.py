"""The upstream for a model: its model name, URL and keys."""

from typing import Any

import pytest

from app.config import UpstreamSpec
from app.settings import UpstreamApi
from app.upstream.headers import OutgoingHeaders, key_header
from app.upstream.provider import url_of
from app.upstream.router import Router


def spec(name: str, *models: str, **fields: Any) -> UpstreamSpec:
    values = {"base_url": f"http://{name}.test/v1", "models": models or ("*",), **fields}
    return UpstreamSpec(name=name, **values)


def way(router: Router, model: str | None) -> list[tuple[str, str | None]]:
    return [(route.name, route.body_format.model) for route in router.routes(model)]


def test_first_upstream_with_a_matching_glob_gets_the_model() -> None:
    router = Router([spec("a", "gpt-4o", "gpt-5*"), spec("b", "gpt-*"), spec("c", "[!g]*")])
    assert way(router, "gpt-4o") == [("a", "gpt-4o")]
    assert way(router, "gpt-5-mini") == [("a", "gpt-5-mini")]
    assert way(router, "gpt-4o-mini") == [("b", "gpt-4o-mini")]
    assert way(router, "llama") == [("c", "llama")]


def test_globs_are_case_sensitive() -> None:
    assert way(Router([spec("a", "gpt-*")]), "GPT-4") == []


def test_unserved_model_has_no_route() -> None:
    assert way(Router([spec("a", "x"), spec("b", "y")]), "z") == []


@pytest.mark.parametrize(
    ("glob", "served"),
    [("x", True), ("z", False), ("x*", True), ("house", True), ("ho*", True), ("z*", False), ("[xz]", True)],
)
def test_scope_warnings_know_which_models_are_served(glob: str, served: bool) -> None:
    assert Router([spec("a", "x"), spec("b", "y", alias={"house": "y"})]).serves(glob) is served


def test_overlapping_globs_are_detected() -> None:
    router = Router([spec("a", "gpt-*")])
    assert router.serves("claude-*")
    assert not router.serves("claude-3")


def test_request_without_a_model_goes_to_the_first_upstream() -> None:
    assert way(Router([spec("a", "x"), spec("b", "y")]), None) == [("a", None)]


def test_alias_routes_the_model_and_renames_it() -> None:
    router = Router([spec("a", "vendor-*", alias={"house": "vendor-1"}), spec("b")])
    assert way(router, "house") == [("a", "vendor-1")]
    assert way(router, "vendor-1") == [("a", "vendor-1")]
    assert [route.body_format.renamed for model in ("house", "vendor-1") for route in router.routes(model)] == [
        True,
        False,
    ]


def test_exact_alias_precedes_globs_and_globs_apply_in_order() -> None:
    router = Router([spec("a", alias={"gpt-*": "any", "gpt-4*": "four", "gpt-4o": "exact"})])
    assert [way(router, model)[0][1] for model in ("gpt-4o", "gpt-4", "gpt-3", "o3")] == ["exact", "any", "any", "o3"]


def test_fallbacks_follow_once_each_with_their_own_names() -> None:
    router = Router(
        [
            spec("a", "house", fallback=("b", "c")),
            spec("b", "none", alias={"house": "b-house"}, fallback=("d",)),
            spec("c", fallback=("d",)),
            spec("d", "other", alias={"h*": "d-house"}),
        ]
    )
    assert way(router, "house") == [("a", "house"), ("b", "b-house"), ("c", "house"), ("d", "d-house")]


def test_fallback_not_serving_the_model_is_skipped_but_not_its_successors() -> None:
    router = Router([spec("a", "x", fallback=("b",)), spec("b", "y", fallback=("c",)), spec("c")])
    assert way(router, "x") == [("a", "x"), ("c", "x")]


def test_request_without_a_model_can_use_every_fallback() -> None:
    assert way(Router([spec("a", "x", fallback=("b",)), spec("b", "y")]), None) == [("a", None), ("b", None)]


def test_route_knows_whether_its_upstream_accepts_documents() -> None:
    router = Router([spec("a", "x", fallback=("b",)), spec("b", accepts_documents=True)])
    assert [route.body_format.documents for route in router.routes("x")] == [False, True]


def test_client_chosen_names_do_not_accumulate() -> None:
    router = Router([spec("a")])
    for number in range(10_000):
        assert way(router, f"m-{number}") == [("a", f"m-{number}")]
    assert len(router._cache) <= 4_096


OLD = "https://r.azure.com"
NEW = f"{OLD}/openai/v1"


@pytest.mark.parametrize(
    ("base", "version", "path", "query", "model", "url"),
    [
        (OLD, "1", "/chat/completions", "", "d", "/openai/deployments/d/chat/completions?api-version=1"),
        (f"{OLD}/openai", "1", "/embeddings", "", "d", "/openai/deployments/d/embeddings?api-version=1"),
        (OLD, "1", "/embeddings", "a=%2F", "d", "/openai/deployments/d/embeddings?api-version=1&a=%2F"),
        (OLD, "1", "/embeddings", "api-version=2", "d", "/openai/deployments/d/embeddings?api-version=2"),
        (OLD, "1", "/embeddings", "", "a/b c", "/openai/deployments/a%2Fb%20c/embeddings?api-version=1"),
        (OLD, "1", "/responses", "", "d", "/openai/responses?api-version=1"),
        (OLD, "1", "/models", "", None, "/openai/models?api-version=1"),
        (NEW, None, "/chat/completions", "", "d", "/openai/v1/chat/completions"),
        (NEW, "preview", "/responses", "", "d", "/openai/v1/responses?api-version=preview"),
    ],
)
def test_azure_urls(base: str, version: str | None, path: str, query: str, model: str | None, url: str) -> None:
    azure = UpstreamSpec(name="azure", base_url=base, api=UpstreamApi.AZURE, api_version=version)
    assert url_of(azure, path, query, model) == f"{OLD}{url}"


def test_other_urls_keep_base_path_and_query() -> None:
    assert url_of(spec("a"), "/files/a%2Fb", "x=%2f&y=+", "m") == "http://a.test/v1/files/a%2Fb?x=%2f&y=+"


CALLERS = [
    ("authorization", "Bearer caller"), ("x-api-key", "caller"), ("api-key", "caller"), ("x-goog-api-key", "caller"),
    ("cookie", "c"), ("connection", "close, x-hop"), ("x-hop", "1"), ("x-groundlane-agent", "a"), ("x-mine", "2"),
    ("idempotency-key", "k"), ("x-idempotency-key", "k"), ("repeatability-request-id", "k"),
]  # fmt: skip


def sent(api: UpstreamApi = UpstreamApi.OPENAI, *, with_keys: bool, **own: str) -> dict[str, str]:
    return dict(OutgoingHeaders(own, api).of(CALLERS, accept_encoding="identity", with_keys=with_keys))


def test_keys_of_the_caller_are_forwarded_only_if_configured() -> None:
    rest = {"x-mine": "2", "user-agent": "groundlane", "accept-encoding": "identity"}
    assert sent(with_keys=False) == rest
    assert sent(with_keys=True) == dict(CALLERS[:4]) | rest


def test_configured_headers_replace_those_of_the_caller() -> None:
    own = {"x-mine": "ours", "user-agent": "ours"}
    got = OutgoingHeaders(own, UpstreamApi.OPENAI).of(CALLERS, accept_encoding="gzip", with_keys=False)
    assert got == [("x-mine", "ours"), ("user-agent", "ours"), ("accept-encoding", "gzip")]


@pytest.mark.parametrize(
    ("api", "header"),
    [
        (UpstreamApi.OPENAI, ("authorization", "Bearer k")),
        (UpstreamApi.AZURE, ("api-key", "k")),
        (UpstreamApi.ANTHROPIC, ("x-api-key", "k")),
    ],
)
def test_each_kind_of_upstream_gets_its_key_in_its_own_header(api: UpstreamApi, header: tuple[str, str]) -> None:
    assert key_header(api, "k") == header


@pytest.mark.parametrize("whose", ["caller", "file", None])
def test_anthropic_version_is_sent_once(whose: str | None) -> None:
    named = ("anthropic-version", "2027-01-01")
    outgoing = OutgoingHeaders(dict([named]) if whose == "file" else {}, UpstreamApi.ANTHROPIC)
    headers = outgoing.of([named] if whose == "caller" else [], accept_encoding="identity", with_keys=False)
    versions = [value for name, value in headers if name == "anthropic-version"]
    assert versions == ["2027-01-01" if whose else "2023-06-01"]
