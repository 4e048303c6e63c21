"""The system page: components, workers, upstreams and the audit log."""

from typing import Any

import httpx
import pytest

from tests.support.gateways.browser import check_everywhere
from tests.support.gateways.live_gateway import UPSTREAM_KEY, Gateway


def test_components_upstreams_and_workers_are_shown_without_secrets(
    client: httpx.Client, gateway: Gateway, played: dict[str, str]
) -> None:
    shown = client.get("/dashboard/system").text
    assert "<dt>Status</dt><dd>Ready</dd>" in shown
    assert gateway.upstream.base_url in shown
    assert "healthy</span></td>" in shown
    assert "<dt>Workers</dt><dd>1</dd>" in shown
    assert "stored in full" in shown
    assert UPSTREAM_KEY not in shown


def test_audit_log_shows_values_before_and_after(client: httpx.Client, gateway: Gateway) -> None:
    policy = gateway.policy("grounding", scope={"agents": ["trail"]}, name="<i>trail</i>")
    gateway.admin.patch(f"/policies/{policy['id']}", json={"priority": 7})
    shown = client.get("/dashboard/system", params={"target": policy["id"]}).text
    assert "&lt;i&gt;trail&lt;/i&gt;" in shown
    assert "<del>0</del>" in shown
    assert "<ins>7</ins>" in shown
    assert shown.count("policy.create") == shown.count("policy.update")
    assert "policy.update" not in client.get("/dashboard/system", params={"target": "other"}).text


def test_audit_log_is_paginated(client: httpx.Client, gateway: Gateway) -> None:
    for number in range(30):
        gateway.admin.post("/keys", json={"name": f"trail {number}"})
    first = client.get("/dashboard/system", params={"action": "key.create"}).text
    assert "trail 29" in first
    older = first.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&")
    second = client.get(older).text
    assert ">trail 29<" not in second
    assert ">trail 1<" in second
    assert client.get("/dashboard/system", params={"cursor": "nonsense"}).status_code == 422


@pytest.mark.browser
def test_system_page_in_a_browser(page: Any, gateway: Gateway) -> None:
    gateway.policy("retrieval", scope={"agents": ["system"]}, name="seen in a browser")
    page.goto("/dashboard/system")
    page.click("#trail tbody tr:first-child summary")
    assert page.locator("#trail tbody tr:first-child ins").first.is_visible()
    check_everywhere(page)
    page.click("#trail tbody tr:first-child td:nth-child(3) a")
    page.wait_for_selector("text=Show all")
