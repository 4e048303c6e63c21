"""The reference of the HTTP API: every operation and schema, without a session, scripts or another host."""

from typing import Any

import httpx
import pytest

from tests.support.gateways.browser import PHONE, check_everywhere, open_page
from tests.support.gateways.live_gateway import Gateway


def test_page_shows_every_operation_and_every_schema(gateway: Gateway) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}") as stranger:
        led = stranger.get("/redoc")
        assert (led.status_code, led.headers["location"]) == (308, "/docs")
        answer = stranger.get("/docs")
        schema = stranger.get("/openapi.json").json()
    assert answer.status_code == 200
    assert "script-src" in answer.headers["content-security-policy"]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert f'id="{operation["operationId"]}"' in answer.text
            assert f"{method.upper()}</span> <code>{path}</code>" in answer.text
    for name in schema["components"]["schemas"]:
        assert f'id="schema-{name}"' in answer.text
    assert answer.text.count("http://") == answer.text.count("http://json")
    assert "<script" not in answer.text


@pytest.mark.browser
def test_operation_is_readable_on_every_screen(browser: Any, gateway: Gateway) -> None:
    with open_page(browser, gateway, None, viewport=PHONE) as page:
        page.goto("/docs")
        page.locator("#create_chat_completion > summary").click()
        page.locator("#create_chat_completion pre").first.wait_for()
        check_everywhere(page)
        page.locator("#create_chat_completion").get_by_role("link", name="ChatRequest").click()
        page.locator("#schema-ChatRequest > summary").click()
        check_everywhere(page)
