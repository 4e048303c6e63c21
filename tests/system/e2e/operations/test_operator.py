"""An operator finds out why answers got worse, who changed the policy and what it cost, and puts it right: in shadow,
compared, then enforced, while requests keep coming. In Chromium, over three weeks of made-up traffic."""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.seed_traffic import PERSON, seed
from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.browser import check_everywhere, chromium, open_page, sign_in
from tests.support.gateways.live_gateway import Gateway, eventually

pytestmark = pytest.mark.browser

POLICY = "Refund answers"
TRUE = "Refunds are confirmed within five working days."
FALSE = "Every refund is possible at any time, without limits."


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("operator")
    with ThreadPoolExecutor(1) as thread:  # The browser keeps an event loop in this one.
        url = f"sqlite+aiosqlite:///{folder / 'groundlane.db'}"
        thread.submit(lambda: asyncio.run(seed(url, 3_000, 21))).result()
    gateway = Gateway(folder).start()
    gateway.judge.labels = {"without limits": Label.CONTRADICTED}
    yield gateway
    gateway.close()


class Customers:
    """Ask about refunds, one after the other. Every other reply of the model contains a false sentence. ``outcomes``
    counts the responses by status and by whether the false sentence was delivered."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._stop = threading.Event()
        self.outcomes: Counter[tuple[int, bool]] = Counter()

    def run(self) -> None:
        for number in range(1_000_000):
            text = f"{TRUE} {FALSE}" if number % 2 else TRUE
            self._gateway.upstream.script(answer(text, stream=True))
            body = {
                "model": "gpt-4o-mini",
                "stream": True,
                "messages": [{"role": "user", "content": "How long does a refund take?"}],
                "documents": [{"id": "handbook-0", "text": TRUE}],
                "grounding": {"agent": "refund-desk"},
            }
            with self._gateway.call(body) as call:
                self.outcomes[call.status, FALSE.encode() in call.read_all()] += bool(number % 2)
            if self._stop.wait(0.5):
                break

    def next(self, count: int) -> Counter[tuple[int, bool]]:
        """The outcomes of the next ``count`` replies with a false sentence."""
        before = Counter(self.outcomes)
        eventually(lambda: self.outcomes.total() >= before.total() + count or None, "replies", 60)
        return self.outcomes - before

    @contextmanager
    def asking(self) -> Iterator["Customers"]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(60)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def test_sentences_that_judges_and_people_disagree_about_are_labelled_first(gateway: Gateway, browser: Any) -> None:
    queue = gateway.admin.get("/review", params={"limit": 200}).json()
    kinds = Counter(tuple(item["why"]) for item in queue["items"])
    assert min(kinds["llm",], kinds["feedback",], kinds["llm", "feedback"]) > 0
    labels = sum(queue["labels"].values())
    with sign_in(gateway) as client, open_page(browser, gateway, client) as page:
        page.goto("/dashboard/review")
        page.get_by_text(re.compile(f"{queue['disputed']:,} disputed")).wait_for()
        for key, item in zip("scu", queue["items"], strict=False):
            shown = page.get_by_role("main").inner_text()
            assert item["text"] in shown
            assert "LLM judge" in shown
            assert f"score {item['judge_score']:.2f}" in shown
            name = page.locator("#label [name=claim]").input_value()
            page.keyboard.press(key)
            page.keyboard.press("Enter")
            page.wait_for_url(f"**last={name.replace(':', '%3A')}*")
        check_everywhere(page)
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Download {labels + 3} labels").click()
        exported = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert len(exported) == labels + 3
    assert [case["label"] for case in exported[-3:]] == ["supported", "contradicted", "unverifiable"]


def test_operator_finds_causes_authors_and_costs_by_following_links(gateway: Gateway, browser: Any) -> None:
    (policy,) = gateway.admin.get("/policies", params={"name": POLICY}).json()["items"]
    with sign_in(gateway) as client, open_page(browser, gateway, client) as page:
        # Why, who, and what did it cost?
        page.goto("/dashboard/")
        page.get_by_role("link", name="Month", exact=True).click()
        page.wait_for_url("**span=month**")
        page.get_by_role("link", name="refund-desk").first.click()
        page.wait_for_url("**agent=refund-desk**")
        changes = page.get_by_role("region", name="Policy and model changes").filter(has=page.locator("table"))
        changed = changes.get_by_role("row").filter(has_text="contradiction_action").inner_text()
        assert f"cli:{PERSON}" in changed
        assert "from block to flag" in changed
        left = changes.get_by_role("row").filter(has=page.get_by_role("link", name="gpt-4o", exact=True))
        assert "last request" in left.inner_text()
        made = gateway.admin.get("/audit", params={"actor": f"cli:{PERSON}"}).json()["items"]
        assert [f"{datetime.fromisoformat(entry['ts']):%A %H:%M}" for entry in made] == ["Tuesday 10:00"]
        spent = page.get_by_role("region", name="Tokens and cost by model")
        assert re.search(r"gpt-4o-mini.*\$\d", spent.get_by_role("row", name="gpt-4o-mini").inner_text(), re.DOTALL)

        # A threshold, from what people said.
        changes.get_by_role("link", name=POLICY).last.click()
        page.wait_for_url("**/versions")
        page.get_by_role("link", name=POLICY).click()
        page.get_by_role("link", name="Calibrate its threshold").click()
        known = page.get_by_text("Requests are classified as good or bad by")
        assert re.search(r"review labels \([1-9]\d*\), by feedback \([1-9]", known.inner_text())
        page.get_by_role("button", name="Use in this policy").click()
        page.wait_for_url("**/edit?**")
        page.get_by_role("radiogroup", name="contradiction_action").get_by_role("radio", name="block").check()
        page.get_by_role("button", name="Simulate on").click()
        page.get_by_role("region", name=re.compile("requests would change")).wait_for()

        # In shadow: customers get the same replies, and the page compares.
        with Customers(gateway).asking() as customers:
            assert set(customers.next(3)) == {(200, True)}
            page.get_by_role("button", name="Save as a shadow copy").click()
            page.wait_for_url("**done=trial")
            head = page.locator("#compared-head")
            seen = head.filter(has_text="Different from").inner_text()
            assert set(customers.next(3)) == {(200, True)}
            head.filter(has_text="Different from", has_not_text=seen).wait_for()
            again = head.inner_text()
            head.filter(has_text="Different from", has_not_text=again).wait_for()  # It keeps itself up to date.
            page.locator("#compared .moves li").filter(has_text="warned").filter(has_text="blocked").wait_for()
            check_everywhere(page)
            copy = gateway.admin.get("/policies", params={"name": f"{POLICY} (trial)"}).json()["items"]
            assert [each["mode"] for each in copy] == ["shadow"]

            # Enforced: no request in between is without a policy, and none fails.
            before = customers.outcomes.copy()
            page.get_by_role("button", name="Enforce these rules").click()
            page.wait_for_url("**done=replaced")
            eventually(lambda: customers.outcomes[200, False] or None, "a blocked reply", 60)
            assert set(customers.next(3)) == {(200, False)}
            assert set(customers.outcomes) == {(200, True), (200, False)}
            assert before[200, False] == 0
            now = gateway.admin.get(f"/policies/{policy['id']}").json()
            assert (now["version"], now["mode"], now["rules"]["contradiction_action"]) == (3, "enforce", "block")
            assert now["rules"]["min_grounding_score"] != policy["rules"]["min_grounding_score"]
            assert gateway.admin.get("/policies", params={"name": f"{POLICY} (trial)"}).json()["items"] == []
            page.goto(f"/dashboard/policies/{policy['id']}/versions")
            assert "v3" in page.get_by_role("main").inner_text()
