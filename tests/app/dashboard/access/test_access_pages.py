"""The pages for tokens, sessions and budgets."""

import html
import re
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from app.dashboard.templating import SECTIONS
from tests.support.gateways.browser import check_everywhere, csrf_of, sign_in
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import event, write

TOKEN = re.compile(r"gla-[a-z2-7]{8}-[A-Za-z0-9_-]{43}")
LINK = re.compile(r'href="(/dashboard/[^"#]*)')
FORM = re.compile(r'<form[^>]* method="post" action="(/dashboard/[^"]*)"[^>]*>(.*?)</form>', re.S)
BUTTON = re.compile(r"<button([^>]*)>")


def test_token_is_shown_once_and_signs_in_until_it_is_revoked(client: httpx.Client, gateway: Gateway) -> None:
    made = client.post("/dashboard/access", data={"name": "anna <b>", "role": "viewer", "expires_in_days": "30"})
    assert made.status_code == 201
    (token,) = set(TOKEN.findall(made.text))
    listed = client.get("/dashboard/access").text
    assert token not in listed
    assert "anna &lt;b&gt;" in listed
    again = client.post("/dashboard/access", data={"name": "anna <b>", "role": "viewer"})
    assert (again.status_code, "already exists" in again.text) == (409, True)
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=30) as hers:
        form = hers.get("/dashboard/sign-in").text
        hers.post("/dashboard/sign-in", data={"csrf": csrf_of(form), "token": token})
        page = hers.get("/dashboard/sessions")
        assert (page.status_code, page.text.count("(this session)")) == (200, 1)
        assert "bootstrap" not in page.text
        assert "/dashboard/access" not in page.text
        assert "Create a budget" not in hers.get("/dashboard/budgets").text
        (stored,) = [each for each in gateway.admin.get("/tokens").json()["items"] if each["name"] == "anna <b>"]
        assert client.post(f"/dashboard/access/{stored['id']}/revoke").status_code == 303
        assert hers.get("/dashboard/sessions").status_code == 303
    assert stored["prefix"] in client.get("/dashboard/access", params={"revoked": "true"}).text


@pytest.mark.parametrize(
    ("field", "value"), [("name", ""), ("role", "owner"), ("expires_in_days", "soon"), ("expires_in_days", "0")]
)
def test_errors_of_a_token_are_shown(client: httpx.Client, field: str, value: str) -> None:
    answer = client.post("/dashboard/access", data={"name": "fine", "role": "viewer", field: value})
    assert answer.status_code == 422


def test_admin_can_end_sessions_of_other_users(client: httpx.Client, gateway: Gateway) -> None:
    token = gateway.admin.post("/tokens", json={"name": "ben", "role": "viewer"}).json()["token"]
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=30) as his, sign_in(gateway) as admin:
        form = his.get("/dashboard/sign-in").text
        his.post("/dashboard/sign-in", data={"csrf": csrf_of(form), "token": token})
        (session,) = [each for each in gateway.admin.get("/sessions").json()["items"] if each["actor"] == "token:ben"]
        csrf = csrf_of(his.get("/dashboard/sessions").text)
        other = next(each for each in gateway.admin.get("/sessions").json()["items"] if each["actor"] != "token:ben")
        stolen = his.post(f"/dashboard/sessions/{other['id']}/end", data={"csrf": csrf})
        assert stolen.status_code == 404
        assert admin.post(f"/dashboard/sessions/{session['id']}/end").status_code == 303
        assert his.get("/dashboard/sessions").status_code == 303


def test_viewer_is_offered_only_what_the_role_permits(
    client: httpx.Client, gateway: Gateway, played: dict[str, str]
) -> None:
    rules = {"name": "For viewers", "category": "grounding", "rules": {}, "scope": {"agents": ["nobody"]}}
    policy = gateway.admin.post("/policies", json=rules).json()["id"]
    key = gateway.admin.post("/keys", json={"name": "for viewers"}).json()
    pages = [section.path for section in SECTIONS if section.role == "viewer"]
    pages += [f"/dashboard/policies/{policy}", f"/dashboard/policies/{policy}/versions"]
    pages += [f"/dashboard/keys/{key['id']}", f"/dashboard/requests/{played['false']}"]
    token = gateway.admin.post("/tokens", json={"name": "vera", "role": "viewer"}).json()["token"]
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=30) as viewer:
        form = viewer.get("/dashboard/sign-in").text
        viewer.post("/dashboard/sign-in", data={"csrf": csrf_of(form), "token": token})
        links, forms = set(), set()
        for path in pages:
            shown = viewer.get(path)
            assert shown.status_code == 200, path
            links |= {html.unescape(url) for url in LINK.findall(shown.text) if "?" not in url or "/new" in url}
            forms |= {
                html.unescape(url)
                for url, content in FORM.findall(shown.text)
                if any(" disabled" not in button for button in BUTTON.findall(content))
            }
        assert [url for url in links if viewer.get(url).status_code == 403] == []
        # The role is checked before the CSRF token, which is missing here, so that nothing changes.
        assert [url for url in forms if "requires the role" in viewer.post(url).text] == []
    assert f'action="/dashboard/policies/{policy}/rollout"' in client.get(f"/dashboard/policies/{policy}").text
    gateway.admin.delete(f"/policies/{policy}")


