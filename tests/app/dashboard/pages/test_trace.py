"""The page of a request: sentences with evidence, feedback, and requests whose text wasn't stored."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from judges.types import Label
from tests.support.browser import PHONE, check, check_everywhere, csrf_of, open_page, sign_in
from tests.support.dashboard_seed import AGENT, DOCUMENT, FALSE, FINE, OPEN, ask
from tests.support.live_gateway import Gateway

HOSTILE = (
    '<script>document.title = "taken"</script> \u202eevil\u202c <img src=x onerror=alert(1)> \x00 leave is 25 days.'
)


def path_of(request_id: str) -> str:
    return f"/dashboard/requests/{request_id}"


def test_a_trace_shows_every_sentence_with_evidence_and_every_decision(
    client: httpx.Client, gateway: Gateway, played: dict[str, str]
) -> None:
    page = client.get(path_of(played["false"])).text
    assert 'class="said supported withheld" id="s-0-0"' in page
    assert 'class="said contradicted withheld" id="s-0-1"' in page
    assert '<span class="fate">replacement</span>' in page
    assert "Contradicted by" in page
    assert '<mark>Permanent staff receive <b class="differs">25 days</b> of annual leave.</mark>' in page
    assert "The reply says <b>40 days</b>; the document says <b>25 days</b>" in page
    trace = gateway.admin.get(f"/requests/{played['false']}").json()
    for decision in trace["decisions"]:
        assert f'id="c-{decision["id"]}"' in page
    assert f'href="/dashboard/policies/{trace["decisions"][-1]["policy_id"]}"' in page
    assert '<li class="total"><span></span><span>Total</span>' in page


def test_a_blocked_request_says_why_its_document_was_dropped(client: httpx.Client, played: dict[str, str]) -> None:
    page = client.get(path_of(played["stale"])).text
    assert "The model wasn&#39;t called" in page
    assert "Source age (400 days) exceeds max (90 days)" in page


def test_the_json_matches_the_admin_api(client: httpx.Client, gateway: Gateway, played: dict[str, str]) -> None:
    answer = client.get(f"{path_of(played['open'])}/trace.json")
    assert answer.json() == gateway.admin.get(f"/requests/{played['open']}").json()
    assert answer.headers["content-disposition"] == f'attachment; filename="{played["open"]}.json"'


def test_an_unknown_request_is_an_error_page(client: httpx.Client) -> None:
    for path in (path_of("req_none"), f"{path_of('req_none')}/trace.json"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "does not exist" in answer.text


@pytest.mark.parametrize(
    ("mark", "note", "correct", "kept"),
    [
        ("right", "", True, None),
        ("partly", "the second half", False, "Partly right: the second half"),
        ("wrong", "nonsense", False, "nonsense"),
    ],
)
def test_feedback_is_stored_as_by_the_admin_api_and_shown(
    client: httpx.Client,
    gateway: Gateway,
    played: dict[str, str],
    mark: str,
    note: str,
    correct: bool,
    kept: str | None,
) -> None:
    request_id = played["fine"]
    decision = gateway.admin.get(f"/requests/{request_id}").json()["decisions"][-1]["id"]
    sent = {"mark": mark, "note": note, "decision_id": decision}
    answer = client.post(f"{path_of(request_id)}/feedback", data=sent)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path_of(request_id)}#c-{decision}")
    newest = gateway.admin.get("/feedback", params={"request_id": request_id, "limit": 1}).json()["items"][0]
    assert (newest["decision_id"], newest["correct"], newest["note"]) == (decision, correct, kept)
    page = client.get(path_of(request_id)).text
    assert f'value="{mark}" aria-pressed="true"' in page.partition(f'id="c-{decision}"')[2].partition("</li>")[0]


def test_invalid_feedback_is_refused(client: httpx.Client, played: dict[str, str]) -> None:
    for data in ({"mark": "maybe"}, {"mark": "right", "note": "x" * 4_001}, {"mark": "right", "decision_id": "other"}):
        assert client.post(f"{path_of(played['fine'])}/feedback", data=data).status_code == 422
    assert client.post(f"{path_of('req_none')}/feedback", data={"mark": "right"}).status_code == 404
    assert httpx.post(f"{client.base_url}{path_of(played['fine'])}/feedback", data={"mark": "right"}).status_code == 303


@pytest.mark.parametrize("kept", ["hash", "none"])
def test_without_stored_text_the_page_says_so_and_shows_verdicts(
    start_gateway: Callable[..., Gateway], kept: str
) -> None:
    gateway = start_gateway(store_text=kept)
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}
    request_id = ask(gateway, f"{FINE} {FALSE}")
    gateway.trace(request_id)
    with sign_in(gateway) as client:
        page = client.get(path_of(request_id)).text
        assert f"GROUNDLANE_STORE_TEXT={kept}" in page
        assert "The text of this request wasn't stored" in page
        assert "Sentence 2" in page
        assert "said contradicted sent" in page
        assert f"Characters 0 to {len(FINE)} of the document." in page
        assert FINE not in page
        assert "sha256:" not in page
        playground = client.get(f"/dashboard/playground?request={request_id}").text
        assert "wasn&#39;t stored. Here is an example instead." in playground


@pytest.mark.browser
def test_sentences_are_selected_by_pointer_and_keyboard_and_marked(page: Any, played: dict[str, str]) -> None:
    page.goto(path_of(played["false"]))
    evidence = page.locator(".evidence:visible")
    assert "Contradicted by" in evidence.inner_text()
    page.locator("#s-0-0").click()
    assert "Supported by" in evidence.inner_text()
    assert page.locator("#s-0-0").get_attribute("aria-current") == "true"
    page.keyboard.press("ArrowRight")
    assert "40 days" in evidence.inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "e-0-1"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "s-0-1"
    page.locator("#whole button[value=right]").click()
    page.locator("#whole button[value=right][aria-pressed=true]").wait_for()
    check_everywhere(page)


@pytest.mark.browser
def test_on_a_phone_the_evidence_opens_and_closes(
    browser: Any, gateway: Gateway, client: httpx.Client, played: dict[str, str]
) -> None:
    with open_page(browser, gateway, client, viewport=PHONE) as page:
        page.goto(path_of(played["open"]))
        assert page.locator(".pane").is_hidden()
        page.locator("#s-0-1").click()
        assert OPEN in page.locator("#s-0-1").inner_text()
        assert page.locator("#e-0-1").is_visible()
        page.locator("#e-0-1 .close").click()
        assert page.locator(".pane").is_hidden()


@pytest.mark.browser
def test_without_javascript_links_select_the_sentence(
    browser: Any, gateway: Gateway, client: httpx.Client, played: dict[str, str]
) -> None:
    with open_page(browser, gateway, client, java_script_enabled=False) as page:
        page.goto(path_of(played["false"]))
        assert page.locator(".evidence:visible").get_attribute("id") == "e-0-1"
        page.locator("#s-0-0").click()
        assert page.locator(".evidence:visible").get_attribute("id") == "e-0-0"
        page.locator("#whole button[value=wrong]").click()
        assert page.locator("#whole button[value=wrong]").get_attribute("aria-pressed") == "true"


@pytest.mark.browser
def test_hostile_text_is_escaped(page: Any, gateway: Gateway) -> None:
    hostile = {**DOCUMENT, "title": "\u202e<svg onload=alert(2)>", "text": f"{FINE} {HOSTILE}"}
    request_id = ask(gateway, f"{HOSTILE} {'x' * 1_000_000}", documents=[hostile], grounding={"agent": "hostile"})
    gateway.trace(request_id)
    page.goto(path_of(request_id))
    assert '<script>document.title = "taken"</script>' in page.locator("#s-0-0").inner_text()
    assert page.title().startswith("Request req_")
    assert page.locator("main script, main img, main svg[onload]").count() == 0
    text = page.locator("main").inner_text()
    assert "U+202E" in text
    assert "\u202e" not in text
    assert "more characters" in text
    check(page)


def test_a_logged_request_opens_in_the_playground(client: httpx.Client, played: dict[str, str]) -> None:
    page = client.get(f"/dashboard/playground?request={played['false']}").text
    assert f"{FINE} {FALSE}" in page
    assert f'value="{AGENT}"' in page
    assert csrf_of(page)
