"""The policy pages without JavaScript: forms and the server's responses."""

import re
from html import unescape
from typing import Any

import httpx
import pytest

from app.dashboard.error_messages import readable
from app.dashboard.policies.form_fields import entries_of
from judges.types import Label
from policies.templates import templates
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import AGENT, FALSE, FINE, ask

POLICIES = "/dashboard/policies"


def form(category: str, rules: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The form data that a browser sends for such a policy."""
    return {**entries_of({"rules": rules or {}, **fields}, category), "category": category, "do": "save"}


def made(gateway: Gateway, category: str = "grounding", rules: dict[str, Any] | None = None, **fields: Any) -> Any:
    """A policy whose scope matches no request."""
    return gateway.policy(category, rules, scope={"agents": ["nobody"]}, **fields)


def stored(gateway: Gateway, policy_id: str) -> Any:
    return gateway.admin.get(f"/policies/{policy_id}").json()


def said_of(page: str, key: str) -> str:
    """The error message next to a field's input."""
    found = re.search(rf'id="f-{re.escape(key)}-wrong">(.*?)</p>', page)
    assert found, f"nothing is said of {key}"
    return unescape(found[1])


def test_policy_is_created_from_a_template(gateway: Gateway, client: httpx.Client) -> None:
    choice = client.get(f"{POLICIES}/new").text
    assert "/dashboard/policies/new?template=Customer%20support" in choice
    filled = client.get(f"{POLICIES}/new", params={"template": "Customer support"}).text
    assert re.search(r'name="rules.contradiction_action" value="block" checked', filled)
    rules = {"contradiction_action": "block", "min_citations": 0}
    sent = form("grounding", rules, name="made here", scope={"agents": ["nobody", "no-*"]})
    answer = client.post(f"{POLICIES}/new", data=sent)
    assert answer.status_code == 303, answer.text
    policy = stored(gateway, answer.headers["location"].partition("?")[0].rpartition("/")[2])
    assert (policy["name"], policy["scope"]["agents"]) == ("made here", ["nobody", "no-*"])
    assert {name: policy["rules"][name] for name in rules} == rules
    assert "made here" in client.get(POLICIES).text
    assert "Policy created." in client.get(answer.headers["location"]).text
    again = client.post(f"{POLICIES}/new", data=sent)
    assert again.status_code == 409
    assert "already" in said_of(again.text, "name")


def test_errors_are_shown_at_their_field_like_the_admin_apis(gateway: Gateway, client: httpx.Client) -> None:
    policy = made(gateway, "retrieval")
    url = f"{POLICIES}/{policy['id']}/edit"
    sent = form("retrieval", name=policy["name"]) | {
        "version": "1",
        "rules.min_chunks": "-1",
        "rules.max_single_source_ratio": "0,5",
        "rules.blocked_sources": ["fine", "</textarea><script>alert(1)</script>"],
        "canary_percent": "all",
    }
    answer = client.post(url, data=sent)
    assert answer.status_code == 422
    api = gateway.admin.patch(f"/policies/{policy['id']}", json={"rules": {"min_chunks": -1}}).json()
    assert said_of(answer.text, "rules.min_chunks") == readable(api["errors"][0]["msg"])
    assert "valid number" in said_of(answer.text, "rules.max_single_source_ratio")
    assert "valid integer" in said_of(answer.text, "canary_percent")
    assert 'value="0,5"' in answer.text
    assert "<script>alert" not in answer.text
    assert stored(gateway, policy["id"])["version"] == 1


@pytest.mark.parametrize(
    "start",
    ["template=Customer%20support", "template=Fresh%20documents", "category=retrieval", "like", "calibration"],
)
def test_new_policy_opens_in_shadow_mode_and_says_so(client: httpx.Client, gateway: Gateway, start: str) -> None:
    if start == "like":
        start = f"like={gateway.policy('retrieval', scope={'agents': ['nobody']}, mode='enforce')['id']}"
    if start == "calibration":
        start = client.get("/dashboard/calibration/draft?threshold=0.6").headers["location"].partition("?")[2]
    opened = client.get(f"/dashboard/policies/new?{start}").text
    assert "This policy starts in shadow mode" in opened
    (chosen,) = re.findall(r'name="mode" value="(\w+)"[^>]* checked', opened)
    assert chosen == "shadow"


def warnings_of(page: str) -> list[tuple[str, str]]:
    """The warnings in the form, as field and message."""
    found = page.partition('id="warnings"')[2].partition("</div>")[0]
    return [(key, unescape(text)) for key, text in re.findall(r'<a href="#f-([^"]+)">[^<]*</a>: (.*?)</li>', found)]


def test_rules_that_cannot_work_together_are_named_while_the_form_is_filled_in(
    gateway: Gateway, client: httpx.Client
) -> None:
    live = {"unjudged_action": "block", "stream_mode": "live", "min_citations": 0}
    sent = form("grounding", {**live, "reasoning_action": "drop"}, name="") | {"do": "check"}
    answer = client.post(f"{POLICIES}/new", data=sent)
    assert answer.status_code == 200
    ((key, message),) = warnings_of(answer.text)
    assert (key, message[:23]) == ("rules.unjudged_action", "With stream_mode 'live'")
    api = gateway.admin.post("/policies/validate", json={"name": "x", "category": "grounding", "rules": live}).json()
    assert [warning["msg"] for warning in api["warnings"]] == [message]

    wrong = client.post(f"{POLICIES}/new", data=sent | {"rules.reasoning_action": "pass"})
    assert warnings_of(wrong.text) == [
        ("rules.reasoning_action", "Must be 'drop' or 'judge' because unjudged_action is 'block'")
    ]
    policy = made(gateway, rules=live)
    assert [key for key, _ in warnings_of(client.get(f"{POLICIES}/{policy['id']}/edit").text)] == [key]
    assert warnings_of(client.get(f"{POLICIES}/new", params={"template": "Customer support"}).text) == []


def test_strict_template_can_be_saved_as_it_is(gateway: Gateway, client: httpx.Client) -> None:
    (template,) = (each for each in templates() if each["name"] == "Medical Q&A")
    sent = form("grounding", template["rules"], name="medical", scope={"agents": ["nobody"]})
    answer = client.post(f"{POLICIES}/new", data=sent)
    assert answer.status_code == 303, answer.text


def test_stale_edit_is_refused_and_both_versions_are_shown(gateway: Gateway, client: httpx.Client) -> None:
    policy = made(gateway, rules={"min_citations": 1, "max_claims": 5}, priority=1)
    url = f"{POLICIES}/{policy['id']}/edit"
    gateway.admin.patch(f"/policies/{policy['id']}", json={"priority": 7, "rules": {"min_citations": 2}})
    scope = {"agents": ["nobody"]}
    ours = form("grounding", {"min_citations": 3, "max_claims": 6}, name=policy["name"], scope=scope, priority=1)
    answer = client.post(url, data=ours | {"version": "1"})
    assert answer.status_code == 412
    conflict = unescape(re.sub(r"<[^>]+>", " ", answer.text.partition('id="conflict"')[2].partition("</section>")[0]))
    told = " ".join(conflict.split())
    assert "priority version 2 7 yours 1 theirs adopted" in told
    assert "rules.min_citations version 2 2 yours 3 both changed, yours kept" in told
    assert "rules.max_claims version 2 5 yours 6 yours kept" in told
    assert 'name="version" value="2"' in answer.text
    assert re.search(r'name="priority" value="7"', answer.text)
    assert re.search(r'name="rules.min_citations" value="3"', answer.text)
    assert stored(gateway, policy["id"])["version"] == 2
    merged = ours | {"version": "2", "priority": "7"}
    assert client.post(url, data=merged).status_code == 303
    saved = stored(gateway, policy["id"])
    assert (saved["version"], saved["priority"], saved["rules"]["min_citations"]) == (3, 7, 3)


def test_simulating_lists_changes_and_saves_nothing(
    gateway: Gateway, client: httpx.Client, played: dict[str, str]
) -> None:
    rules = {"unverifiable_action": "block", "max_unverifiable_ratio": 0.1, "min_citations": 0}
    sent = form("grounding", rules, name="stricter", scope={"agents": [AGENT]}) | {"do": "simulate", "limit": "1000"}
    answer = client.post(f"{POLICIES}/new", data=sent)
    assert answer.status_code == 200
    outcome = answer.text.partition('id="simulated"')[2].partition("</section>")[0]
    assert f"/dashboard/requests/{played['open']}" in outcome
    assert f"/dashboard/requests/{played['fine']}" not in outcome
    assert "Unverifiable claims 50% (max 10%)" in outcome
    assert "stricter" not in [policy["name"] for policy in gateway.admin.get("/policies").json()["items"]]


def test_simulating_reads_the_requests_of_the_chosen_agent(
    gateway: Gateway, client: httpx.Client, played: dict[str, str]
) -> None:
    rules = {"unverifiable_action": "block", "max_unverifiable_ratio": 0.1, "min_citations": 0}
    sent = form("grounding", rules, name="stricter") | {"do": "simulate", "limit": "100"}

    def simulated(agent: str) -> str:
        answer = client.post(f"{POLICIES}/new", data=sent | {"agent": agent})
        assert answer.status_code == 200
        chosen = answer.text.partition('name="agent"')[2].partition("</select>")[0]
        assert (f'<option value="{agent}" selected>of {agent}</option>' in chosen) is bool(agent)
        return answer.text.partition('id="simulated"')[2].partition("</section>")[0]

    def logged(**filter: str) -> int:
        answer = gateway.admin.get("/stats", params={"since": "2025-01-01T00:00:00Z", **filter})
        return int(answer.json()["totals"]["requests"])

    assert f"Covers the newest 100 of {logged()} requests in the event log." in simulated("")
    of_agent = simulated(AGENT)
    matching = logged(agent=AGENT)
    read = f"{matching} of" if matching < 100 else "the newest 100 of"
    assert f"Covers {read} {matching} requests in the event log of the agent <q>{AGENT}</q>." in of_agent
    assert f"/dashboard/requests/{played['open']}" in of_agent
    assert f"/dashboard/requests/{played['open']}" not in simulated("leaflet-desk")
    assert "Covers 0 of 0 requests" in simulated("nobody-asks")
    refused = client.post(f"{POLICIES}/new", data=sent | {"agent": "a\tb"})
    assert (refused.status_code, 'id="simulated"' in refused.text) == (422, False)


def test_switches_apply_only_to_the_version_shown(gateway: Gateway, client: httpx.Client) -> None:
    policy = made(gateway)
    url = f"{POLICIES}/{policy['id']}"
    off = client.post(f"{url}/enabled", data={"version": "1", "enabled": "", "back": "list"})
    assert off.headers["location"] == f"{POLICIES}?done=switched"
    assert stored(gateway, policy["id"])["enabled"] is False
    stale = client.post(f"{url}/enabled", data={"version": "1", "enabled": "on"})
    assert stale.status_code == 412
    assert "Not saved: policy " in stale.text
    canary = client.post(f"{url}/rollout", data={"version": "2", "mode": "enforce", "canary_percent": "10"})
    assert canary.status_code == 303
    assert (stored(gateway, policy["id"])["canary_percent"], stored(gateway, policy["id"])["version"]) == (10, 3)
    wrong = client.post(f"{url}/rollout", data={"version": "3", "mode": "enforce", "canary_percent": "most"})
    assert (wrong.status_code, "canary_percent: " in wrong.text) == (422, True)


def test_enforced_policy_is_switched_to_shadow_only_after_confirmation(gateway: Gateway, client: httpx.Client) -> None:
    policy = gateway.policy("grounding", scope={"agents": ["to-shadow"]})
    url = f"{POLICIES}/{policy['id']}"
    fields = {"version": "1", "mode": "shadow", "canary_percent": "100"}
    asked = client.post(f"{url}/rollout", data=fields)
    assert (asked.status_code, stored(gateway, policy["id"])["mode"]) == (409, "enforce")
    told = asked.text.partition('id="asked"')[2].partition("</section>")[0]
    assert "No other grounding policy with this scope is enforced." in told
    assert "Save as a shadow copy" in told
    assert client.post(f"{url}/rollout", data=fields | {"version": "2"}).status_code == 412
    other = gateway.policy("grounding", scope={"agents": ["to-shadow"]})
    assert "No other" not in client.post(f"{url}/rollout", data=fields).text.partition('id="asked"')[2]
    assert client.post(f"{url}/rollout", data=fields | {"confirmed": "yes"}).status_code == 303
    assert stored(gateway, policy["id"])["mode"] == "shadow"
    shown = client.get(url).text
    assert f'action="{url}/rollout"' not in shown
    assert "To enforce both policies together" in shown
    gateway.admin.delete(f"/policies/{other['id']}")
    assert f'action="{url}/rollout"' in client.get(url).text
    back = client.post(f"{url}/rollout", data={"version": "2", "mode": "enforce", "canary_percent": "100"})
    assert back.status_code == 303
    assert "contradiction: <strong>warned</strong>" in client.get(url).text


def test_shadow_copy_is_compared_and_replaces_the_rules_in_force(gateway: Gateway, client: httpx.Client) -> None:
    policy = gateway.policy("grounding", {"min_citations": 0}, scope={"agents": ["on-trial"]}, priority=3)
    rules = {"min_citations": 0, "contradiction_action": "block"}
    sent = form("grounding", rules, name=policy["name"], scope={"agents": ["on-trial"]}) | {"do": "trial"}
    copies = []
    for name in (f"{policy['name']} (trial)", f"{policy['name']} (trial 2)"):
        answer = client.post(f"{POLICIES}/{policy['id']}/edit", data={**sent, "version": "1"})
        assert answer.status_code == 303
        url, _, done = answer.headers["location"].partition("?")
        copies.append(stored(gateway, url.rpartition("/")[2]))
        assert (copies[-1]["name"], copies[-1]["mode"], done) == (name, "shadow", "done=trial")
    copy = copies[0]
    assert stored(gateway, policy["id"])["version"] == 1
    assert "X-Groundlane-Agent: on-trial" in client.get(f"{POLICIES}/{copy['id']}").text
    gateway.judge.labels |= {"40 days": Label.CONTRADICTED}
    requests = [ask(gateway, text, grounding={"agent": "on-trial"}) for text in (FINE, f"{FINE} {FALSE}")]
    for request_id in requests:
        gateway.trace(request_id)
    shown = client.get(f"{POLICIES}/{copy['id']}").text
    assert re.search(r"Different from .* on 1 of 2 requests", shown)
    compared = shown.partition('id="compared"')[2].partition("</section>")[0]
    assert [request_id in compared for request_id in requests] == [False, True]

    fields = {"version": "1", "other": policy["id"], "other_version": "1"}
    for wrong, status in (({"version": "2"}, 412), ({"other_version": "2"}, 412), ({"other": copies[1]["id"]}, 409)):
        answer = client.post(f"{POLICIES}/{copy['id']}/replace", data=fields | wrong)
        assert (answer.status_code, stored(gateway, policy["id"])["version"]) == (status, 1)
    answer = client.post(f"{POLICIES}/{copy['id']}/replace", data=fields)
    assert answer.headers["location"] == f"{POLICIES}/{policy['id']}?done=replaced"
    now = stored(gateway, policy["id"])
    assert (now["version"], now["mode"], now["priority"], now["name"]) == (2, "enforce", 3, policy["name"])
    assert now["rules"] == copy["rules"]
    assert gateway.admin.get(f"/policies/{copy['id']}").status_code == 404


def figure(page: str, name: str) -> tuple[str, str]:
    """A figure on a page, and its note."""
    found = re.search(rf">{re.escape(name)}(?:</a>)?</dt><dd>(.*?)</dd>(?:<dd class=\"note\">(.*?)</dd>)?", page)
    assert found, name
    return found[1], found[2] or ""


def test_request_is_counted_and_listed_once_for_decisions_in_several_phases(
    gateway: Gateway, client: httpx.Client
) -> None:
    rules = {"min_citations": 0, "contradiction_action": "flag"}
    policy = gateway.policy("grounding", rules, scope={"agents": ["counted"]})
    shadow = gateway.policy("grounding", rules, scope={"agents": ["counted"]}, mode="shadow")
    gateway.judge.labels |= {"40 days": Label.CONTRADICTED}
    flagged = ask(gateway, f"{FINE} {FALSE}", grounding={"agent": "counted"})
    fine = ask(gateway, FINE, grounding={"agent": "counted"})
    decided = [
        [each["phase"] for each in gateway.trace(request_id).decisions if each["policy_id"] == policy["id"]]
        for request_id in (flagged, fine)
    ]
    assert min(map(len, decided)) > 1
    shown = client.get(f"{POLICIES}/{policy['id']}").text
    assert figure(shown, "Requests, last 24 hours")[0] == "2"
    assert figure(shown, "Blocked by this policy") == ("0", "")
    assert figure(shown, "Warned or dropped by this policy") == ("1", "")
    in_shadow = client.get(f"{POLICIES}/{shadow['id']}").text
    assert figure(in_shadow, "Warned or dropped by this policy") == ("0", "1 more in shadow")
    listed = shown.partition('aria-labelledby="flagged"')[2].partition("</section>")[0]
    assert listed.count(f'href="/dashboard/requests/{flagged}"') == 1
    # The number links to a list of as many requests, and the list of policies has the same numbers.
    requests = f"/dashboard/requests?policy={policy['id']}&span=day"
    assert f'href="{requests.replace("&", "&amp;")}"' in shown
    assert client.get(requests).text.count('class="whole-row"') == 2
    row = client.get(POLICIES).text.partition(f'data-policy="{policy["name"]}"')[2].partition("</li>")[0]
    assert "1 warned</span>" in row
    assert f'href="{requests.replace("&", "&amp;")}">2 requests</a>' in row
    assert "decided on 2 requests" in client.get(f"{POLICIES}/{policy['id']}/delete").text


@pytest.mark.parametrize(
    "change",
    [{"scope": {"agents": ["other"]}}, {"mode": "enforce"}, {"category": "retrieval", "rules": {}}],
    ids=lambda change: next(iter(change)),
)
def test_only_a_shadow_policy_of_the_same_kind_and_scope_can_replace_another(
    gateway: Gateway, client: httpx.Client, change: dict[str, Any]
) -> None:
    scope = {"agents": ["replaceable"]}
    policy = gateway.policy("grounding", scope=scope)
    copy = gateway.policy(**{"category": "grounding", "scope": scope, "mode": "shadow", **change})
    assert 'id="compared"' not in client.get(f"{POLICIES}/{copy['id']}").text
    fields = {"version": "1", "other": policy["id"], "other_version": "1"}
    assert client.post(f"{POLICIES}/{copy['id']}/replace", data=fields).status_code == 409
    assert stored(gateway, policy["id"])["version"] == 1
    assert stored(gateway, copy["id"])["version"] == 1


def test_versions_can_be_compared_and_rolled_back_to(gateway: Gateway, client: httpx.Client) -> None:
    policy = made(gateway, rules={"abstention_response": "Ask a doctor."})
    patch = {"rules": {"abstention_response": "Ask a pharmacist."}, "priority": 3}
    gateway.admin.patch(f"/policies/{policy['id']}", json=patch)
    url = f"{POLICIES}/{policy['id']}"
    listed = client.get(f"{url}/versions", params={"old": 1, "new": 2}).text
    assert "From version 1 to version 2" in listed
    assert re.search(r"<del>doctor\.</del>|<del>Ask a doctor\.</del>", listed)
    assert "Roll back to version 1" in listed
    assert "Roll back to version 2" not in listed
    stale = client.post(f"{url}/rollback", data={"to": "1", "version": "1"})
    assert (stale.status_code, "Not saved: policy " in stale.text) == (412, True)
    assert client.post(f"{url}/rollback", data={"to": "1", "version": "2"}).status_code == 303
    now = stored(gateway, policy["id"])
    assert (now["version"], now["priority"]) == (3, 0)
    assert now["rules"]["abstention_response"] == "Ask a doctor."


def test_deleting_asks_first_and_versions_can_be_restored(gateway: Gateway, client: httpx.Client) -> None:
    policy = made(gateway, rules={"max_claims": 77})
    url = f"{POLICIES}/{policy['id']}"
    assert "Delete policy" in client.get(f"{url}/delete").text
    assert client.post(f"{url}/delete", data={"version": "9"}).status_code == 412
    edited = form("grounding", name=policy["name"]) | {"version": "1"}
    assert client.post(f"{url}/delete", data={"version": "1"}).status_code == 303
    assert client.get(url).status_code == 404
    late = client.post(f"{url}/edit", data=edited)
    assert (late.status_code, "has deleted this policy" in late.text) == (404, True)
    versions = client.get(f"{url}/versions").text
    assert f"new?like={policy['id']}&amp;version=1" in versions
    assert "Roll back" not in versions
    copy = client.get(f"{POLICIES}/new", params={"like": policy["id"], "version": 1}).text
    assert 'name="rules.max_claims" value="77"' in copy


def test_hostile_name_is_escaped_on_every_page(gateway: Gateway, client: httpx.Client) -> None:
    name = "\u202e<script>alert(1)</script>\"'{{7*7}}"
    policy = made(gateway, name=name, rules={"abstention_response": "<img src=x onerror=alert(1)>" * 50})
    gateway.admin.patch(f"/policies/{policy['id']}", json={"rules": {"abstention_response": "</details>"}})
    url = f"{POLICIES}/{policy['id']}"
    for path in (POLICIES, url, f"{url}/edit", f"{url}/versions", f"{url}/delete", "/dashboard/calibration"):
        text = client.get(path).text
        assert "&lt;script&gt;alert(1)" in text, path
        assert "<script>alert" not in text
        assert "<img src=x" not in text
    gateway.admin.delete(f"/policies/{policy['id']}")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/pol_0", 404),
        ("/pol_0/edit", 404),
        ("/pol_0/versions", 404),
        ("/pol_0/delete", 404),
        ("/new?template=none", 404),
        ("/new?category=none", 422),
        ("/new?like=pol_0", 404),
        ("/new?like=pol_0&version=99999999999999999999", 422),
        ("?category=none&after=zzz", 200),
        ("?done=<script>", 200),
    ],
)
def test_unknown_policies_are_error_pages(client: httpx.Client, path: str, status: int) -> None:
    answer = client.get(POLICIES + path)
    assert answer.status_code == status
    assert "<h1" in answer.text
    assert "<script>" not in answer.text
