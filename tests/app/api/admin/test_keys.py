"""``/admin/v1/keys``, ``/secrets`` and ``/audit``, from the client's side."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.auth.secrets import Vault

pytestmark = pytest.mark.anyio

KEYS, SECRETS, AUDIT = "/admin/v1/keys", "/admin/v1/secrets", "/admin/v1/audit"


async def made(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post(KEYS, json={"name": "bot", **fields})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_key_is_shown_once(client: httpx.AsyncClient, resources: SimpleNamespace) -> None:
    limits = {"models": ["gpt-*"], "collections": ["kb"], "requests_per_minute": 60}
    answer = await client.post(KEYS, json={"name": "bot", **limits})
    key = answer.json()
    assert key["created_at"].endswith("Z")
    assert answer.headers["cache-control"] == "no-store"
    assert key["key"].startswith(key["prefix"] + "-")
    assert {name: key[name] for name in limits} == limits
    assert resources.keys.find(key["key"]).id == key["id"]
    shown = {name: value for name, value in key.items() if name != "key"}
    for url in (answer.headers["location"], f"{KEYS}/{key['prefix']}"):
        assert (await client.get(url)).json() == shown
    assert key["key"] not in (await client.get(KEYS)).text
    assert key["key"] not in (await client.get(AUDIT)).text


async def test_keys_are_listed_in_pages_and_found_by_prefix(client: httpx.AsyncClient) -> None:
    keys = [await made(client, name=name) for name in ("c", "a", "b")]
    first = (await client.get(KEYS, params={"limit": 2})).json()
    second = (await client.get(KEYS, params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [key["name"] for key in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None
    found = (await client.get(KEYS, params={"prefix": keys[0]["prefix"]})).json()
    assert [key["id"] for key in found["items"]] == [keys[0]["id"]]


async def test_limits_can_be_changed_and_removed(client: httpx.AsyncClient) -> None:
    key = await made(client, models=["a"], requests_per_minute=3)
    url = f"{KEYS}/{key['id']}"
    changed = (await client.patch(url, json={"models": ["b"], "requests_per_minute": None})).json()
    assert (changed["models"], changed["requests_per_minute"], changed["name"]) == (["b"], None, "bot")
    assert (await client.patch(url, json={})).json() == changed


async def test_revoked_key_is_listed_as_revoked(client: httpx.AsyncClient, resources: SimpleNamespace) -> None:
    key = await made(client)
    for _ in range(2):
        assert (await client.delete(f"{KEYS}/{key['id']}")).status_code == 204
    assert resources.keys.find(key["key"]) is None
    listed = (await client.get(KEYS, params={"revoked": True})).json()["items"]
    assert [item["id"] for item in listed] == [key["id"]]
    assert listed[0]["revoked_at"]
    assert (await client.get(KEYS, params={"revoked": False})).json()["items"] == []


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a", "models": "gpt"}, "models"),
        ({"name": "a", "requests_per_minute": 0}, "requests_per_minute"),
        ({"name": "a", "requests_per_minute": True}, "requests_per_minute"),
        ({"name": "a", "key": "gl-mine"}, "key"),
    ],
)
async def test_bad_field_is_named(client: httpx.AsyncClient, body: dict[str, Any], loc: str) -> None:
    answer = await client.post(KEYS, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["loc"] == [loc]


async def test_unknown_key_is_not_found(client: httpx.AsyncClient) -> None:
    for answer in (
        await client.get(f"{KEYS}/key_x"),
        await client.patch(f"{KEYS}/key_x", json={"name": "b"}),
        await client.delete(f"{KEYS}/key_x"),
    ):
        assert (answer.status_code, answer.json()["detail"]) == (404, "unknown key 'key_x'")


async def test_secret_is_never_returned(client: httpx.AsyncClient, resources: SimpleNamespace) -> None:
    answers = [
        await client.put(f"{SECRETS}/openai", json={"value": "sk-hunter2"}),
        await client.put(f"{SECRETS}/openai", json={"value": "sk-hunter2-new"}),
        await client.get(SECRETS),
        await client.get(AUDIT),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [item["name"] for item in answers[2].json()["items"]] == ["openai"]
    assert resources.vault.key("openai") == "sk-hunter2-new"
    assert (await client.delete(f"{SECRETS}/openai")).status_code == 204
    assert (await client.delete(f"{SECRETS}/openai")).status_code == 404
    assert (await client.get(SECRETS)).json() == {"items": [], "next_cursor": None}
    assert "hunter2" not in "".join(answer.text for answer in answers)


@pytest.mark.parametrize("value", ["", " hunter2", "hunter2\r\nx: y", "hunter2é", "hunter2" * 2000, 7, None])
async def test_invalid_header_value_is_rejected_without_repeating_it(client: httpx.AsyncClient, value: Any) -> None:
    answer = await client.put(f"{SECRETS}/openai", json={"value": value})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["loc"] == ["value"]
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("name", ["-x", "a b", "é", "x" * 65])
async def test_malformed_name_is_rejected(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.put(f"{SECRETS}/{name}", json={"value": "v"})).status_code == 422


async def test_every_path_says_that_the_secret_key_is_missing(
    client: httpx.AsyncClient, resources: SimpleNamespace
) -> None:
    resources.vault = Vault(resources.database, None)
    for answer in (
        await client.get(SECRETS),
        await client.put(f"{SECRETS}/a", json={"value": "v"}),
        await client.delete(f"{SECRETS}/a"),
    ):
        assert answer.status_code == 409
        assert "GROUNDLANE_SECRET_KEY is not set" in answer.json()["detail"]


async def test_every_change_is_audited_with_its_author(client: httpx.AsyncClient, resources: SimpleNamespace) -> None:
    policy = (await client.post("/admin/v1/policies", json={"name": "gate", "category": "retrieval"})).json()
    url = f"/admin/v1/policies/{policy['id']}"
    await client.patch(url, json={"rules": {"min_chunks": 3}})
    await client.post(f"{url}/rollback", json={"version": 1})
    await client.delete(url)
    await made(client)
    first = (await client.get(AUDIT, params={"limit": 2})).json()
    rest = (await client.get(AUDIT, params={"limit": 100, "cursor": first["next_cursor"]})).json()
    lines = first["items"] + rest["items"]
    assert [line["action"] for line in lines] == [
        *("key.create", "policy.delete", "policy.rollback", "policy.update", "policy.create"),
    ]
    assert {line["actor"] for line in lines} == {"token:bootstrap"}
    update = lines[3]
    assert (update["before"]["rules"]["min_chunks"], update["after"]["rules"]["min_chunks"]) == (1, 3)
    assert (lines[1]["before"]["name"], lines[1]["after"]) == ("gate", None)
    of_policy = (await client.get(AUDIT, params={"target": policy["id"], "action": "policy.update"})).json()["items"]
    assert of_policy == [update]
    assert (await client.get(AUDIT, params={"actor": "token:0"})).json()["items"] == []
    assert (await client.get(AUDIT, params={"since": lines[0]["ts"]})).json()["items"] == lines[:1]
    assert (await client.get(AUDIT, params={"until": lines[-1]["ts"]})).json()["items"] == []


async def test_rejected_changes_are_not_audited(client: httpx.AsyncClient) -> None:
    policy = (await client.post("/admin/v1/policies", json={"name": "gate", "category": "retrieval"})).json()
    url = f"/admin/v1/policies/{policy['id']}"
    assert (await client.patch(url, json={"priority": 1}, headers={"If-Match": '"9"'})).status_code == 412
    assert (await client.post("/admin/v1/policies", json={"name": "gate", "category": "retrieval"})).status_code == 409
    assert len((await client.get(AUDIT)).json()["items"]) == 1


@pytest.mark.parametrize("path", [KEYS, SECRETS, AUDIT])
async def test_nothing_is_shown_without_the_admin_token(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path, headers={"Authorization": "Bearer no"})).status_code == 401