def test_budget_is_created_changed_and_deleted(client: httpx.Client, gateway: Gateway) -> None:
    filled = {"subject": "agent", "name": "<desk>", "unit": "cost", "period": "month", "limit": "12.5"}
    assert client.post("/dashboard/budgets", data=filled).status_code == 303
    (made,) = gateway.admin.get("/budgets").json()["items"]
    assert (made["limit"], made["unit"], made["uncounted"]) == (12.5, "cost", "block")
    listed = client.get("/dashboard/budgets").text
    assert ("&lt;desk&gt;" in listed, "$12.50" in listed) == (True, True)
    assert client.post("/dashboard/budgets", data=filled).status_code == 409
    assert client.post(f"/dashboard/budgets/{made['id']}", data={"limit": "none"}).status_code == 422
    assert client.post(f"/dashboard/budgets/{made['id']}", data={"limit": "20"}).status_code == 303
    assert gateway.admin.get(f"/budgets/{made['id']}").json()["limit"] == 20
    assert client.post(f"/dashboard/budgets/{made['id']}/delete").status_code == 303
    assert gateway.admin.get("/budgets").json()["items"] == []


def test_cost_budget_that_would_reject_recent_requests_asks_first(client: httpx.Client, gateway: Gateway) -> None:
    now = datetime.now(UTC)
    models = ["gpt-4o-mini", "in-house", "in-house", "in-house"]
    seeded = [
        event(f"req_budget_{at}", ts=now, agent="spender", key_prefix="gl-spends", model=model)
        for at, model in enumerate(models)
    ]
    write(gateway.database, seeded)
    filled = {"subject": "agent", "name": "spender", "unit": "cost", "period": "month", "limit": "20"}
    asked = client.post("/dashboard/budgets", data=filled)
    assert asked.status_code == 409
    named = re.findall(r"<li>(.*?)</li>", asked.text.partition('id="rejected"')[2].partition("</ul>")[0])
    assert named == ["in-house: 3 requests in the last 30 days"]
    confirmed = html.unescape(re.findall(r'name="confirmed" value="([^"]*)"', asked.text)[0])
    assert gateway.admin.get("/budgets").json()["items"] == []
    other = client.post("/dashboard/budgets", data=filled | {"confirmed": "agent other"})
    assert other.status_code == 409
    for change in ({"confirmed": confirmed}, {"uncounted": "allow"}, {"unit": "tokens"}):
        made = client.post("/dashboard/budgets", data=filled | change)
        assert (made.status_code, made.headers["location"]) == (303, "/dashboard/budgets?done=created")
        (budget,) = gateway.admin.get("/budgets").json()["items"]
        gateway.admin.delete(f"/budgets/{budget['id']}")


def test_key_of_a_budget_is_chosen_by_name(client: httpx.Client, gateway: Gateway) -> None:
    key = gateway.admin.post("/keys", json={"name": "Mobile <app>"}).json()
    filled = {"subject": "key", "name": "Mobile <app>", "unit": "requests", "period": "day", "limit": "5"}
    assert client.post("/dashboard/budgets", data=filled).status_code == 303
    (budget,) = gateway.admin.get("/budgets").json()["items"]
    assert budget["name"] == key["prefix"]
    listed = client.get("/dashboard/budgets").text
    assert re.search(rf'key Mobile &lt;app&gt; <span class="mono">{key["prefix"]}</span>', listed)
    assert '<option value="Mobile &lt;app&gt;">' in listed
    gateway.admin.delete(f"/budgets/{budget['id']}")
    other = gateway.admin.post("/keys", json={"name": "Mobile <app>"}).json()
    ambiguous = client.post("/dashboard/budgets", data=filled)
    assert (ambiguous.status_code, "Enter the prefix of one of them" in ambiguous.text) == (409, True)
    for each in (key, other):
        gateway.admin.delete(f"/keys/{each['id']}")


@pytest.mark.parametrize(
    ("field", "value"), [("name", ""), ("limit", "0"), ("limit", "1.5"), ("limit", "many"), ("unit", "hours")]
)
def test_errors_of_a_budget_are_shown(client: httpx.Client, field: str, value: str) -> None:
    filled = {"subject": "agent", "name": "fine", "unit": "requests", "period": "day", "limit": "5", field: value}
    answer = client.post("/dashboard/budgets", data=filled)
    assert answer.status_code == 422
    if field != "unit":
        assert re.search(rf'id="f-{field}"[^>]*aria-invalid="true"', answer.text)


def test_pages_are_accessible(page: Any, gateway: Gateway) -> None:
    gateway.admin.post("/tokens", json={"name": "carol", "role": "editor"})
    made = gateway.admin.post(
        "/budgets", json={"subject": "agent", "name": "desk", "unit": "tokens", "period": "day", "limit": 1000}
    ).json()
    for path in ("access", "sessions", "budgets"):
        page.goto(f"/dashboard/{path}")
        check_everywhere(page)
    gateway.admin.delete(f"/budgets/{made['id']}")
