"""The list of requests: filters and pagination."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from app.api.admin.views import VIEW_PARAMETERS
from app.dashboard.pages.requests import RequestsQuery
from app.dashboard.request_columns import COLUMNS_COOKIE
from tests.support.gateways.browser import WIDE, check, check_everywhere, sign_in
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import OPEN, ask, event, write

LIST = "/dashboard/requests"
_LINK = re.compile(r'class="whole-row" href="/dashboard/requests/([^"]+)"')


def ids(client: httpx.Client, query: str = "") -> list[str]:
    """The requests on a page of the list, in order."""
    answer = client.get(LIST + query)
    assert answer.status_code == 200, answer.text
    return _LINK.findall(answer.text)


def older(page: str) -> str | None:
    found = re.search(r'href="([^"]+)" rel="next"', page)
    return found and found[1].replace("&amp;", "&")


def test_list_is_paginated_from_newest_to_oldest(client: httpx.Client, gateway: Gateway) -> None:
    url, seen = "?agent=research&model=gpt-4o-mini", list[str]()
    while url:
        page = client.get(LIST + url if url.startswith("?") else url).text
        seen += _LINK.findall(page)
        url = older(page) or ""
    listed = gateway.admin.get("/requests", params={"agent": "research", "model": "gpt-4o-mini", "limit": 500}).json()
    assert len(seen) > 50 - 10
    assert seen == [item["request_id"] for item in listed["items"]]


def test_requests_are_found_by_policy_action_and_reason(client: httpx.Client, played: dict[str, str]) -> None:
    blocked = ids(client, "?action=block&code=GROUNDING_CONTRADICTION&agent=hr-desk")
    assert played["false"] in blocked
    assert played["fine"] not in blocked
    assert played["stale"] in ids(client, "?code=RETRIEVAL_STALE_SOURCE")
    assert ids(client, "?policy=pol_strict&agent=hr-desk&action=allow")
    assert ids(client, "?policy=nothing") == []


def test_keys_are_shown_by_name_where_one_exists(start_gateway: Callable[..., Gateway]) -> None:
    """In the filter, the counts and the list, also of keys that are revoked; two keys may have the same name."""
    gateway = start_gateway()
    made = [gateway.admin.post("/keys", json={"name": name}).json()["prefix"] for name in ("Shop & co", "twin", "twin")]
    assert gateway.admin.delete(f"/keys/{made[0]}").is_success
    prefixes = [*made, "gl-gone", None]
    now = datetime.now(UTC)
    write(gateway.database, [event(f"req_{at}", ts=now, key_prefix=prefix) for at, prefix in enumerate(prefixes)])
    names = ["Shop &amp; co", *(f"twin ({prefix})" for prefix in sorted(made[1:])), "gl-gone"]
    sorted_prefixes = [made[0], *sorted(made[1:]), "gl-gone"]
    with sign_in(gateway) as client:
        page = client.get(f"{LIST}?columns=key").text
        filters = page.partition('name="key"')[2].partition("</select>")[0]
        assert re.findall(r'<option value="([^"]+)">([^<]+)<', filters) == list(
            zip(sorted_prefixes, names, strict=True)
        )
        cells = re.findall(r'<td class="c-key[^>]*>(.*?)</td>', page)
        assert sorted(re.sub("<[^>]+>", "", cell) for cell in cells) == sorted([*names, "–"])
        counted = page.partition("<h2>Key</h2>")[2].partition("</ul>")[0]
        found = {name.strip(): url for url, name in re.findall(r'href="([^"]+)"[^>]*>([^<]+)<', counted)}
        assert found.keys() == set(names)
        assert [f"key={prefix}" in found[name] for prefix, name in zip(sorted_prefixes, names, strict=True)] == [
            True
        ] * 4
        chosen = client.get(f"{LIST}?key={made[0]}&agent=nobody").text
        assert f'<option value="{made[0]}" selected>Shop &amp; co</option>' in chosen


def test_requests_are_found_by_time(client: httpx.Client, gateway: Gateway) -> None:
    since = datetime.now(UTC) - timedelta(hours=5)
    until = since + timedelta(hours=2)
    between = ids(client, f"?since={since:%Y-%m-%dT%H:%M}&until={until:%Y-%m-%dT%H:%M}&span=hour")
    bounds: dict[str, str | int] = {
        "since": f"{since:%Y-%m-%dT%H:%M}:00Z",
        "until": f"{until:%Y-%m-%dT%H:%M}:00Z",
        "limit": 500,
    }
    assert (
        between == [item["request_id"] for item in gateway.admin.get("/requests", params=bounds).json()["items"]][:50]
    )
    assert 0 < len(ids(client, "?span=hour&agent=research")) < len(ids(client, "?span=day&agent=research"))


def test_id_prefix_filters_and_a_complete_id_redirects(client: httpx.Client) -> None:
    assert ids(client, "?q=req_seed_7_00012") == [f"req_seed_7_00012{digit}" for digit in reversed(range(10))]
    page = client.get(f"{LIST}?q=req_seed_7_0001").text
    assert len(_LINK.findall(page)) == 50
    following = older(page)
    assert following is not None
    assert _LINK.findall(client.get(following).text)[0] == "req_seed_7_000149"
    answer = client.get(f"{LIST}?q=req_seed_7_000123")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{LIST}/req_seed_7_000123")
    for odd in ("%", "_", "req_%", "<script>", "' or 1=1"):
        assert "No matching requests" in client.get(LIST, params={"q": odd}).text
    assert "all of its words" in client.get(LIST, params={"q": "nothing like this"}).text
    assert "all of its words" not in client.get(LIST, params={"agent": "nobody"}).text


@pytest.mark.parametrize(
    "other", ["", "&agent=research", "&action=allow", "&span=hour", "&policy=pol_strict&model=gpt-4o-mini"]
)
def test_search_keeps_the_other_filters_and_the_order(client: httpx.Client, other: str) -> None:
    """By an id that few requests have, and by one that all have."""
    for prefix in ("req_seed_7_0002", "req_"):
        found, url = list[str](), f"{LIST}?q={prefix}{other}"
        everything, next_url = list[str](), f"{LIST}?{other.removeprefix('&')}"
        for seen, start in ((found, url), (everything, next_url)):
            while start:
                page = client.get(start).text
                seen += _LINK.findall(page)
                start = older(page) or ""
        assert found == [each for each in everything if each.startswith(prefix)]


def test_requests_are_found_by_the_text_of_the_prompt_and_of_the_reply(
    client: httpx.Client, played: dict[str, str]
) -> None:
    assert played["open"] in ids(client, "?q=BEHIND+the+canteen")
    assert played["fine"] not in ids(client, "?q=BEHIND+the+canteen")
    assert set(played.values()) <= set(ids(client, "?q=How+much+leave"))
    assert ids(client, "?q=How+much+leave&action=block&code=GROUNDING_CONTRADICTION") == [played["false"]]
    for odd in ("%", "_", "100%_", "\\"):
        assert "No matching requests" in client.get(LIST, params={"q": odd}).text


def test_search_reads_a_bounded_number_of_matches(
    start_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.events.request_pages.MOST_SEARCHED", 20)
    gateway = start_gateway()
    found = ask(gateway, OPEN)
    gateway.trace(found)
    later = [event(f"req_new_{at:02d}", ts=datetime.now(UTC) + timedelta(seconds=at)) for at in range(50)]
    write(gateway.database, later)
    with sign_in(gateway) as client:
        # The other requests have the document's name in common.
        for query, expected in (("canteen", [[found]]), ("hr-7&model=m", [[], [], [found]])):
            url, pages = f"{LIST}?q={query}", list[list[str]]()
            while url:
                page = client.get(url).text
                pages.append(_LINK.findall(page))
                url = older(page) or ""
            assert pages == expected


@pytest.mark.parametrize(
    "query", ["sort=-latency", "sort=latency", "sort=-trust", "sort=trust", "sort=-tokens", "sort=time"]
)
def test_any_order_lists_every_request_once(client: httpx.Client, played: dict[str, str], query: str) -> None:
    seen, url = list[str](), f"{LIST}?{query}"
    while url:
        page = client.get(url).text
        seen += _LINK.findall(page)
        url = older(page) or ""
    everything, url = list[str](), f"{LIST}?q=req_"
    while url:
        page = client.get(url).text
        everything += _LINK.findall(page)
        url = older(page) or ""
    assert len(seen) == len(set(seen))
    assert set(everything) <= set(seen)


def test_counts_match_the_narrowed_list(client: httpx.Client) -> None:
    page = client.get(f"{LIST}?agent=research").text.partition('id="facets"')[2].partition("</section>")[0]
    links = re.findall(r'<a href="([^"]+)" data-swap="[^"]+">([^<]+) <span class="number">([0-9,]+)</span>', page)
    assert len(links) > 5
    for url, name, number in links:
        total = re.findall(r'id="total">([0-9,]+) request', client.get(url.replace("&amp;", "&")).text)
        assert total == [number], name


def test_failed_request_is_not_shown_as_allowed(client: httpx.Client, gateway: Gateway) -> None:
    now = datetime.now(UTC)
    failures = {"completed": 200, "upstream_error": 502, "failed": 403}
    write(
        gateway.database,
        [
            event(f"req_outcome_{status}", ts=now, agent="failing-desk", status=status, http_status=code)
            for status, code in failures.items()
        ],
    )
    listed = client.get(f"{LIST}?agent=failing-desk").text.partition("<tbody>")[2].partition("</tbody>")[0]
    badges = {
        row.partition("req_outcome_")[2].partition('"')[0]: re.findall(r'<span class="badge (\w+)">', cell)
        for row in listed.split("</tr>")[:-1]
        for cell in re.findall(r'<td class="c-action">(.*?)</td>', row, re.S)
    }
    assert badges == {"completed": ["allow"], "upstream_error": ["bad"], "failed": ["bad"]}
    trace = client.get(f"{LIST}/req_outcome_upstream_error").text.partition("<h1")[2].partition("</header>")[0]
    assert "upstream error" in trace
    assert 'class="badge allow"' not in trace


def test_columns_are_chosen_in_the_address_and_remembered(client: httpx.Client) -> None:
    with httpx.Client(base_url=client.base_url, cookies=dict(client.cookies)) as browser:
        chosen = browser.get(f"{LIST}?columns=tokens&columns=key&columns=nonsense").text
        assert re.findall(r'<th scope="col" class="c-([a-z]+)', chosen) == ["time", "key", "tokens"]
        assert re.findall(r'<th scope="col" class="c-([a-z]+)', browser.get(LIST).text) == ["time", "key", "tokens"]


def test_view_is_saved_shown_and_deleted(client: httpx.Client, gateway: Gateway) -> None:
    csrf = {"csrf": client.headers["x-csrf-token"]}
    query = "verdict=has_contradictions&sort=-latency&columns=latency&columns=agent"
    saved = client.post(f"{LIST}/views", data={"name": "<b>Bad & slow", "query": query, **csrf})
    assert (saved.status_code, saved.headers["location"]) == (303, f"{LIST}?{query}")
    tab = r'<a href="([^"]+)" aria-current="page"><bdi>&lt;b&gt;Bad &amp; slow</bdi>'
    assert re.findall(tab, client.get(f"{LIST}?{query}").text) == [f"{LIST}?{query.replace('&', '&amp;')}"]
    assert re.findall(tab, client.get(LIST).text) == []
    (view,) = gateway.admin.get("/views").json()["items"]
    assert view["query"] == {"verdict": "has_contradictions", "sort": "-latency", "columns": ["latency", "agent"]}
    assert client.post(f"{LIST}/views", data={"name": "<b>Bad & slow", "query": "", **csrf}).status_code == 409
    assert client.post(f"{LIST}/views", data={"name": "x", "query": "action=explode", **csrf}).status_code == 422
    assert client.post(f"{LIST}/views/{view['id']}/delete", data=csrf).status_code == 303
    assert gateway.admin.get("/views").json()["items"] == []
    client.cookies.delete(COLUMNS_COOKIE)
    actions = [entry["action"] for entry in gateway.admin.get("/audit", params={"target": view["id"]}).json()["items"]]
    assert actions == ["view.delete", "view.create"]


def test_views_of_the_admin_api_have_the_parameters_of_the_page() -> None:
    assert set(VIEW_PARAMETERS) == RequestsQuery.model_fields.keys() - {"cursor"}


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("query", "filters"), [("", {}), ("agent=research&action=block", {"agent": "research", "action": "block"})]
)
def test_all_requests_that_match_are_exported_as_by_the_admin_api(
    client: httpx.Client, gateway: Gateway, format: str, query: str, filters: dict[str, str]
) -> None:
    page = client.get(f"{LIST}?{query}").text
    (url,) = re.findall(rf'href="([^"]*/export[?][^"]*format={format})"', page)
    file = client.get(url.replace("&amp;", "&"))
    assert file.headers["content-disposition"] == f'attachment; filename="groundlane-requests.{format}"'
    assert file.text == gateway.admin.get("/requests/export", params={"format": format, **filters}).text
    assert file.text.count("\n") > 2


def test_export_has_what_a_search_finds(client: httpx.Client, played: dict[str, str]) -> None:
    lines = client.get(f"{LIST}/export?q=canteen&format=jsonl").text.splitlines()
    assert played["open"] in [json.loads(line)["request_id"] for line in lines]
    assert client.get(f"{LIST}/export?format=xml").status_code == 422


def test_shortened_ids_are_distinguishable(client: httpx.Client) -> None:
    page = client.get(LIST).text
    shown = re.findall(r'<code class="muted" title="([^"]+)">…([^<]+)</code>', page)
    assert len({short for _, short in shown}) == len(shown) == 50
    assert all(whole.endswith(short) for whole, short in shown)


def test_invalid_filter_is_named_in_the_error(client: httpx.Client) -> None:
    for query in ("since=yesterday", "action=explode", "cursor=abc", "span=century", "q=" + quote("a\0b")):
        answer = client.get(f"{LIST}?{query}")
        assert answer.status_code == 422, query
        assert query.partition("=")[0] in answer.text


def test_names_chosen_by_clients_are_escaped(client: httpx.Client, gateway: Gateway) -> None:
    body = {
        "model": "<b>m",
        "messages": [{"role": "user", "content": "?"}],
        "grounding": {"agent": "<img src=x>\u202e"},
    }
    with gateway.call(body) as call:
        call.read_all()
        gateway.trace(call.request_id)
    page = client.get(LIST).text
    assert "<img src=x>" not in page
    assert "&lt;img src=x&gt;" in page
    assert "\u202e" not in page.partition("<tbody>")[2]


@pytest.mark.browser
def test_list_is_filtered_while_typing_and_opened_by_keyboard(page: Any, played: dict[str, str]) -> None:
    page.goto(LIST)
    check_everywhere(page)
    page.set_viewport_size(WIDE)
    page.locator("#pick-columns summary").focus()
    page.keyboard.press("Enter")
    check(page)
    page.locator("#column-tokens").focus()
    page.keyboard.press("Space")
    page.locator("th.c-tokens").wait_for()
    page.locator("th.c-tokens a").focus()
    page.keyboard.press("Enter")
    page.locator('th.c-tokens[aria-sort="descending"]').wait_for()
    assert "columns=tokens" in page.url
    page.locator("#facets a").first.click()
    page.wait_for_url("**sort=-tokens**verdict=**")
    page.locator("#pick-view summary").click()
    page.fill("#f-name", "In the browser")
    page.keyboard.press("Enter")
    page.locator('#views a[aria-current="page"]').get_by_text("In the browser").wait_for()
    check_everywhere(page)
    page.locator("#pick-view summary").click()
    page.get_by_role("button", name="Delete this view").click()
    page.wait_for_url("**/dashboard/requests")
    page.select_option("#f-action", "block")
    page.wait_for_url("**action=block**")
    page.locator("tbody tr.allow").first.wait_for(state="detached")
    page.keyboard.press("/")
    page.keyboard.type(played["false"][:20])
    page.locator("tbody tr:only-child a").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/requests/{played['false']}")
