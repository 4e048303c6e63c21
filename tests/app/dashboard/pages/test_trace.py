"""The page of a request: sentences with evidence, feedback, and requests whose text wasn't stored."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from app.events.records import ClaimRow
from judges.types import Label
from tests.support.gateways.browser import PHONE, check, check_everywhere, csrf_of, open_page, sign_in
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import AGENT, DOCUMENT, FALSE, FINE, OPEN, ask, event, play, write

HOSTILE = (
    '<script>document.title = "taken"</script> \u202eevil\u202c <img src=x onerror=alert(1)> \x00 leave is 25 days.'
)


def path_of(request_id: str) -> str:
    return f"/dashboard/requests/{request_id}"


def test_trace_shows_every_sentence_with_evidence_and_every_decision(
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


def test_blocked_request_says_why_its_document_was_dropped(client: httpx.Client, played: dict[str, str]) -> None:
    page = client.get(path_of(played["stale"])).text
    assert "The model wasn&#39;t called" in page
    assert "Source age (400 days) exceeds max (90 days)" in page


STALE, LOW = {"age_days": 400}, {"relevance_score": 0.1}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("rules", "changes", "outcomes"),
    [
        pytest.param({}, [{}, {}], ["kept", "kept"], id="fine"),
        pytest.param({"action_on_stale_source": "drop"}, [{}, STALE], ["kept", "dropped"], id="one dropped"),
        pytest.param({"action_on_stale_source": "warn"}, [{}, STALE], ["kept", "kept"], id="only a warning"),
        pytest.param({}, [{}, STALE], ["not_sent", "refused"], id="one refused"),
        pytest.param({}, [STALE, {}, STALE], ["refused", "not_sent", "refused"], id="two refused"),
        pytest.param(
            {"min_relevance_score": 0.5, "action_on_low_relevance": "drop"},
            [STALE, LOW, {}],
            ["refused", "dropped", "not_sent"],
            id="one refused, one dropped",
        ),
        pytest.param({"min_chunks": 3}, [{}, {}], ["not_sent", "not_sent"], id="too few"),
    ],
)
def test_each_document_has_the_outcome_that_it_had(
    client: httpx.Client,
    gateway: Gateway,
    stream: bool,
    rules: dict[str, Any],
    changes: list[dict[str, Any]],
    outcomes: list[str],
) -> None:
    agent = f"outcomes-{len(changes)}-{stream}"
    policy = gateway.policy(
        "retrieval",
        {"max_source_age_days": 90, "action_on_chunk_violation": "block", **rules},
        scope={"agents": [agent]},
    )
    documents = [{**DOCUMENT, "id": f"d{at}", **change} for at, change in enumerate(changes)]
    grounding = {"agent": agent, "inject": "system"}
    request_id = ask(gateway, FINE, documents=documents, grounding=grounding, stream=stream)
    gateway.admin.delete(f"/policies/{policy['id']}")
    gateway.trace(request_id)
    found = gateway.admin.get(f"/requests/{request_id}").json()["documents"]
    assert [each["outcome"] for each in found] == outcomes
    assert all(each["reason"] for each in found if each["outcome"] in ("refused", "dropped"))
    page = client.get(path_of(request_id)).text
    for position, outcome in enumerate(outcomes):
        row = page.partition(f'id="d-{position}"')[2].partition("</tr>")[0]
        assert f">{outcome.replace('_', ' ')}</span>" in row.replace("</svg>", ">")
    assert f"{outcomes.count('kept')} of {len(outcomes)} kept" in page


def test_heading_says_what_was_left_out(client: httpx.Client, gateway: Gateway) -> None:
    rules = {
        "unverifiable_action": "strip",
        "max_unverifiable_ratio": 1.0,
        "min_citations": 0,
        "min_grounding_score": 0,
    }
    gateway.policy("grounding", rules, scope={"agents": ["left-out"]})
    gateway.judge.labels = {"40 days": Label.CONTRADICTED, "Bicycles": Label.UNVERIFIABLE}
    request_id = ask(gateway, f"{FINE} {OPEN}", grounding={"agent": "left-out"})
    gateway.trace(request_id)
    heading = client.get(path_of(request_id)).text.partition("<h1")[2].partition("</ul>")[0]
    assert "How much leave?" in heading
    assert "1 sentence left out" in heading
    assert "warned" in heading


def test_documents_of_a_reply_that_was_blocked_were_kept(gateway: Gateway, played: dict[str, str]) -> None:
    found = gateway.admin.get(f"/requests/{played['false']}").json()
    assert (found["request"]["action"], [each["outcome"] for each in found["documents"]]) == ("block", ["kept"])


def test_json_matches_the_admin_api(client: httpx.Client, gateway: Gateway, played: dict[str, str]) -> None:
    answer = client.get(f"{path_of(played['open'])}/trace.json")
    assert answer.json() == gateway.admin.get(f"/requests/{played['open']}").json()
    assert answer.headers["content-disposition"] == f'attachment; filename="{played["open"]}.json"'


def test_unknown_request_is_an_error_page(client: httpx.Client) -> None:
    for path in (path_of("req_none"), f"{path_of('req_none')}/trace.json"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "does not exist" in answer.text


@pytest.mark.parametrize(
    ("about", "mark", "note", "correct", "kept"),
    [
        ("decision", "right", "", True, None),
        ("decision", "wrong", "nonsense", False, "nonsense"),
        ("one decision", "right", "", True, None),
        ("one decision", "wrong", "nonsense", False, "nonsense"),
        ("reply", "right", "", True, None),
        ("reply", "partly", "the second half", False, "Partly right: the second half"),
        ("reply", "wrong", "", False, None),
    ],
)
def test_feedback_is_stored_as_by_the_admin_api_and_shown(
    client: httpx.Client,
    gateway: Gateway,
    played: dict[str, str],
    about: str,
    mark: str,
    note: str,
    correct: bool,
    kept: str | None,
) -> None:
    request_id = played["fine"]
    decisions = gateway.admin.get(f"/requests/{request_id}").json()["decisions"]
    decision, anchor = (
        (decisions[-1]["id"], f"c-{decisions[-1]['id']}") if about == "one decision" else (None, "feedback")
    )
    about = about.removeprefix("one ")
    sent = {"about": about, "mark": mark, "note": note, "decision_id": decision or ""}
    answer = client.post(f"{path_of(request_id)}/feedback", data=sent)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path_of(request_id)}#{anchor}")
    newest = gateway.admin.get("/feedback", params={"request_id": request_id, "limit": 1}).json()["items"][0]
    stored = {"about": about, "decision_id": decision, "correct": correct, "note": kept}
    assert newest.items() >= stored.items()
    page = client.get(path_of(request_id)).text
    form = page.partition(f'id="{anchor}"')[2].partition(f'name="about" value="{about}"')[2].partition("</form>")[0]
    assert f'value="{mark}" aria-pressed="true"' in form
    assert form.count('aria-pressed="true"') == 1


@pytest.mark.parametrize("played_as", ["fine", "false", "stale"])
def test_two_questions_are_separate_and_name_the_decision(
    client: httpx.Client, played: dict[str, str], played_as: str
) -> None:
    page = client.get(path_of(played[played_as])).text.partition('id="feedback"')[2].partition("</section>")[0]
    word = "allowed" if played_as == "fine" else "blocked"
    assert "Was the decision right?" in page
    assert f"Rightly {word}" in page
    assert f"Wrongly {word}" in page
    # Without a reply there is nothing to ask about it.
    assert ("Was the model’s reply correct?" in page) is (played_as != "stale")


@pytest.mark.parametrize("correct", [True, False], ids=["correct reply", "incorrect reply"])
def test_feedback_on_a_blocked_reply_counts_in_quality_and_calibration(
    start_gateway: Callable[..., Gateway], correct: bool
) -> None:
    gateway = start_gateway()
    blocked = play(gateway)["false"]
    with sign_in(gateway) as client:
        for at, data in ((blocked, {"about": "reply", "mark": "right" if correct else "wrong"}),):
            assert client.post(f"{path_of(at)}/feedback", data=data).status_code == 303
    quality = gateway.admin.get("/feedback/quality").json()["items"]
    (policy,) = [each for each in quality if each["true_positives"] or each["false_positives"]]
    assert (policy["true_positives"], policy["false_positives"]) == ((0, 1) if correct else (1, 0))
    totals = gateway.admin.get("/calibration").json()["totals"]
    assert (totals["marked_good"], totals["marked_bad"]) == ((1, 0) if correct else (0, 1))


def test_invalid_feedback_is_refused(client: httpx.Client, played: dict[str, str]) -> None:
    for data in (
        {"mark": "maybe"},
        {"mark": "partly"},
        {"about": "reply", "mark": "right", "decision_id": "other"},
        {"mark": "right", "note": "x" * 4_001},
        {"mark": "right", "decision_id": "other"},
    ):
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
        assert "wasn&#39;t stored. Showing an example instead." in playground


def test_every_mark_of_a_sentence_has_words(client: httpx.Client, gateway: Gateway) -> None:
    """Even if neither its text nor a passage was logged, although other texts were."""
    request = event("req_without_words", ts=datetime.now(UTC), agent="wordless")
    claim = ClaimRow(
        position=0, choice=0, sentence_index=0, start=0, end=40, label="contradicted", score=0.1, confidence=0.9,
        document_id=None, document_index=None, evidence_start=None, evidence_end=None, delivered=True, reason=None,
        judge_ms=1.0, text=None, evidence=None,
    )  # fmt: skip
    write(gateway.database, [replace(request, claims=(claim,))])
    page = client.get(path_of("req_without_words")).text
    said = page.partition('id="s-0-0"')[2].partition("</a>")[0]
    assert '<bdi class="words">Sentence 1</bdi>' in said
    assert '<span class="unseen"> (contradicted)</span>' in said
    assert "No passage was logged for this verdict." in page


@pytest.mark.browser
def test_icon_of_a_sentence_is_on_the_line_of_its_first_word(page: Any, gateway: Gateway) -> None:
    request_id = ask(gateway, " ".join(["Permanent staff receive leave."] * 9))
    gateway.trace(request_id)
    page.goto(path_of(request_id))
    for width in range(320, 480, 8):
        page.set_viewport_size({"width": width, "height": 900})
        apart = page.locator("#reply .said").evaluate_all(
            """links => links.filter(link => {
              const icon = link.querySelector(".icon").getBoundingClientRect();
              return link.querySelector(".words").getClientRects()[0].top > icon.bottom;
            }).length"""
        )
        assert apart == 0, f"at a width of {width} px"
    check_everywhere(page)


@pytest.mark.browser
def test_long_file_names_are_broken_at_their_separators(browser: Any, gateway: Gateway, client: httpx.Client) -> None:
    name = "refunds/quarterly_refund_handbook-for-support.teams/final_version_2026.pdf"
    document = {**DOCUMENT, "id": name, "source": f"kb/{name}", "title": name.upper(), "collection": name}
    request_id = ask(gateway, f"{FINE} {FALSE}", documents=[document])
    gateway.trace(request_id)
    with open_page(browser, gateway, client, viewport=PHONE) as page:
        page.goto(path_of(request_id))
        for width in (360, 390, 620, 900, 1_440):
            page.set_viewport_size({"width": width, "height": 900})
            names = page.locator(".documents th bdi, .documents td bdi, .quote a bdi, .decision .reason bdi")
            broken = names.evaluate_all(
                """names => names.filter(name => name.checkVisibility()).flatMap(name => {
                  const texts = document.createTreeWalker(name, NodeFilter.SHOW_TEXT), ends = [];
                  let before = null, top = null;
                  while (texts.nextNode()) for (let at = 0; at < texts.currentNode.length; at++) {
                    const range = new Range(), text = texts.currentNode;
                    range.setStart(text, at), range.setEnd(text, at + 1);
                    const box = range.getClientRects()[0], char = text.data[at];
                    const below = box?.width && top !== null && box.top > top + 4;
                    if (below && !/[\\s/_.-]/.test(before)) ends.push(before + char);
                    if (box?.width) top = box.top;
                    before = char;
                  }
                  return ends;
                })"""
            )
            assert broken == [], f"at a width of {width} px"
            marks = page.locator(".documents :is(.badge, .use)")
            ends = marks.evaluate_all("marks => marks.map(mark => mark.getBoundingClientRect().right)")
            assert len(ends) == 3
            assert max(ends) <= width, "a mark is cut off"
            check(page)


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
    page.get_by_role("button", name="Rightly blocked").first.click()
    page.get_by_role("button", name="Rightly blocked", pressed=True).wait_for()
    page.get_by_role("button", name="Incorrect").click()
    page.get_by_role("button", name="Incorrect", pressed=True).wait_for()
    assert page.get_by_role("button", name="Rightly blocked", pressed=True).count() == 1
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
        page.get_by_role("button", name="Partly correct").click()
        page.get_by_role("button", name="Partly correct", pressed=True).wait_for()


@pytest.mark.browser
def test_hostile_text_is_escaped(page: Any, gateway: Gateway) -> None:
    hostile = {**DOCUMENT, "title": "\u202e<svg onload=alert(2)>", "text": f"{FINE} {HOSTILE}"}
    request_id = ask(gateway, f"{HOSTILE} {'x' * 1_000_000}", documents=[hostile], grounding={"agent": "hostile"})
    gateway.trace(request_id)
    page.goto(path_of(request_id))
    assert '<script>document.title = "taken"</script>' in page.locator("#s-0-0").inner_text()
    assert page.title() == "How much leave? · Groundlane"
    assert page.locator("main script, main img, main svg[onload]").count() == 0
    text = page.locator("main").inner_text()
    assert "U+202E" in text
    assert "\u202e" not in text
    assert "more characters" in text
    check(page)


def test_logged_request_opens_in_the_playground(client: httpx.Client, played: dict[str, str]) -> None:
    page = client.get(f"/dashboard/playground?request={played['false']}").text
    assert f"{FINE} {FALSE}" in page
    assert f'value="{AGENT}"' in page
    assert csrf_of(page)
