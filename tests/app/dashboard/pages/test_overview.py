"""The overview: the admin API's statistics by time range, agent, model and policy, and the live feed."""

import html
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.gateways.browser import DESKTOP, check_everywhere, open_page, sign_in
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import AGENT, FINE, ask, event, events, play, write

HOSTILE = "<script>alert(1)</script>\u202eevil"


def test_statistics_match_the_admin_api(client: httpx.Client, gateway: Gateway, played: dict[str, str]) -> None:
    told = gateway.admin.get("/stats", params={"agent": "leaflet-desk"}).json()["totals"]
    shown = client.get("/dashboard/", params={"agent": "leaflet-desk"}).text
    assert told["requests"] > 50
    assert f">Requests</a></dt><dd>{told['requests']}</dd>" in shown
    assert f'<dd class="note">{told["actions"]["block"]} requests</dd>' in shown
    assert f">Trust</a></dt><dd>{told['trust_score']:.0%}</dd>" in shown


@pytest.mark.parametrize("span", ["hour", "day", "week", "month", "quarter"])
@pytest.mark.parametrize("by", ["agent", "model", "policy"])
def test_every_time_range_and_grouping_is_shown(client: httpx.Client, span: str, by: str) -> None:
    answer = client.get("/dashboard/", params={"span": span, "by": by})
    assert answer.status_code == 200
    assert f"By {by}" in answer.text
    assert answer.text.count('<figure class="chart">') == 6


@pytest.mark.parametrize("cost", ["model", "agent", "key"])
def test_tokens_and_costs_match_the_admin_api(client: httpx.Client, gateway: Gateway, cost: str) -> None:
    day = {"from": "2026-01-10T00:00", "to": "2026-01-12T00:00"}
    at = datetime(2026, 1, 11, 12, tzinfo=UTC)
    spent = [
        event(
            f"req_cost_{cost}_{number}",
            ts=at,
            agent="spender",
            model=model,
            key_prefix="gl_spends",
            prompt_tokens=10**6,
        )
        for number, model in enumerate(("gpt-4o", "our-llama"))
    ]
    write(gateway.database, spent)
    params = {"since": "2026-01-10T00:00:00Z", "until": "2026-01-12T00:00:00Z", "agent": "spender", "by": cost}
    told = gateway.admin.get("/usage", params=params).json()
    shown = client.get("/dashboard/", params={**day, "agent": "spender", "cost": cost}).text
    assert f"Tokens and cost by {cost}" in shown
    assert f">Cost</a></dt><dd>${told['totals']['cost_usd']:,.2f}</dd>" in shown
    assert "The price is unknown for" in shown
    assert "Cost, in the period before" in shown
    for group in told["groups"]:
        assert f"{group['prompt_tokens']:,}" in shown


def test_costs_by_key_name_the_keys(client: httpx.Client, gateway: Gateway) -> None:
    key = gateway.admin.post("/keys", json={"name": "Night <desk>"}).json()
    at = datetime(2026, 1, 21, 12, tzinfo=UTC)
    write(gateway.database, [event("req_named_key", ts=at, agent="named", key_prefix=key["prefix"])])
    params = {"from": "2026-01-21T00:00", "to": "2026-01-22T00:00", "agent": "named", "cost": "key"}
    shown = client.get("/dashboard/", params=params).text
    assert f'{key["prefix"]}</span> <span class="muted small">Night &lt;desk&gt;</span>' in shown


