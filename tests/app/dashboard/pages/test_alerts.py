"""Alert rules and destinations on the dashboard."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html import unescape
from typing import Any

import httpx
import pytest

from app.auth.secrets import new_secret_key
from tests.support.gateways.browser import check_everywhere, open_page, sign_in
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.storage.dashboard_seed import event, write

RULE = {"name": "Many blocked", "metric": "blocked", "threshold": 0.5, "min_requests": 5}


@pytest.fixture
def secretive(start_gateway: Callable[..., Gateway]) -> Iterator[tuple[Gateway, httpx.Client]]:
    """A gateway that can store secrets, and a signed-in client."""
    gateway = start_gateway(secret_key=new_secret_key(), alert_private_addresses=True)
    with sign_in(gateway) as client:
        yield gateway, client


def test_destination_is_created_without_showing_its_secrets(secretive: tuple[Gateway, httpx.Client]) -> None:
    gateway, client = secretive
    form = {"name": "On call", "kind": "webhook", "url": "http://127.0.0.1:1/very-secret", "key": "very-secret-key"}
    assert client.post("/dashboard/alerts/destinations", data=form).status_code == 303
    shown = client.get("/dashboard/alerts").text
    assert "On call" in shown
    assert "very-secret" not in shown
    (made,) = gateway.admin.get("/alerts/destinations").json()["items"]
    assert made.keys() == {"id", "name", "kind", "created_at", "updated_at"}
    tested = client.post(f"/dashboard/alerts/destinations/{made['id']}/test", data={})
    assert tested.status_code == 502
    assert "The test message was not delivered: cannot reach the host" in tested.text
    assert "very-secret" not in tested.text
    assert gateway.admin.post(f"/alerts/destinations/{made['id']}/test", json={}).json()["delivered"] is False


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"name": "x", "kind": "webhook"}, "Required"),
        ({"name": "x", "kind": "slack", "url": "hooks.slack.com/secret-part"}, "Must be an http:// or https:// URL"),
        (
            {"name": "x", "kind": "slack", "url": "https://user:secret-part@hooks.slack.com/"},
            "Must be an http:// or https:// URL",
        ),
        ({"name": "x", "kind": "pagerduty"}, "PagerDuty destination requires a routing key"),
        ({"name": "", "kind": "pagerduty", "key": "secret-part"}, "Required"),
    ],
)
def test_incomplete_destination_is_explained(
    secretive: tuple[Gateway, httpx.Client], form: dict[str, str], message: str
) -> None:
    answer = secretive[1].post("/dashboard/alerts/destinations", data=form)
    assert answer.status_code == 422
    assert message in answer.text
    assert "secret-part" not in answer.text


def test_without_a_secret_key_the_page_says_what_is_missing(client: httpx.Client) -> None:
    form = {"name": "On call", "kind": "slack", "url": "https://hooks.slack.com/services/x"}
    answer = client.post("/dashboard/alerts/destinations", data=form)
    assert answer.status_code == 422
    assert "GROUNDLANE_SECRET_KEY is not set" in answer.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": "101"}, "Threshold must be between 0 and 100 for a rate"),
        ({"threshold": "often"}, "threshold"),
        ({"window_minutes": "0"}, "Must be greater than or equal to 1"),
        ({"destinations": "dst_none"}, "unknown destination"),
        ({"name": ""}, "Required"),
    ],
)
def test_rule_that_cannot_be_saved_is_explained(client: httpx.Client, changes: dict[str, str], message: str) -> None:
    form = {"name": "n", "metric": "blocked", "direction": "above", "threshold": "0.1", "severity": "error"}
    form |= {"window_minutes": "15", "min_requests": "20", "cooldown_minutes": "15", "enabled": "on"}
    answer = client.post("/dashboard/alerts/new", data=form | changes)
    assert answer.status_code == 422
    assert message in answer.text


def row_of(page: str, name: str) -> str:
    """The text of a rule's row in the list."""
    (row,) = (part for part in re.findall(r"<tr>(.*?)</tr>", page, re.S) if f">{name}</a>" in part)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", row)).split())


