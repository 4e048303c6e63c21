"""Links that show one trace to people who aren't signed in."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.gateways.browser import check_everywhere, open_page, sign_in
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import OPEN, ask


def shared(client: httpx.Client, request_id: str, hours: int = 2) -> str:
    """The path of a new link."""
    form = {"csrf": client.headers["x-csrf-token"], "hours": str(hours)}
    answer = client.post(f"/dashboard/requests/{request_id}/shares", data=form)
    assert answer.status_code == 201, answer.text
    (url,) = re.findall(r'id="share-url">([^<]+)<', answer.text)
    return str(httpx.URL(url).path)


def test_link_shows_one_trace_and_nothing_else(client: httpx.Client, gateway: Gateway, played: dict[str, str]) -> None:
    path = shared(client, played["open"])
    with httpx.Client(base_url=client.base_url) as stranger:
        answer = stranger.get(path)
        assert answer.status_code == 200
        assert "Bicycles may be parked" in answer.text
        assert "How much leave?" in answer.text
        assert answer.headers["x-robots-tag"].startswith("noindex")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "set-cookie" not in answer.headers
        links = re.findall(r'(?:href|action)="([^"]+)"', answer.text)
        assert [link for link in links if not link.startswith(("#", "/dashboard/static/"))] == []
        assert "<form" not in answer.text
        assert stranger.get(f"/dashboard/requests/{played['open']}").status_code == 303
        forged = path[:-1] + ("0" if path[-1] != "0" else "1")
        share_id, ends, signature = path.rpartition("/")[2].split(".")
        later = f"/dashboard/shared/{share_id}.{int(ends) + 1}.{signature}"
        for wrong in (forged, later, "/dashboard/shared/x", "/dashboard/shared/a.1.b"):
            answer = stranger.get(wrong)
            assert answer.status_code == 404
            assert answer.headers["x-robots-tag"].startswith("noindex")


def test_link_is_revoked(client: httpx.Client, gateway: Gateway, played: dict[str, str]) -> None:
    path, other = shared(client, played["fine"]), shared(client, played["fine"])
    id = path.rpartition("/")[2].partition(".")[0]
    assert {item["id"] for item in gateway.admin.get(f"/requests/{played['fine']}/shares").json()["items"]} >= {id}
    form = {"csrf": client.headers["x-csrf-token"]}
    assert client.post(f"/dashboard/requests/{played['fine']}/shares/{id}/revoke", data=form).status_code == 303
    assert httpx.get(f"{client.base_url}{path}".replace("//dash", "/dash")).status_code == 404
    assert httpx.get(f"{client.base_url}{other}".replace("//dash", "/dash")).status_code == 200
    assert gateway.admin.delete(f"/shares/{id}").status_code == 404
    actions = gateway.admin.get("/audit", params={"target": played["fine"], "action": "trace.unshare"}).json()["items"]
    assert [entry["before"]["share"] for entry in actions] == [id]


def test_link_expires(client: httpx.Client, played: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared(client, played["fine"], hours=1)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(UTC) + timedelta(minutes=61)

    monkeypatch.setattr("app.auth.share_links.datetime", Later)
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("hours", [0, 169])
def test_links_last_at_most_as_long_as_the_setting_says(gateway: Gateway, played: dict[str, str], hours: int) -> None:
    answer = gateway.admin.post(f"/requests/{played['fine']}/shares", json={"hours": hours})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["loc"] == ["hours"]
    assert gateway.admin.post("/requests/req_none/shares", json={}).status_code == 404


def test_without_stored_texts_nothing_is_found_or_shared(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(store_text="hash")
    request_id = ask(gateway, OPEN)
    gateway.trace(request_id)
    found = gateway.admin.get("/requests", params={"q": "canteen"}).json()
    assert found == {"items": [], "next_cursor": None, "search": {"texts_stored": False}}
    assert gateway.admin.get("/requests", params={"q": "hr"}).json()["items"] == []
    assert gateway.admin.get("/requests").json()["items"][0]["question"] is None
    with sign_in(gateway) as client:
        assert "can't be searched" in client.get("/dashboard/requests?q=canteen").text.replace("&#39;", "'")
        page = httpx.get(f"http://127.0.0.1:{gateway.port}{shared(client, request_id)}").text
    assert "canteen" not in page
    assert "Permanent staff" not in page


@pytest.mark.browser
def test_trace_is_shared_by_keyboard_and_read_by_a_stranger(
    browser: Any, gateway: Gateway, client: httpx.Client, played: dict[str, str]
) -> None:
    with open_page(browser, gateway, client) as page:
        page.goto(f"/dashboard/requests/{played['open']}")
        page.locator("#share summary").focus()
        page.keyboard.press("Enter")
        check_everywhere(page)
        page.fill("#f-hours", "3")
        page.keyboard.press("Enter")
        url = page.locator("#share-url").text_content()
        check_everywhere(page)
    with open_page(browser, gateway, None) as page:
        page.goto(url)
        check_everywhere(page)
        page.keyboard.press("Tab")
