"""The list of runs, the page of a run, and the pages of its steps."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.gateways.browser import check_everywhere, sign_in
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.run_client import Run
from tests.support.storage.dashboard_seed import FINE, ask

LIST = "/dashboard/runs"
_LINK = re.compile(r'class="whole-row" href="/dashboard/runs/([^"]+)"')


@pytest.fixture(scope="module")
def agent(gateway: Gateway) -> str:
    return gateway.agent(grounding={"action_on_violation": "block", "min_citations": 0})


@pytest.fixture(scope="module")
def runs(gateway: Gateway, agent: str) -> dict[str, str]:
    """The ids of runs of ``agent``: one ``complete``, with a step of each kind, and one ``blocked``."""
    with Run(gateway, agent) as run:
        run.retrieved(source="<b>faq.pdf", relevance_score=0.9, age_days=3)
        run.grounded(grounding_scores=[0.9, 0.95], citations=["faq.pdf"], output_confidence=0.8)
        ask(gateway, FINE, grounding={"run_id": run.id})
        eventually(lambda: run.view()["requests"] or None, "request of the run")
        run.complete({"answer": "<i>25</i> days"})
    with Run(gateway, agent) as other:
        other.grounded(grounding_scores=[0.1])
    return {"complete": run.id, "blocked": other.id}


def ids(client: httpx.Client, query: str = "") -> list[str]:
    answer = client.get(LIST + query)
    assert answer.status_code == 200, answer.text
    return _LINK.findall(answer.text)


def test_runs_are_listed_and_filtered(client: httpx.Client, agent: str, runs: dict[str, str]) -> None:
    assert ids(client, f"?agent={agent}") == [runs["blocked"], runs["complete"]]
    assert ids(client, f"?agent={agent}&action=block") == [runs["blocked"]]
    assert ids(client, f"?agent={agent}&status=completed&action=") == [runs["complete"]]
    assert ids(client, "?agent=nobody") == []
    assert "No matching runs" in client.get(f"{LIST}?agent=nobody").text
    assert client.get(f"{LIST}?status=paused").status_code == 422


def test_list_is_paginated(client: httpx.Client, gateway: Gateway) -> None:
    agent = gateway.agent()
    for _ in range(51):
        with Run(gateway, agent):
            pass
    first = client.get(f"{LIST}?agent={agent}").text
    older = re.search(r'href="([^"]+)" rel="next"', first)
    assert older is not None
    second = client.get(older[1].replace("&amp;", "&")).text
    assert [len(_LINK.findall(page)) for page in (first, second)] == [50, 1]
    assert "Newest" in second


def test_run_shows_each_step_with_its_data_and_decisions(client: httpx.Client, runs: dict[str, str]) -> None:
    page = client.get(f"{LIST}/{runs['complete']}").text
    headings = ["Started", "Document recorded", "Grounding reported", "Request to the model", "Completed"]
    assert re.findall(r"<h2>\d\. ([^<]+)</h2>", page) == headings
    for told in ("&lt;b&gt;faq.<wbr>pdf", "0.90, 0.95", "&lt;i&gt;25&lt;/i&gt; days", "Grounding scores within policy"):
        assert told in page
    assert "<b>faq" not in page
    assert f'href="/dashboard/requests?run={runs["complete"]}"' in page
    blocked = client.get(f"{LIST}/{runs['blocked']}").text
    assert "Grounding score (0.10) below threshold (0.7)" in blocked
    assert client.get(f"{LIST}/run_0").status_code == 404
    exported = client.get(f"{LIST}/{runs['complete']}/run.json").json()
    assert [step["kind"] for step in exported["steps"]] == ["start", "retrieval", "grounding", "call", "complete"]


@pytest.mark.parametrize("store_text", ["full", "hash", "none"])
def test_step_shows_texts_as_the_setting_allows(start_gateway: Callable[..., Gateway], store_text: str) -> None:
    gateway = start_gateway(store_text=store_text)
    with Run(gateway, "a") as run:
        answers = [run.retrieved(source="faq.pdf"), run.grounded(grounding_scores=[0.9]), run.complete("It rains.")]
    with sign_in(gateway) as client:
        for answer in answers:
            gateway.trace(answer["request_id"])
            page = client.get(f"/dashboard/requests/{answer['request_id']}").text
            assert ("STORE_TEXT=" in page) is (store_text != "full")
            assert "STORE_TEXT=none" not in page or store_text == "none"
            assert "A step of a run" in page
            assert f'href="/dashboard/runs/{run.id}"' in page


@pytest.mark.browser
def test_run_is_opened_from_the_list_and_leads_to_its_traces(page: Any, agent: str, runs: dict[str, str]) -> None:
    page.goto(f"{LIST}?agent={agent}")
    check_everywhere(page)
    page.select_option("#f-status", "completed")
    page.wait_for_url("**status=completed**")
    page.locator("tbody tr:only-child a").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{LIST}/{runs['complete']}")
    check_everywhere(page)
    page.get_by_role("link", name="Trace of step 3").click()
    page.wait_for_url("**/dashboard/requests/**")
    page.get_by_role("link", name=runs["complete"]).click()
    page.wait_for_url(f"**{LIST}/{runs['complete']}")