def test_custom_range_is_compared_with_the_period_before(client: httpx.Client, gateway: Gateway) -> None:
    first, second = datetime(2025, 6, 3, 12, tzinfo=UTC), datetime(2025, 6, 4, 12, tzinfo=UTC)
    counts = ((first, 4, "allow"), (second, 6, "block"))
    requests = [
        event(f"req_{ts:%d}_{number}", ts=ts, agent="compared", action=action)
        for ts, many, action in counts
        for number in range(many)
    ]
    write(gateway.database, requests)
    params = {"from": "2025-06-04T00:00", "to": "2025-06-05T00:00", "agent": "compared"}
    shown = client.get("/dashboard/", params=params).text
    assert ">Requests</a></dt><dd>6</dd>" in shown
    assert "50% more than in the period before" in shown
    assert "up 100 points from 0.0% in the period before" in shown
    assert shown.count('class="curve before tone-before"') == 5
    assert 'value="2025-06-04T00:00"' in shown
    # Each point of a chart links to its requests, with the filters of the page.
    hour = "agent=compared&amp;since=2025-06-04T12%3A00&amp;until=2025-06-04T13%3A00"
    assert shown.count(f'href="/dashboard/requests?{hour}"') == 12
    listed = client.get(f"/dashboard/requests?{html.unescape(hour)}").text
    assert listed.count('class="whole-row"') == 6
    # So do the figures, with the page's time range.
    day = "agent=compared&amp;since=2025-06-04T00%3A00&amp;until=2025-06-05T00%3A00"
    for figure, more in (("Requests", ""), ("Blocked", "&amp;action=block"), ("Warned or dropped", "&amp;action=warn")):
        assert f'<dt><a href="/dashboard/requests?{day}{more}">{figure}</a></dt>' in shown
    assert client.get(f"/dashboard/requests?{html.unescape(day)}").text.count('class="whole-row"') == 6
    # And the verdicts in the legend.
    legend = shown.partition("<h3>Requests by verdict</h3>")[2].partition("</ul>")[0]
    assert f'href="/dashboard/requests?{day}&amp;verdict=supported" title="List these requests">Supported</a>' in legend
    # A preset ends the custom range.
    assert 'href="/dashboard/?agent=compared&amp;span=week"' in shown


def test_charts_mark_policy_changes(client: httpx.Client, gateway: Gateway) -> None:
    policy = gateway.policy("retrieval", name="Marked <here>", scope={"agents": ["nobody"]})
    shown = client.get("/dashboard/", params={"policy": policy["id"]}).text
    assert "Policy and model changes" in shown
    charts = client.get("/dashboard/").text
    assert charts.count("<title>Marked &lt;here&gt;: created by ") == 6


def test_overview_lists_models_that_appeared_or_disappeared(client: httpx.Client, gateway: Gateway) -> None:
    noon = datetime(2025, 7, 8, 12, 20, tzinfo=UTC)
    requests = [
        event(
            f"req_switch_{minutes:+05d}",
            ts=noon + timedelta(minutes=minutes),
            agent="switched",
            model="<old> model" if minutes < 0 else "new-model",
        )
        for minutes in range(-1_200, 700, 20)
    ]
    write(gateway.database, requests)
    params = {"from": "2025-07-08T00:00", "to": "2025-07-09T00:00", "agent": "switched"}
    shown = client.get("/dashboard/", params=params).text
    table = shown.partition('id="changes-title"')[2].partition("</table>")[0]
    first, last = table.partition("<tbody>")[2].split("</tr>")[:2]
    assert "8 Jul 12:20:00" in first
    assert "new-model</a>" in first
    assert "first request; not used in the period before" in first
    assert "8 Jul 12:00:00" in last
    assert "&lt;old&gt; model</a>" in last
    assert "last request; not used afterwards" in last
    assert shown.count("<title>new-model: first request</title>") == 6
    listed = client.get(html.unescape(first.partition('href="')[2].partition('"')[0])).text
    assert listed.count('class="whole-row"') == sum("new-model" in str(each.request.model) for each in requests)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"from": "2026-01-02T00:00", "to": "2026-01-01T00:00"}, "must start before it ends"),
        ({"from": "2999-01-02T00:00"}, "must not start in the future"),
        ({"from": "2020-01-01T00:00"}, "must be at most 366 days"),
        ({"from": "yesterday"}, "not a valid time"),
    ],
)
def test_malformed_time_range_is_an_error_page(client: httpx.Client, params: dict[str, str], message: str) -> None:
    answer = client.get("/dashboard/", params=params)
    assert answer.status_code == 422
    assert message in answer.text


