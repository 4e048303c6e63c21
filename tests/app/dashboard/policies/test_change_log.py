"""Who changed a policy, as the overview and the list of versions say."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from app.dashboard.policies.change_log import authors_in
from app.policy_admin.policy_document import PolicyVersion
from tests.support.gateways.live_gateway import Gateway

START = datetime(2026, 5, 5, tzinfo=UTC)
DOCUMENT: dict[str, Any] = {
    "name": "Refunds",
    "category": "grounding",
    "scope": {},
    "enabled": True,
    "priority": 0,
    "mode": "enforce",
    "canary_percent": 100,
}


def version(number: int, rules: dict[str, Any], minutes: int, change: str = "update") -> PolicyVersion:
    ts = START + timedelta(minutes=minutes)
    return PolicyVersion(policy_id="pol", version=number, change=change, ts=ts, rules=rules, **DOCUMENT)


def entry(actor: str, rules: dict[str, Any] | None, minutes: int, change: str = "update") -> dict[str, Any]:
    after = None if rules is None else {**DOCUMENT, "rules": rules}
    ts = START + timedelta(minutes=minutes)
    return {"ts": ts, "actor": actor, "action": f"policy.{change}", "after": after}


def test_each_version_has_the_author_of_its_own_entry() -> None:
    strict, lax = {"min_coverage": 0.9}, {"min_coverage": 0.1}
    versions = [version(3, strict, 20), version(2, lax, 10), version(1, strict, 0, "create")]
    logged = [entry("carl", strict, 20), entry("ben", lax, 10), entry("anna", strict, 0, "create")]
    assert authors_in(logged, versions) == {3: "carl", 2: "ben", 1: "anna"}


def test_version_without_an_entry_has_no_author() -> None:
    versions = [version(2, {"min_coverage": 0.2}, 10), version(1, {}, 0)]
    assert authors_in([entry("anna", {"min_coverage": 0.5}, 10), entry("ben", {}, -1)], versions) == {}
    assert authors_in([entry("ben", None, 11, "delete")], [version(3, {}, 11, "delete")]) == {3: "ben"}


def test_overview_and_the_versions_say_who_changed_a_policy(client: httpx.Client, gateway: Gateway) -> None:
    document = {"name": "Refunds <b>", "category": "grounding", "scope": {"agents": ["nobody"]}, "rules": {}}
    made = gateway.admin.post("/policies", json=document).json()["id"]
    gateway.admin.patch(f"/policies/{made}", json={"rules": {"min_coverage": 0.25}})
    shown = client.get("/dashboard/", params={"span": "hour", "policy": made}).text
    assert "Policy and model changes" in shown
    assert f'href="/dashboard/policies/{made}/versions">Refunds &lt;b&gt;</a>' in shown
    assert "changed: <code>min_coverage</code> from" in shown
    assert "to 0.25" in shown
    assert shown.count(">token:bootstrap</td>") == 2
    assert client.get(f"/dashboard/policies/{made}/versions").text.count("token:bootstrap, ") == 2
    before = client.get("/dashboard/", params={"to": "2026-01-01T00:00", "policy": made}).text
    assert "Policy and model changes" not in before
    gateway.admin.delete(f"/policies/{made}")
