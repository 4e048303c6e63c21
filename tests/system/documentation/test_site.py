"""The built website, opened from a folder as the README says: its search works, and finds the right page first."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways.browser import chromium

SITE = os.environ.get("GROUNDLANE_TEST_SITE", "")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not SITE, reason="the website: set GROUNDLANE_TEST_SITE to the folder that `make docs` built"),
]


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("rate limit", "operations/keys.html"),
        ("shadow mode", "policies/rollout.html"),
        ("redis", "operations/"),
    ],
)
def test_search_of_a_site_in_a_subfolder_finds_the_page_first(query: str, page: str) -> None:
    requested: list[str] = []
    with chromium() as browser:
        shown: Any = browser.new_page()
        shown.on("request", lambda request: requested.append(request.url))
        shown.goto((Path(SITE).resolve() / "index.html").as_uri())
        shown.get_by_role("textbox", name="Search").fill(query)
        first = shown.locator(".md-search-result__link").first
        first.wait_for()
        assert page in first.get_attribute("href")
    assert [url for url in requested if not url.startswith(("file:", "data:"))] == []
