"""The calibration page: what a threshold would have blocked, and filling it into a policy's form."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from app.events.records import ClaimRow
from tests.support.gateways.browser import check_everywhere
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import event, write

AGENT = "calibrated"


def claim(score: float) -> ClaimRow:
    return ClaimRow(
        position=0, choice=0, sentence_index=0, start=0, end=9, label="supported", score=score, confidence=score,
        document_id="hr-7", document_index=0, evidence_start=0, evidence_end=9, delivered=True, reason=None,
        judge_ms=1.0, text="A claim.", evidence=None,
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def scored(gateway: Gateway) -> None:
    """Forty runs with scores 0.025, 0.05 … 1. Runs below 0.25 were blocked, one of them wrongly; one allowed run is
    marked as bad."""
    now = datetime.now(UTC)
    made = []
    for number in range(1, 41):
        action = "block" if number < 10 else "allow"
        each = event(f"req_cal_{number:02d}", ts=now - timedelta(minutes=number), action=action, agent=AGENT)
        made.append(replace(each, claims=(claim(number / 40),)))
    write(gateway.database, made)
    for number, correct in ((2, True), (4, False), (12, False)):
        answer = gateway.admin.post("/feedback", json={"request_id": f"req_cal_{number:02d}", "correct": correct})
        assert answer.status_code == 201


def figures(page: str) -> dict[str, str]:
    return dict(re.findall(r'data-figure="(\w+)">([^<]+)<', page))


def test_threshold_counts_blocked_runs_and_feedback(client: httpx.Client) -> None:
    """Nineteen runs score below 0.5: nine bad (eight of the nine blocked, one allowed) and ten good."""
    page = client.get("/dashboard/calibration", params={"agent": AGENT, "threshold": 0.5}).text
    assert figures(page) == {
        "at": "0.50", "runs": "19", "share": "47.5%", "good": "10", "bad": "9",
        "right": "67%", "marked_bad": "2", "marked": "3", "caught": "100%",
    }  # fmt: skip
    assert "Scores of 40 requests" in page


def test_initial_threshold_is_the_percentile_of_good_runs(client: httpx.Client) -> None:
    """The 10th percentile of 31 good runs is the fourth: 0.1 (marked good), 0.25, 0.275, 0.325 (0.3 is bad)."""
    page = client.get("/dashboard/calibration", params={"agent": AGENT, "percentile": 10}).text
    assert "10% of good requests score 0.325 or less" in page
    assert figures(page)["at"] == "0.32"


def test_agent_without_runs_gets_an_empty_page(client: httpx.Client) -> None:
    page = client.get("/dashboard/calibration", params={"agent": "nobody at all"}).text
    assert "No scores yet" in page
    assert client.get("/dashboard/calibration", params={"threshold": 2}).status_code == 422


def test_threshold_is_filled_into_the_policy_form_but_not_saved(gateway: Gateway, client: httpx.Client) -> None:
    policy = gateway.policy("grounding", {"min_citations": 0}, scope={"agents": [AGENT]}, mode="shadow")
    way = f"/dashboard/calibration?policy={policy['id']}&amp;agent={AGENT}"
    assert way in client.get(f"/dashboard/policies/{policy['id']}").text
    page = client.get(way.replace("&amp;", "&")).text
    assert "Scores of 40 requests" in page
    assert f'value="{policy["id"]}" selected' in page
    asked = {"policy": policy["id"], "threshold": "0.32", "score": "average", "block": "on"}
    answer = client.get("/dashboard/calibration/draft", params=asked)
    where = urlsplit(answer.headers["location"])
    assert (answer.status_code, where.path) == (303, f"/dashboard/policies/{policy['id']}/edit")
    assert parse_qs(where.query)["rules.min_grounding_score"] == ["0.32"]
    form = client.get(answer.headers["location"]).text
    assert 'name="rules.min_grounding_score" value="0.32"' in form
    assert re.search(r'name="rules.score_eval_mode" value="average" checked', form)
    assert re.search(r'name="rules.action_on_violation" value="block" checked', form)
    assert "saved: 0.7" in form
    assert gateway.admin.get(f"/policies/{policy['id']}").json()["version"] == 1
    new = client.get("/dashboard/calibration/draft", params={"threshold": "0.32"}).headers["location"]
    assert 'name="rules.min_grounding_score" value="0.32"' in client.get(new).text
    odd = client.get("/dashboard/calibration/draft", params={"policy": "../keys?", "threshold": "0.3"})
    assert urlsplit(odd.headers["location"]).path == "/dashboard/policies/..%2Fkeys%3F/edit"


@pytest.mark.browser
def test_threshold_is_moved_by_pointer_and_keys_and_becomes_a_draft(page: Any, gateway: Gateway) -> None:
    policy = gateway.policy("grounding", {"min_citations": 0}, scope={"agents": [AGENT]}, mode="shadow")
    page.goto("/dashboard/calibration")
    page.get_by_label("Policy").select_option(policy["id"])
    page.get_by_label("Agent").fill(AGENT)
    page.wait_for_url(f"**agent={AGENT}**")
    assert page.get_by_role("heading", name="Scores of 40 requests").is_visible()
    slider = page.get_by_role("slider", name="Threshold")
    slider.fill("0.5")
    assert page.locator("[data-figure=runs]").inner_text() == "19"
    assert page.locator("[data-figure=right]").inner_text() == "67%"
    slider.press("ArrowRight")
    assert page.locator("[data-figure=at]").inner_text() == "0.51"
    assert page.locator("[data-figure=runs]").inner_text() == "20"
    box = page.locator("[data-histogram]").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60, steps=3)
    page.mouse.up()
    assert page.locator("[data-figure=at]").inner_text() == "0.30"
    assert page.locator("[data-figure=runs]").inner_text() == "11"
    check_everywhere(page)
    page.get_by_role("button", name="Use in this policy").click()
    page.wait_for_url("**/edit?**")
    assert page.get_by_label("min_grounding_score", exact=True).input_value() == "0.3"
    page.get_by_role("button", name="Save", exact=True).last.click()
    page.wait_for_url("**?done=saved")
    rules = gateway.admin.get(f"/policies/{policy['id']}").json()["rules"]
    assert (rules["min_grounding_score"], rules["action_on_violation"]) == (0.3, "block")
