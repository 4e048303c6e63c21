"""External links are well-formed. Their targets aren't requested."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.system.documentation.blocks import PAGES, ROOT

_FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?P<target>[a-z]+:[^)\s]*)\)|<(?P<plain>https?:[^>\s]+)>|\]: (?P<defined>[a-z]+:\S+)")
_HOST = re.compile(r"^(?:[a-z0-9-]+\.)+[a-z]{2,}$")


def links(text: str) -> list[str]:
    return [link for found in _LINK.findall(_FENCE.sub("", text)) for link in found if link]


def is_well_formed(link: str) -> bool:
    """Whether it is a public HTTPS page, without user, port or space."""
    url = urlsplit(link)
    return url.scheme == "https" and _HOST.match(url.netloc) is not None and "%20" not in url.path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_external_links_are_well_formed(page: Path) -> None:
    assert [link for link in links(page.read_text("utf-8")) if not is_well_formed(link)] == []


def test_links_are_found_and_distinguished() -> None:
    text = "[a](https://a.org/b) [b](http://a.org) [c](https://localhost:1) [d](d.md)\n```\n[e](http://e)\n```\n[f]: ftp://f.org"
    assert [(link, is_well_formed(link)) for link in links(text)] == [
        ("https://a.org/b", True),
        ("http://a.org", False),
        ("https://localhost:1", False),
        ("ftp://f.org", False),
    ]
