"""The overview: the admin API's statistics by time range, agent, model and policy, and the live feed."""

import json
from collections.abc import Callable

import httpx
import pytest

from tests.support.browser import DESKTOP, check_everywhere, open_page, sign_in
from tests.support.dashboard_seed import AGENT, FINE, ask, events, play, write
from tests.support.live_gateway import Gateway

HOSTILE = "<script>alert(1)</script>\u202eevil"


def test_the_statistics_match_the_admin_api(client: httpx.Client, gateway: Gateway, played: dict[str, str]) -> None:
    told = gateway.admin.get("/stats", params={"agent": "leaflet-desk"}).json()["totals"]
    shown = client.get("/dashboard/", params={"agent": "leaflet-desk"}).text
    assert told["requests"] > 50
    assert f"<dt>Requests</dt><dd>{told['requests']}</dd>" in shown
    assert f'<dd class="note">{told["actions"]["block"]} requests</dd>' in shown
    assert f"<dt>Trust</dt><dd>{told['trust_score']:.0%}</dd>" in shown


@pytest.mark.parametrize("span", ["hour", "day", "week", "month", "quarter"])
@pytest.mark.parametrize("by", ["agent", "model", "policy"])
def test_every_time_range_and_grouping_is_shown(client: httpx.Client, span: str, by: str) -> None:
    answer = client.get("/dashboard/", params={"span": span, "by": by})
    assert answer.status_code == 200
    assert f"By {by}" in answer.text
    assert answer.text.count('<figure class="chart">') == 4


def test_without_requests_the_page_suggests_what_to_do(client: httpx.Client) -> None:
    shown = client.get("/dashboard/", params={"agent": HOSTILE}).text
    assert "No requests in this time range" in shown
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_an_invalid_time_range_is_an_error_page(client: httpx.Client) -> None:
    answer = client.get("/dashboard/", params={"span": "century"})
    assert answer.status_code == 422
    assert "span: must be " in answer.text


def test_the_live_feed_sends_decisions_as_they_are_made(
    client: httpx.Client, gateway: Gateway, played: dict[str, str]
) -> None:
    with client.stream("GET", "/dashboard/live", params={"agent": AGENT}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        request_id = ask(gateway, FINE)
        fields: dict[str, str] = {}
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            fields[name] = fields.get(name, "") + value
            if "data" in fields and not line:
                break
    assert fields["event"] == "decision"
    assert f"/dashboard/requests/{request_id}" in fields["data"]
    # A browser that reconnects sends the id of the last event it received.
    with client.stream("GET", "/dashboard/live", headers={"last-event-id": "2020-01-01T00:00:00+00:00"}) as stream:
        assert "data: " in next(line for line in stream.iter_lines() if line.startswith("data"))


def test_the_live_feed_ends_with_its_session(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.dashboard.live_feed.LOOK_S", 0.01)
    with sign_in(gateway) as own, sign_in(gateway) as other:
        other.cookies = own.cookies
        with own.stream("GET", "/dashboard/live", params={"agent": "nobody"}) as stream:
            assert other.post("/dashboard/sign-out", headers=own.headers).status_code == 303
            assert "event: end" in list(stream.iter_lines())


@pytest.mark.browser
def test_the_overview_in_a_browser(page: object, gateway: Gateway, played: dict[str, str]) -> None:
    """Tooltips, filtering without a page load, grouping, and a decision that arrives."""
    page.goto("/dashboard/")
    page.wait_for_selector("#live.on")
    page.locator(".hit").nth(23).hover()
    assert "Allowed: " in page.locator(".tip").inner_text()
    page.select_option("#f-agent", AGENT)
    page.wait_for_url("**agent=hr-desk*")
    page.wait_for_selector("#live.on")
    request_id = ask(gateway, FINE)
    page.wait_for_selector(f'#tail a[href$="{request_id}"]')
    page.click('nav[aria-label="Group by"] >> text=Policy')
    page.wait_for_selector("h2:has-text('By policy')")
    page.keyboard.press("Home")
    check_everywhere(page)


@pytest.mark.browser
def test_the_page_works_with_the_keyboard_alone(page: object) -> None:
    page.goto("/dashboard/keys")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_selector("#main:focus")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    assert page.evaluate("document.activeElement.value") == ""


@pytest.mark.browser
def test_signing_in_the_theme_and_signing_out_in_a_browser(browser: object, gateway: Gateway) -> None:
    with open_page(browser, gateway, None) as page:
        page.goto("/dashboard/keys")
        check_everywhere(page)
        page.set_viewport_size(DESKTOP)
        page.fill("#token", "admin-token-for-tests-only")
        page.keyboard.press("Enter")
        page.wait_for_url("**/dashboard/keys")
        page.emulate_media(color_scheme="light")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        with page.expect_response("**/dashboard/theme"):
            page.click(".wide button[value=dark]")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        assert page.evaluate("document.cookie") == ""
        page.reload()
        assert page.get_attribute("html", "data-theme") == "dark"
        page.click(".wide >> text=Sign out")
        page.wait_for_selector("#token")


@pytest.mark.browser
def test_the_pages_work_without_javascript(browser: object, gateway: Gateway, client: httpx.Client) -> None:
    with open_page(browser, gateway, client, java_script_enabled=False) as page:
        page.goto("/dashboard/")
        page.select_option("#f-agent", "research")
        page.click("text=Apply")
        page.wait_for_url("**agent=research*")
        assert page.locator("#tail li").count() > 0
        # Use the keyboard: without scripts, Playwright can't wait for an element to stop moving before a click.
        page.focus(".wide button[value=dark]")
        with page.expect_request("**/dashboard/theme") as sent:
            page.keyboard.press("Enter")
        assert "theme=dark" in sent.value.post_data
        page.wait_for_selector("html[data-theme=dark]", state="attached")


def test_a_fresh_gateway_has_an_overview(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway()
    with sign_in(gateway) as client:
        empty = client.get("/dashboard/").text
        assert "No requests in this time range" in empty
        assert "No decisions yet" in empty
        write(gateway.database, events(3, seed=11))
        play(gateway)
        assert "<dt>Requests</dt><dd>7</dd>" in client.get("/dashboard/").text
        assert json.dumps(AGENT)[1:-1] in client.get("/dashboard/").text
