"""Labelling sentences on the dashboard."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.support.gateways.browser import check_everywhere, open_page, sign_in
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import FALSE, FINE, OPEN, play


@pytest.fixture
def reviewed(start_gateway: Callable[..., Gateway]) -> Iterator[tuple[Gateway, httpx.Client]]:
    """A gateway with four real requests, and a signed-in client."""
    gateway = start_gateway()
    play(gateway)
    with sign_in(gateway) as client:
        yield gateway, client


def test_label_is_given_and_undone(reviewed: tuple[Gateway, httpx.Client]) -> None:
    gateway, client = reviewed
    queue = gateway.admin.get("/review").json()
    first = queue["items"][0]
    name = f"{first['request_id']}:{first['seq']}"
    shown = client.get("/dashboard/review").text
    assert first["text"] in shown
    assert f'value="{name}"' in shown
    answer = client.post("/dashboard/review", data={"claim": name, "verdict": "contradicted"})
    assert answer.status_code == 303
    after = gateway.admin.get("/review").json()
    assert (after["waiting"], after["labels"]) == (queue["waiting"] - 1, {"contradicted": 1})
    case = client.get("/dashboard/review/export").json()
    assert (case["output"], case["label"], case["case_id"]) == (first["text"], "contradicted", name.replace(":", "-"))
    assert case["author"].startswith("token:")
    for _ in range(2):  # The second time, there is nothing left to undo.
        assert client.post("/dashboard/review/undo", data={"claim": name}).status_code == 303
    assert gateway.admin.get("/review").json()["waiting"] == queue["waiting"]


@pytest.mark.parametrize("data", [{}, {"claim": "x"}, {"claim": "x:1"}, {"claim": "x:1", "verdict": "maybe"}])
def test_incomplete_label_is_rejected(client: httpx.Client, data: dict[str, str]) -> None:
    assert client.post("/dashboard/review", data=data).status_code == 422


def test_label_of_an_unknown_claim_is_rejected(client: httpx.Client) -> None:
    assert client.post("/dashboard/review", data={"claim": "x:1", "verdict": "supported"}).status_code == 404


def test_without_stored_text_the_page_says_so(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(store_text="hash")
    play(gateway)
    with sign_in(gateway) as client:
        assert "Set GROUNDLANE_STORE_TEXT=full" in client.get("/dashboard/review").text
    assert gateway.admin.get("/review").json()["text_stored"] is False


@pytest.mark.browser
@pytest.mark.usefixtures("gateway")
def test_sentences_are_labelled_with_the_keyboard_alone(browser: Any, reviewed: tuple[Gateway, httpx.Client]) -> None:
    gateway, client = reviewed
    waiting = gateway.admin.get("/review").json()["waiting"]
    with open_page(browser, gateway, client) as page:
        page.goto("/dashboard/review")
        check_everywhere(page)
        sentences = []
        for key in ("s", "c", "u"):
            name = page.locator("#label [name=claim]").input_value()
            sentences.append(page.locator(".sentence").first.inner_text())
            page.keyboard.press(key)
            page.keyboard.press("Enter")
            page.wait_for_url(f"**last={name.replace(':', '%3A')}*")
        assert set(sentences) <= {FINE, FALSE, OPEN}
        assert gateway.admin.get("/review").json()["labels"] == {"supported": 1, "contradicted": 1, "unverifiable": 1}
        check_everywhere(page)
        page.keyboard.press("z")
        page.get_by_text(f"{waiting - 2} sentence").wait_for()
        name = page.locator("#label [name=claim]").input_value()
        page.keyboard.press("k")
        page.wait_for_url("**skip=*")
        assert page.locator("#label [name=claim]").input_value() != name
