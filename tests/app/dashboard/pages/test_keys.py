"""The keys page: create (shown once), change and revoke."""

import re
from html import unescape
from typing import Any

import httpx
import pytest

from tests.support.gateways.browser import check_everywhere, csrf_of
from tests.support.gateways.live_gateway import Gateway

KEY = re.compile(r"gl-[a-z2-7]{8}-[A-Za-z0-9_-]{43}")


def test_key_is_shown_once_and_works_until_it_is_revoked(client: httpx.Client, gateway: Gateway) -> None:
    filled = {"name": "team <b>red</b>", "models": "gpt-*, claude-*", "collections": "", "requests_per_minute": "60"}
    made = client.post("/dashboard/keys", data=filled)
    assert made.status_code == 201
    (key,) = set(KEY.findall(made.text))
    assert "team &lt;b&gt;red&lt;/b&gt;" in made.text
    example = unescape(made.text.partition('<pre id="example">')[2].partition("</pre>")[0])
    assert f"http://127.0.0.1:{gateway.port}/v1/chat/completions" in example
    assert f"Authorization: Bearer {key}" in example
    listed = client.get("/dashboard/keys").text
    assert key not in listed
    assert "Authorization: Bearer $GROUNDLANE_KEY" in listed
    assert key[:11] in listed
    (stored,) = gateway.admin.get("/keys", params={"prefix": key[:11]}).json()["items"]
    assert (stored["models"], stored["requests_per_minute"]) == (["gpt-*", "claude-*"], 60)
    call = {"model": "other", "messages": [{"role": "user", "content": "Hello"}]}
    with gateway.call(call, headers={"authorization": f"Bearer {key}"}) as refused:
        assert refused.status == 403

    changed = client.post(f"/dashboard/keys/{stored['id']}", data=filled | {"models": "", "requests_per_minute": ""})
    assert changed.status_code == 303
    stored = gateway.admin.get(f"/keys/{stored['id']}").json()
    assert (stored["models"], stored["requests_per_minute"]) == ([], None)

    assert client.post(f"/dashboard/keys/{stored['id']}/revoke").status_code == 303
    with gateway.call(call, headers={"authorization": f"Bearer {key}"}) as refused:
        assert refused.status == 401
    assert key[:11] not in client.get("/dashboard/keys").text
    assert key[:11] in client.get("/dashboard/keys", params={"revoked": "true"}).text
    actions = [line["action"] for line in gateway.admin.get("/audit", params={"target": stored["id"]}).json()["items"]]
    assert actions == ["key.revoke", "key.update", "key.create"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a\nb"),
        ("models", "x" * 201),
        ("requests_per_minute", "many"),
        ("requests_per_minute", "0"),
    ],
)
def test_errors_are_shown_at_their_field_and_entries_are_kept(client: httpx.Client, field: str, value: str) -> None:
    answer = client.post("/dashboard/keys", data={"name": "fine", "collections": "hr-*", field: value})
    assert answer.status_code == 422
    assert re.search(rf'id="f-{field}"[^>]*aria-invalid="true"', answer.text)
    assert 'value="hr-*"' in answer.text


def test_unknown_key_is_an_error_page(client: httpx.Client) -> None:
    assert client.get("/dashboard/keys/key_nobody").status_code == 404
    assert client.post("/dashboard/keys/key_nobody/revoke").status_code == 404


def test_list_of_keys_is_paginated(client: httpx.Client, gateway: Gateway) -> None:
    for number in range(52):
        gateway.admin.post("/keys", json={"name": f"zz page {number:02d}"})
    first = client.get("/dashboard/keys").text
    older = re.search(r'href="(\?[^"]*cursor=[^"]+)"', first)
    assert older is not None
    second = client.get("/dashboard/keys" + older.group(1).replace("&amp;", "&")).text
    assert "zz page 51" in second
    assert "zz page 51" not in first
    assert csrf_of(second)


@pytest.mark.browser
def test_keys_in_a_browser(page: Any) -> None:
    """Create a key with the form, then revoke it."""
    page.goto("/dashboard/keys")
    page.fill("#f-name", "browser")
    page.fill("#f-requests_per_minute", "lots")
    page.click("text=Create key")
    page.wait_for_selector("[aria-invalid]")
    page.fill("#f-requests_per_minute", "5")
    page.click("text=Create key")
    key = page.inner_text("#made-key")
    assert KEY.fullmatch(key)
    check_everywhere(page)
    page.goto("/dashboard/keys")
    page.fill("[data-search]", key[:11])
    page.locator("#found tbody tr").nth(1).wait_for(state="detached")
    page.click("#found tbody a")
    page.wait_for_selector("details.confirm")
    check_everywhere(page)
    page.click("text=Revoke…")
    page.click("text=Revoke key")
    page.wait_for_url("**/dashboard/keys")