def test_rule_is_scoped_to_known_agents_and_has_its_rate_in_percent(client: httpx.Client, gateway: Gateway) -> None:
    policy = gateway.policy("grounding", name="Watched <policy>", scope={"agents": ["nobody"]})
    form = client.get("/dashboard/alerts/new").text
    agents = form.partition('<select id="f-agent"')[2].partition("</select>")[0]
    assert set(re.findall(r'value="([^"]+)"', agents)) >= {"hr-desk", "leaflet-desk", "research"}
    sent = {"name": "Scoped", "metric": "blocked", "direction": "above", "threshold": "14.3", "severity": "error"}
    sent |= {"window_minutes": "15", "min_requests": "20", "cooldown_minutes": "15", "enabled": "on"}
    sent |= {"agent": "hr-desk", "policy": policy["id"]}
    assert client.post("/dashboard/alerts/new", data=sent).status_code == 303
    (rule,) = [each for each in gateway.admin.get("/alerts").json()["items"] if each["name"] == "Scoped"]
    assert (rule["threshold"], rule["agent"], rule["policy"]) == (0.143, "hr-desk", policy["id"])
    assert "hr-desk, Watched <policy>" in row_of(client.get("/dashboard/alerts").text, "Scoped")
    filled = client.get(f"/dashboard/alerts/{rule['id']}").text
    assert re.search(r'id="f-threshold"[^>]* value="14.3"', filled)
    assert '<option value="hr-desk" selected>' in filled
    gateway.admin.delete(f"/alerts/{rule['id']}")


def test_rule_whose_window_has_too_few_requests_is_not_shown_as_ok(client: httpx.Client, gateway: Gateway) -> None:
    rules = {
        "Never reached": RULE | {"min_requests": 1_000_000},
        "Reached": RULE | {"window_minutes": 1_440, "min_requests": 2, "threshold": 1},
    }
    made = [gateway.admin.post("/alerts", json=rule | {"name": name}).json() for name, rule in rules.items()]
    for each in made:
        url = f"/alerts/{each['id']}"
        eventually(lambda url=url: gateway.admin.get(url).json()["checked_at"], "the rule's first check")
    page = client.get("/dashboard/alerts").text
    assert re.search(r"not enough requests \d+ of 1,000,000 in the last 15 minutes", row_of(page, "Never reached"))
    assert " ok " in row_of(page, "Reached")
    for each in made:
        gateway.admin.delete(f"/alerts/{each['id']}")


def test_destination_names_are_unique(gateway: Gateway) -> None:
    made = gateway.admin.post("/alerts", json=RULE | {"name": "Only one"}).json()
    assert gateway.admin.post("/alerts", json=RULE | {"name": "Only one"}).status_code == 409
    assert gateway.admin.put(f"/alerts/{made['id']}", json=RULE | {"name": "Only one"}).status_code == 200
    assert gateway.admin.delete(f"/alerts/{made['id']}").status_code == 204
    assert gateway.admin.get(f"/alerts/{made['id']}").status_code == 404


@pytest.mark.browser
@pytest.mark.usefixtures("gateway")
def test_rule_is_created_with_the_keyboard_and_fires(browser: Any, secretive: tuple[Gateway, httpx.Client]) -> None:
    gateway, client = secretive
    with open_page(browser, gateway, client) as page:
        page.goto("/dashboard/alerts")
        check_everywhere(page)
        page.get_by_role("link", name="New alert").press("Enter")
        page.get_by_label("Name").focus()
        page.keyboard.type("Many blocked")
        page.get_by_label("Minimum number of requests").fill("5")
        page.get_by_label("Name").press("Enter")
        page.get_by_text("Alert created.").wait_for()
        now = datetime.now(UTC)
        write(gateway.database, [event(f"req_alert_{number}", ts=now, action="block") for number in range(8)])
        gateway.admin.put(f"/alerts/{gateway.admin.get('/alerts').json()['items'][0]['id']}", json=RULE)
        page.get_by_role("cell", name="firing").first.wait_for()
        page.goto("/dashboard/alerts")
        assert "blocked is 100.0%, above 50.0%" in page.get_by_role("region", name="History").first.inner_text()
        check_everywhere(page)
        page.get_by_role("link", name=re.compile("Many blocked")).click()
        check_everywhere(page)
        page.get_by_text("Delete…").click()
        page.get_by_role("button", name="Delete alert").click()
        page.get_by_text("No alerts yet").wait_for()