def test_without_requests_the_page_suggests_what_to_do(client: httpx.Client) -> None:
    shown = client.get("/dashboard/", params={"agent": HOSTILE}).text
    assert "No requests in this time range" in shown
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_invalid_time_range_is_an_error_page(client: httpx.Client) -> None:
    answer = client.get("/dashboard/", params={"span": "century"})
    assert answer.status_code == 422
    assert "span: must be " in answer.text


def test_live_feed_sends_decisions_as_they_are_made(
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


def test_live_feed_ends_with_its_session(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.dashboard.live_feed.LOOK_S", 0.01)
    with sign_in(gateway) as own, sign_in(gateway) as other:
        other.cookies = own.cookies
        with own.stream("GET", "/dashboard/live", params={"agent": "nobody"}) as stream:
            assert other.post("/dashboard/sign-out", headers=own.headers).status_code == 303
            assert "event: end" in list(stream.iter_lines())


@pytest.mark.browser
def test_overview_in_a_browser(page: object, gateway: Gateway, played: dict[str, str]) -> None:
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
def test_custom_range_is_chosen_without_a_page_load(page: Any, gateway: Gateway) -> None:
    ts = datetime(2025, 3, 4, 12, tzinfo=UTC)
    # A single point, none before, and millions of tokens.
    write(gateway.database, [event("req_range", ts=ts, agent="ranged", model="gpt-4o", prompt_tokens=45_000_000)])
    page.goto("/dashboard/?agent=ranged")
    page.fill("#f-from", "2025-03-04T01:00")
    page.fill("#f-to", "2025-03-05T01:00")
    page.wait_for_selector("dd:has-text('$112.50')")
    assert page.locator("#ranges [aria-current]").count() == 0
    page.locator('nav[aria-label="Group costs by"] >> text=Key').press("Enter")
    page.wait_for_selector("h2:has-text('cost by key')")
    check_everywhere(page)


@pytest.mark.browser
def test_page_works_with_the_keyboard_alone(page: object) -> None:
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
def test_pages_work_without_javascript(browser: object, gateway: Gateway, client: httpx.Client) -> None:
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


def test_fresh_gateway_has_an_overview(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway()
    with sign_in(gateway) as client:
        empty = client.get("/dashboard/").text
        assert "No requests in this time range" in empty
        assert "No decisions yet" in empty
        write(gateway.database, events(3, seed=11))
        play(gateway)
        assert ">Requests</a></dt><dd>7</dd>" in client.get("/dashboard/").text
        assert json.dumps(AGENT)[1:-1] in client.get("/dashboard/").text


@pytest.mark.browser
@pytest.mark.usefixtures("gateway")
def test_long_names_take_one_line_on_every_screen(browser: Any, start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway()
    names = ["support-" + "assistant-" * 12, "An agent that was given a whole sentence as its name " * 3, "x" * 180]
    now = datetime.now(UTC)
    write(gateway.database, [event(f"req_{at}", ts=now, agent=name, model=name) for at, name in enumerate(names)])
    with sign_in(gateway) as client, open_page(browser, gateway, client) as page:
        for path in ("/dashboard/", "/dashboard/requests"):
            page.goto(path)
            check_everywhere(page)
            for name in page.locator("table .name").all():
                box = name.bounding_box()
                assert box is None or box["height"] < 30, name.inner_text()


@pytest.mark.browser
@pytest.mark.usefixtures("gateway")
def test_single_point_of_a_line_is_a_visible_dot(browser: Any, start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway()
    write(gateway.database, [event("req_only", ts=datetime.now(UTC), trust_score=0.5)])
    with sign_in(gateway) as client, open_page(browser, gateway, client) as page:
        page.goto("/dashboard/")
        dots = page.locator(".curve.dots")
        assert "M" in dots.get_attribute("d")
        assert float(dots.evaluate("dot => parseFloat(getComputedStyle(dot).strokeWidth)")) >= 6
