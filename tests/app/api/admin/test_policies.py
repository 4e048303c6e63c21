"""``/admin/v1/policies``, from the client's side."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

BODY: dict[str, Any] = {"name": "gate", "category": "retrieval", "rules": {"min_chunks": 2}}
URL = "/admin/v1/policies"


async def made(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post(URL, json=BODY | changes)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return body


async def test_policy_is_created_and_found_at_its_location(
    client: httpx.AsyncClient, resources: SimpleNamespace
) -> None:
    answer = await client.post(URL, json=BODY)
    assert answer.status_code == 201
    policy = answer.json()
    assert answer.headers["location"] == f"{URL}/{policy['id']}"
    assert answer.headers["etag"] == '"1"'
    assert set(policy) == {
        *("id", "name", "category", "rules", "scope", "enabled", "priority", "mode", "canary_percent"),
        *("version", "created_at", "updated_at", "warnings"),
    }
    assert policy.pop("warnings") == []
    assert policy["id"].startswith("pol_")
    assert policy["created_at"].endswith("Z")
    assert (policy["rules"]["min_chunks"], policy["rules"]["min_relevance_score"]) == (2, 0.7)
    assert policy["scope"] == {"agents": [], "models": [], "keys": []}
    found = await client.get(answer.headers["location"])
    assert found.json() == policy
    assert found.headers["etag"] == '"1"'
    assert [loaded.name for loaded in resources.policies.engine.policies] == ["gate"]


async def test_put_replaces_all_fields_and_patch_only_those_given(client: httpx.AsyncClient) -> None:
    policy = await made(client, priority=3)
    url = f"{URL}/{policy['id']}"
    patched = await client.patch(url, json={"rules": {"max_chunks": 4}}, headers={"If-Match": '"1"'})
    assert (patched.status_code, patched.headers["etag"]) == (200, '"2"')
    assert (patched.json()["rules"]["min_chunks"], patched.json()["rules"]["max_chunks"]) == (2, 4)
    assert patched.json()["priority"] == 3
    replaced = await client.put(url, json={"name": "gate", "category": "retrieval"}, headers={"If-Match": '"2"'})
    assert (replaced.status_code, replaced.headers["etag"]) == (200, '"3"')
    assert (replaced.json()["rules"]["min_chunks"], replaced.json()["priority"]) == (1, 0)


async def test_merge_patch_content_type_is_accepted(client: httpx.AsyncClient) -> None:
    policy = await made(client)
    headers = {"Content-Type": "application/merge-patch+json"}
    answer = await client.patch(f"{URL}/{policy['id']}", content=b'{"enabled": false}', headers=headers)
    assert answer.json()["enabled"] is False


@pytest.mark.parametrize("tag", ['"7"', 'W/"1"', "1", '"x"', '"1", "2"', '"99999999999999999999"'])
async def test_stale_or_malformed_etag_changes_nothing(client: httpx.AsyncClient, tag: str) -> None:
    policy = await made(client)
    url, headers = f"{URL}/{policy['id']}", {"If-Match": tag}
    problem(await client.put(url, json=BODY, headers=headers), 412)
    problem(await client.patch(url, json={"priority": 9}, headers=headers), 412)
    problem(await client.delete(url, headers=headers), 412)
    problem(await client.post(f"{url}/rollback", json={"version": 1}, headers=headers), 412)
    assert (await client.get(url)).json() | {"warnings": []} == policy


async def test_without_an_etag_any_version_is_changed(client: httpx.AsyncClient) -> None:
    policy = await made(client)
    url = f"{URL}/{policy['id']}"
    assert (await client.patch(url, json={"priority": 1})).status_code == 200
    assert (await client.patch(url, json={"priority": 2}, headers={"If-Match": "*"})).status_code == 200
    deleted = await client.delete(url, headers={"If-Match": '"3"'})
    assert (deleted.status_code, deleted.content) == (204, b"")
    problem(await client.get(url), 404)


async def test_versions_and_rollback(client: httpx.AsyncClient) -> None:
    policy = await made(client)
    url = f"{URL}/{policy['id']}"
    await client.patch(url, json={"rules": {"min_chunks": 5}})
    back = await client.post(f"{url}/rollback", json={"version": 1}, headers={"If-Match": '"2"'})
    assert (back.status_code, back.headers["etag"], back.json()["rules"]["min_chunks"]) == (200, '"3"', 2)
    first = (await client.get(f"{url}/versions", params={"limit": 2})).json()
    rest = (await client.get(f"{url}/versions", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [item["version"] for item in first["items"] + rest["items"]] == [3, 2, 1]
    assert rest["next_cursor"] is None
    problem(await client.post(f"{url}/rollback", json={"version": 9}), 404)
    assert problem(await client.post(f"{url}/rollback", json={"version": "1"}), 422)["errors"][0]["loc"] == ["version"]


async def test_lists_are_filtered_and_paginated(client: httpx.AsyncClient) -> None:
    for name in "dbace":
        await made(client, name=name, enabled=name != "c")
    await made(client, name="f", category="grounding", rules={})
    names: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        body = (await client.get(URL, params=params)).json()
        assert len(body["items"]) <= 2
        names += [item["name"] for item in body["items"]]
        if (cursor := body["next_cursor"]) is None:
            break
    assert names == list("abcdef")
    only = (await client.get(URL, params={"category": "retrieval", "enabled": "false"})).json()
    assert [item["name"] for item in only["items"]] == ["c"]
    assert [item["name"] for item in (await client.get(URL, params={"name": "e"})).json()["items"]] == ["e"]


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"category": "weather"}, ["query", "category"]),
        ({"enabled": "perhaps"}, ["query", "enabled"]),
        ({"limit": "100000"}, ["query", "limit"]),
        ({"limit": "0"}, ["query", "limit"]),
        ({"cursor": "nonsense"}, ["query", "cursor"]),
        ({"cursor": "WzFd"}, ["query", "cursor"]),
        ({"cursor": "\u00e9"}, ["query", "cursor"]),
        ({"name": "a\0"}, ["query", "name"]),
    ],
)
async def test_bad_query_is_named(client: httpx.AsyncClient, params: dict[str, str], where: list[str]) -> None:
    assert problem(await client.get(URL, params=params), 422)["errors"][0]["loc"] == where


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"rules": {"min_relevance_score": 1.5}}, ["rules", "min_relevance_score"]),
        ({"rules": {"no_such_rule": 1}}, ["rules", "no_such_rule"]),
        ({"colour": "red"}, ["colour"]),
        ({"scope": {"agents": [7]}}, ["scope", "agents", 0]),
        ({"enabled": "true"}, ["enabled"]),
        ({"category": "weather"}, ["category"]),
    ],
)
async def test_invalid_policy_is_rejected_by_field(
    client: httpx.AsyncClient, change: dict[str, Any], where: list[str | int]
) -> None:
    policy = await made(client, name="good")
    url = f"{URL}/{policy['id']}"
    for answer in (
        await client.post(URL, json=BODY | change),
        await client.put(url, json=BODY | change),
        await client.patch(url, json=change),
    ):
        body = problem(answer, 422)
        assert body["errors"][0]["loc"] == where
        assert ".".join(map(str, where)) in body["detail"]
    assert (await client.get(url)).json() | {"warnings": []} == policy


@pytest.mark.parametrize(
    "content",
    [
        b'{"name": "gate", "category": "retrieval", "rules": {"min_relevance_score": NaN}}',
        b'{"name": "gate", "category": "retrieval", "rules": {"max_source_age_days": 1e999}}',
        b'{"name": "gate", "category": "retrieval", "priority": Infinity}',
        b'{"name": "\\ud800", "category": "retrieval"}',
        b'{"name": "gate", ',
        b"\xff",
        b"[]",
        b"null",
        b"",
        b"[" * 100_000,
    ],
)
async def test_body_that_is_not_json_is_rejected(client: httpx.AsyncClient, content: bytes) -> None:
    answer = await client.post(URL, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    problem(answer, answer.status_code)


async def test_names_are_unique(client: httpx.AsyncClient) -> None:
    await made(client)
    assert "'gate'" in problem(await client.post(URL, json=BODY), 409)["detail"]


async def test_unknown_policy_is_not_found(client: httpx.AsyncClient) -> None:
    for answer in (
        await client.get(f"{URL}/pol_x"),
        await client.put(f"{URL}/pol_x", json=BODY),
        await client.patch(f"{URL}/pol_x", json={}),
        await client.delete(f"{URL}/pol_x"),
        await client.get(f"{URL}/pol_x/versions"),
    ):
        assert "'pol_x'" in problem(answer, 404)["detail"]
    problem(await client.get(f"{URL}/pol%00x"), 422)


async def test_templates_can_be_turned_into_policies(client: httpx.AsyncClient) -> None:
    body = (await client.get(f"{URL}/templates")).json()
    assert len({template["name"] for template in body["items"]}) == len(body["items"]) == 14
    for template in body["items"]:
        await made(client, name=template["name"], category=template["category"], rules=template["rules"])


async def test_schema_lists_the_rules_of_each_category(client: httpx.AsyncClient) -> None:
    body = (await client.get(f"{URL}/schema")).json()
    assert set(body) == {"retrieval", "grounding", "freshness"}
    assert body["retrieval"]["properties"]["min_relevance_score"]["default"] == 0.7


LIVE: dict[str, Any] = {"unjudged_action": "block", "stream_mode": "live"}


def where(answer: httpx.Response) -> list[list[str]]:
    assert answer.is_success, answer.text
    assert all(set(warning) == {"loc", "msg"} and warning["msg"] for warning in answer.json()["warnings"])
    return [warning["loc"] for warning in answer.json()["warnings"]]


class TestWarnings:
    """Saving a policy returns warnings about valid rules without effect."""

    async def test_every_way_to_save_returns_warnings(self, client: httpx.AsyncClient) -> None:
        body = {"name": "live", "category": "grounding", "rules": LIVE}
        answer = await client.post(URL, json=body)
        assert where(answer) == [["rules", "unjudged_action"]]
        url = f"{URL}/{answer.json()['id']}"
        assert where(await client.patch(url, json={"rules": {"stream_mode": "hold"}})) == []
        assert where(await client.put(url, json=body | {"scope": {"models": ["nobody-7b"]}})) == [
            ["scope", "models"],
            ["rules", "unjudged_action"],
        ]
        assert where(await client.post(f"{url}/rollback", json={"version": 2})) == []
        assert "warnings" not in (await client.get(url)).json()

    async def test_api_schema_describes_warnings(self, client: httpx.AsyncClient) -> None:
        schema = (await client.get("/openapi.json")).json()
        for path, method, status in (
            (URL, "post", "201"),
            (f"{URL}/{{policy_id}}", "put", "200"),
            (f"{URL}/{{policy_id}}", "patch", "200"),
            (f"{URL}/{{policy_id}}/rollback", "post", "200"),
            (f"{URL}/validate", "post", "200"),
        ):
            answer = schema["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
            model = schema["components"]["schemas"][answer["$ref"].rpartition("/")[2]]
            warning = model["properties"]["warnings"]["items"]["$ref"].rpartition("/")[2]
            assert set(schema["components"]["schemas"][warning]["properties"]) == {"loc", "msg"}

    async def test_warnings_know_what_the_gateway_lacks(self, client: httpx.AsyncClient) -> None:
        rules = {"contradiction_action": "correct", "llm_grounding_check": True}
        answer = await client.post(f"{URL}/validate", json={"name": "x", "category": "grounding", "rules": rules})
        assert where(answer) == [["rules", "contradiction_action"], ["rules", "llm_grounding_model"]]

    async def test_policy_can_be_validated_without_saving(self, client: httpx.AsyncClient) -> None:
        body = {"name": "live", "category": "grounding", "rules": LIVE}
        answer = await client.post(f"{URL}/validate", json=body)
        assert where(answer) == [["rules", "unjudged_action"]]
        assert answer.json()["policy"]["rules"]["reasoning_action"] == "drop"
        assert (await client.get(URL)).json()["items"] == []
        wrong = await client.post(f"{URL}/validate", json=body | {"rules": LIVE | {"reasoning_action": "pass"}})
        (error,) = problem(wrong, 422)["errors"]
        assert error["loc"] == ["rules", "reasoning_action"]


async def test_default_follows_the_rule_that_it_depends_on(client: httpx.AsyncClient) -> None:
    answer = await client.post(URL, json={"name": "x", "category": "grounding"})
    url = f"{URL}/{answer.json()['id']}"
    assert answer.json()["rules"]["reasoning_action"] == "pass"
    strict = await client.patch(url, json={"rules": {"unjudged_action": "block"}})
    assert strict.json()["rules"]["reasoning_action"] == "drop"
    chosen = {"rules": {"unjudged_action": "block", "reasoning_action": "pass"}}
    (error,) = problem(await client.patch(url, json=chosen), 422)["errors"]
    assert error["loc"] == ["rules", "reasoning_action"]
