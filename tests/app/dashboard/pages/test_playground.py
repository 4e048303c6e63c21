"""The playground runs a reply through the real pipeline, and nothing is logged."""

import json
from typing import Any

import httpx
import pytest

from app.dashboard.playground.examples import EXAMPLES
from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.browser import check, check_everywhere
from tests.support.gateways.live_gateway import UPSTREAM_KEY, Gateway
from tests.support.gateways.mock_upstream import json_reply
from tests.support.storage.dashboard_seed import FALSE, FINE, OPEN

PAGE, WATCH = "/dashboard/playground", "/dashboard/playground/watch"
DOCUMENT = {"doc_name": "hr.pdf", "doc_text": FINE, "doc_relevance": "0.9", "doc_age": "3"}
HOSTILE = "</textarea><script>document.title = 'taken'</script>\u202e\x00 leave."


@pytest.fixture
def judge(gateway: Gateway) -> None:
    gateway.judge.labels = {"40 days": Label.CONTRADICTED, "Bicycles": Label.UNVERIFIABLE}


def told(client: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    """The steps that the page receives during a run."""
    reply = client.post(WATCH, data={"mode": "answer", **DOCUMENT, **fields})
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def requests(gateway: Gateway) -> int:
    return len(gateway.admin.get("/requests", params={"agent": "playground"}).json()["items"])


@pytest.mark.usefixtures("judge")
def test_sentences_arrive_with_verdict_and_evidence_as_they_are_judged(client: httpx.Client, gateway: Gateway) -> None:
    lines = told(client, answer=f"{FINE} {FALSE} {OPEN}")
    assert "".join(line["text"] for line in lines if line["kind"] == "text") == f"{FINE} {FALSE} {OPEN}"
    left = [line["html"] for line in lines if line["kind"] == "sent"]
    for html, label in zip(left, ("supported", "contradicted", "unverifiable"), strict=True):
        assert f"said {label} sent" in html
    assert "The reply says <b>40 days</b>; the document says <b>25 days</b>" in left[1]
    assert lines[-1]["kind"] == "finished"
    assert "33% supported" in lines[-1]["html"]
    assert requests(gateway) == 0


@pytest.mark.usefixtures("judge")
def test_selected_policy_applies_though_disabled_and_out_of_scope(client: httpx.Client, gateway: Gateway) -> None:
    rules = {"contradiction_action": "block", "min_citations": 0, "abstention_response": "Ask somebody else."}
    policy = gateway.policy("grounding", rules, scope={"agents": ["somebody-else"]}, enabled=False)
    lines = told(client, answer=f"{FINE} {FALSE} {OPEN}", policy=policy["id"])
    left = [line["html"] for line in lines if line["kind"] == "sent"]
    assert len(left) == 2
    assert "Ask somebody else." in left[1]
    assert "blocked" in lines[-1]["html"]
    assert "withheld" in lines[-1]["html"]


@pytest.mark.usefixtures("judge")
def test_withheld_sentence_is_struck_when_the_next_one_is_sent(client: httpx.Client, gateway: Gateway) -> None:
    rules = {"unverifiable_action": "strip", "max_unverifiable_ratio": 1.0, "min_citations": 0}
    policy = gateway.policy("grounding", {**rules, "min_grounding_score": 0.0}, scope={"agents": ["nobody"]})
    lines = told(client, answer=f"{OPEN} {FINE}", policy=policy["id"])
    left = [line["html"] for line in lines if line["kind"] == "sent"]
    assert len(left) == 1
    assert f'<bdi class="words">{OPEN}</bdi><span class="fate">withheld</span>' in left[0]


@pytest.mark.usefixtures("judge")
def test_text_sent_before_judging_still_gets_its_verdict(client: httpx.Client, gateway: Gateway) -> None:
    policy = gateway.policy("grounding", {"stream_mode": "live", "min_citations": 0}, scope={"agents": ["nobody"]})
    lines = told(client, answer=f"{FINE} {OPEN}", policy=policy["id"])
    left = [line["html"] for line in lines if line["kind"] == "sent"]
    for html, label, text in zip(left, ("supported", "unverifiable"), (FINE, OPEN), strict=True):
        assert f"said {label} sent" in html
        assert f'<bdi class="words">{text}</bdi>' in html


def test_blocked_document_ends_the_run_before_the_model_is_called(client: httpx.Client, gateway: Gateway) -> None:
    policy = gateway.policy("retrieval", {"max_source_age_days": 2}, scope={"agents": ["nobody"]})
    (line,) = told(client, answer=FINE, policy=policy["id"])
    assert line["kind"] == "finished"
    assert "Source age (3 days) exceeds max (2 days)" in line["html"]
    assert "The model wasn't called" in line["html"]


def test_upstream_gets_its_own_key_and_no_header_of_the_page(client: httpx.Client, gateway: Gateway) -> None:
    gateway.upstream.script(answer(FINE, stream=True))
    lines = told(client, mode="question", question="How much leave?", model="m", answer="")
    assert "said supported" in lines[-1]["html"]
    sent = gateway.upstream.exchanges[-1]
    assert sent.header("authorization") == f"Bearer {UPSTREAM_KEY}"
    assert sent.header("cookie") is None
    assert FINE in sent.json["messages"][0]["content"]
    assert UPSTREAM_KEY not in client.get(PAGE).text


def test_upstream_error_is_shown_without_its_message(client: httpx.Client, gateway: Gateway) -> None:
    error = {"error": {"message": "Incorrect key sk-secret", "code": "invalid_api_key", "type": "x", "param": None}}
    gateway.upstream.script(json_reply(error, status=401))
    lines = told(client, mode="question", question="How much leave?", model="m")
    assert "status 401 (invalid_api_key)" in lines[-1]["html"]
    assert "sk-secret" not in lines[-1]["html"]


def test_form_errors_are_shown_and_entries_are_kept(client: httpx.Client) -> None:
    sent = {"mode": "answer", "answer": "", "doc_name": "n", "doc_text": "t", "doc_relevance": "7", "doc_age": "old"}
    page = client.post(PAGE, data=sent)
    assert page.status_code == 422
    for said in ("Paste an answer", "the relevance must be a number from 0 to 1", "the age must be a number of days"):
        assert said in page.text
    assert 'value="old"' in page.text
    errors = client.post(WATCH, data={"mode": "question", "policy": "pol_gone", **DOCUMENT}).json()["errors"]
    assert set(errors) == {"question", "model"}
    gone = client.post(WATCH, data={"mode": "answer", "answer": "a", "policy": "pol_gone", **DOCUMENT}).json()["errors"]
    assert gone == {"policy": "This policy no longer exists."}


@pytest.mark.usefixtures("judge")
def test_without_javascript_the_page_returns_with_the_result(client: httpx.Client) -> None:
    page = client.post(PAGE, data={"mode": "answer", "answer": f"{FINE} {FALSE}", **DOCUMENT})
    assert page.status_code == 200
    assert "said contradicted sent" in page.text
    grown = client.post(PAGE, data={"mode": "answer", "answer": "kept", "add": "1", **DOCUMENT}).text
    assert grown.count('name="doc_text"') == 2 + 1
    assert "kept</textarea>" in grown


def test_hostile_text_is_escaped(client: httpx.Client) -> None:
    page = client.post(
        PAGE, data={"mode": "answer", "answer": f"{HOSTILE} {FINE}", **DOCUMENT, "doc_text": HOSTILE}
    ).text
    assert "<script>document" not in page
    lines = told(client, answer=f"{HOSTILE} {FINE}", doc_text=HOSTILE, doc_name=HOSTILE)
    assert all("<script>document" not in line.get("html", "") for line in lines)
    assert any("U+202E" in line.get("html", "") for line in lines)


def test_playground_requires_a_session(client: httpx.Client) -> None:
    for path in (PAGE, WATCH):
        assert httpx.post(f"{client.base_url}{path}", data={"answer": "a"}).status_code in (303, 401, 403)


@pytest.mark.browser
@pytest.mark.usefixtures("judge")
def test_reply_is_watched_in_the_browser(page: Any, gateway: Gateway) -> None:
    page.goto(PAGE)
    check_everywhere(page)
    assert page.locator("#answer").input_value() == next(iter(EXAMPLES.values())).answer
    page.locator("[data-remove]").first.click()
    page.locator("[name=doc_text]").fill(FINE)
    page.get_by_role("button", name="Add a document").click()
    page.locator("#given .given:last-child textarea").fill(HOSTILE)
    page.locator("#answer").fill(f"{FINE} {HOSTILE} {FALSE}")
    page.locator("#run").click()
    page.locator("#live-sent .said.supported").first.wait_for(state="attached")
    page.locator("#result .said.contradicted").click()
    evidence = page.locator("#result .evidence:visible")
    assert "the document says 25 days" in evidence.inner_text()
    assert page.title().startswith("Playground")
    check(page)


def test_policy_is_tried_from_its_page_and_kept_for_other_examples(client: httpx.Client, gateway: Gateway) -> None:
    policy = gateway.policy("grounding", scope={"agents": ["nobody"]})["id"]
    link = f"/dashboard/playground?policy={policy}"
    assert f'href="{link}"' in client.get(f"/dashboard/policies/{policy}").text
    for url in (link, f"{PAGE}?example=leave&policy={policy}"):
        page = client.get(url).text
        assert f'<option value="{policy}" selected>' in page
        assert page.count(f"&amp;policy={policy}") == len(EXAMPLES)
