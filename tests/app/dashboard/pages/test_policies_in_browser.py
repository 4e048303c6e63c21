"""Working with policies in a real browser: the first policy and its first block; simulate, save, roll back."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.browser import DESKTOP, check, check_everywhere, open_page, sign_in
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import AGENT, DOCUMENT, FALSE, FINE

pytestmark = pytest.mark.browser


def test_from_a_template_to_the_first_block(browser: Any, start_gateway: Callable[..., Gateway]) -> None:
    """On an empty gateway: create a policy from a template, have it block a request, and look at both."""
    gateway = start_gateway()
    gateway.judge.labels = {"40 days": Label.CONTRADICTED}
    with sign_in(gateway) as client, open_page(browser, gateway, client) as page:
        page.goto("/dashboard/policies")
        check(page)
        page.get_by_role("link", name="Create a policy").click()
        check(page)
        page.get_by_role("link", name=re.compile("^Customer support")).click()
        page.get_by_text("This policy starts in shadow mode").wait_for()
        page.get_by_role("radiogroup", name="mode").get_by_role("radio", name="enforce").check()
        page.get_by_label("agents, item 1").fill("leaflet-desk")
        page.get_by_label("abstention_response").fill("Please ask your pharmacist.")
        page.get_by_role("button", name="Create").click()
        page.get_by_text("Policy created.").wait_for()
        check(page)

        gateway.upstream.script(answer(f"{FINE} {FALSE}", stream=False))
        messages = [{"role": "user", "content": "How much leave?"}]
        body = {"model": "m", "messages": messages, "documents": [DOCUMENT], "grounding": {"agent": "leaflet-desk"}}
        with gateway.call(body) as call:
            assert b"Please ask your pharmacist." in call.read_all()
        gateway.trace(call.request_id)

        page.get_by_role("link", name="Policies", exact=True).first.click()
        row = page.locator("[data-policy='Customer support']")
        assert "1 blocked" in row.inner_text()
        row.get_by_role("link", name="Customer support").click()
        flagged = page.get_by_role("region", name="Flagged requests")
        assert "Claim contradicts source 'hr.pdf'" in flagged.inner_text()
        check_everywhere(page)
        flagged.get_by_role("listitem").get_by_role("link").click()
        page.wait_for_url(f"**/dashboard/requests/{call.request_id}")

        page.goto("/dashboard/policies")
        page.get_by_role("switch", name="Customer support enabled").click()
        page.get_by_text("Done.").wait_for()
        assert page.get_by_role("switch").get_attribute("aria-checked") == "false"


def test_change_is_simulated_saved_and_rolled_back(page: Any, gateway: Gateway, played: dict[str, str]) -> None:
    rules = {"min_citations": 0, "unverifiable_action": "flag"}
    policy = gateway.policy("grounding", rules, scope={"agents": [AGENT]}, mode="shadow")
    url = f"/dashboard/policies/{policy['id']}"
    page.goto(f"{url}/edit")
    page.get_by_label("Find a rule").fill("unverifiable")
    assert page.locator("[data-rule]:visible").filter(has_text="min_citations").count() == 0
    ratio = page.get_by_label("max_unverifiable_ratio", exact=True)
    page.get_by_label("max_unverifiable_ratio, slider").fill("0.1")
    assert ratio.input_value() == "0.1"
    page.get_by_role("radiogroup", name="unverifiable_action").get_by_role("radio", name="block").check()
    page.get_by_role("button", name="Simulate on").click()
    tried = page.get_by_role("region", name=re.compile("requests would change"))
    tried.wait_for()
    assert played["open"] in str(tried.get_by_role("link").evaluate_all("links => links.map(link => link.href)"))
    check_everywhere(page)
    assert gateway.admin.get(f"/policies/{policy['id']}").json()["version"] == 1

    ratio.fill("often")
    page.get_by_role("button", name="Save", exact=True).last.click()
    page.get_by_role("alert").get_by_role("link", name="max_unverifiable_ratio").click()
    assert "valid number" in page.locator("[data-rule='max_unverifiable_ratio']").inner_text()
    check(page)
    gateway.admin.patch(f"/policies/{policy['id']}", json={"priority": 4})
    ratio.fill("0.1")
    page.get_by_role("button", name="Save", exact=True).last.click()
    page.get_by_role("region", name="Not saved: someone else saved version 2 while you were editing").wait_for()
    check_everywhere(page)
    page.get_by_role("button", name="Save", exact=True).last.click()
    page.wait_for_url(f"**{url}?done=saved")
    assert gateway.admin.get(f"/policies/{policy['id']}").json()["priority"] == 4

    page.get_by_role("link", name="Versions").click()
    page.locator("summary").filter(has_text="v1").click()
    check_everywhere(page)
    page.get_by_role("button", name="Roll back to version 1").click()
    page.wait_for_url(f"**{url}?done=rolled-back")
    now = gateway.admin.get(f"/policies/{policy['id']}").json()
    assert (now["version"], now["rules"]["unverifiable_action"]) == (4, "flag")


def test_running_simulation_is_shown_without_moving_the_page(
    page: Any, gateway: Gateway, played: dict[str, str]
) -> None:
    policy = gateway.policy("grounding", {"min_citations": 0}, scope={"agents": ["nobody"]})
    page.goto(f"/dashboard/policies/{policy['id']}/edit")
    held: list[Any] = []
    page.route("**/edit", lambda route: held.append(route))
    button, said = page.locator("#simulate"), page.locator("#say")
    place = button.bounding_box()
    page.get_by_label("Agent of the requests to simulate").select_option(AGENT)
    button.click()
    said.filter(has_text="Simulating …").wait_for(state="attached")
    assert button.is_disabled()
    assert (said.inner_text(), said.get_attribute("aria-live")) == ("Simulating …", "polite")
    assert button.bounding_box() == place
    check_everywhere(page)

    held[0].abort()
    page.get_by_text("The gateway is not responding.").wait_for(state="attached")
    assert button.is_enabled()
    page.unroute("**/edit")
    page.set_viewport_size(DESKTOP)
    button.click()
    simulated = page.locator("#simulated")
    simulated.wait_for()
    assert f"requests in the event log of the agent {AGENT}" in re.sub(r"[“”\"]", "", simulated.inner_text())
    assert button.is_enabled()
    assert said.inner_text() == ""
    assert page.get_by_label("Agent of the requests to simulate").input_value() == AGENT
    check_everywhere(page)


def test_what_is_entered_during_a_simulation_is_kept(page: Any, gateway: Gateway) -> None:
    policy = gateway.policy("grounding", {"min_citations": 0}, scope={"agents": ["first"]})
    page.goto(f"/dashboard/policies/{policy['id']}/edit")
    held: list[Any] = []

    def hold(route: Any) -> None:
        if "do=simulate" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/edit", hold)
    page.get_by_label("priority", exact=True).fill("3")
    page.locator("#simulate").click()
    page.locator("#say").filter(has_text="Simulating …").wait_for(state="attached")

    page.get_by_label("abstention_response").fill("Please ask your pharmacist.")
    page.get_by_label("agents, item 2").fill("second")
    page.get_by_label("agents, item 3").fill("third")
    page.get_by_label("agents, item 4").fill("fourth")
    page.get_by_role("radiogroup", name="unverifiable_action").get_by_role("radio", name="block").check()
    held[0].continue_()
    page.locator("#simulated").wait_for()

    assert page.get_by_label("priority", exact=True).input_value() == "3"
    assert page.get_by_label("abstention_response").input_value() == "Please ask your pharmacist."
    agents = [page.get_by_label(f"agents, item {place}").input_value() for place in range(1, 5)]
    assert agents == ["first", "second", "third", "fourth"]
    assert page.get_by_role("radiogroup", name="unverifiable_action").get_by_role("radio", name="block").is_checked()


def test_rules_that_cannot_work_together_are_named_while_the_form_is_filled_in(page: Any, gateway: Gateway) -> None:
    page.goto("/dashboard/policies/new?template=Customer%20support")
    warnings = page.locator("#warnings li")
    assert warnings.count() == 0
    page.get_by_role("radiogroup", name="unverifiable_action").get_by_role("radio", name="strip").check()
    page.get_by_role("radiogroup", name="stream_mode").get_by_role("radio", name="live").check()
    warnings.first.wait_for()
    assert "'strip' has no effect" in warnings.first.inner_text()
    check_everywhere(page)
    page.get_by_role("radiogroup", name="stream_mode").get_by_role("radio", name="hold").check()
    warnings.first.wait_for(state="detached")

    asked = []

    def leave(dialog: Any) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    page.locator(".crumbs a").first.click()
    page.wait_for_url("**/dashboard/policies")
    assert asked == ["beforeunload"]


@pytest.mark.usefixtures("played")  # requests to simulate
def test_form_works_without_javascript(browser: Any, gateway: Gateway, client: httpx.Client) -> None:
    policy = gateway.policy("retrieval", scope={"agents": ["nobody"]})
    url = f"/dashboard/policies/{policy['id']}"
    with open_page(browser, gateway, client, java_script_enabled=False) as page:
        page.goto(f"{url}/edit")
        page.get_by_label("min_chunks").fill("4")
        page.get_by_label("blocked_sources, item 1").fill("drafts")
        page.get_by_role("button", name="Simulate on").click()
        page.get_by_role("region", name=re.compile("requests would change")).wait_for()
        page.get_by_role("button", name="Save", exact=True).last.click()
        page.wait_for_url(f"**{url}?done=saved")
    rules = gateway.admin.get(f"/policies/{policy['id']}").json()["rules"]
    assert (rules["min_chunks"], rules["blocked_sources"]) == (4, ["drafts"])
