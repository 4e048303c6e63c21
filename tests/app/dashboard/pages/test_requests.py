"""The list of requests: filters and pagination."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.browser import check_everywhere
from tests.support.live_gateway import Gateway

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


def test_the_list_is_paginated_from_newest_to_oldest(client: httpx.Client, gateway: Gateway) -> None:
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


def test_an_id_prefix_filters_and_a_complete_id_redirects(client: httpx.Client) -> None:
    assert ids(client, "?id=req_seed_7_00012") == [f"req_seed_7_00012{digit}" for digit in range(10)]
    page = client.get(f"{LIST}?id=req_seed_7_0001").text
    assert len(_LINK.findall(page)) == 50
    following = older(page)
    assert following is not None
    assert _LINK.findall(client.get(following).text)[0] == "req_seed_7_000150"
    answer = client.get(f"{LIST}?id=req_seed_7_000123")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{LIST}/req_seed_7_000123")
    for odd in ("%", "_", "req_%", "<script>", "' or 1=1"):
        assert "No matching requests" in client.get(LIST, params={"id": odd}).text


def test_an_invalid_filter_is_named_in_the_error(client: httpx.Client) -> None:
    for query in ("since=yesterday", "action=explode", "cursor=abc", "span=century", "id=" + quote("a\0b")):
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
def test_the_list_is_filtered_while_typing_and_opened_by_keyboard(page: Any, played: dict[str, str]) -> None:
    page.goto(LIST)
    check_everywhere(page)
    page.select_option("#f-action", "block")
    page.wait_for_url("**action=block**")
    page.locator("tbody tr.allow").first.wait_for(state="detached")
    page.keyboard.press("/")
    page.keyboard.type(played["false"][:20])
    page.locator("tbody tr:only-child a").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/requests/{played['false']}")
