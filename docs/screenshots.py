"""Takes screenshots of every dashboard page, light and dark, on a desktop and on a phone, and saves them in
``docs/images``: ``python -m docs.screenshots [--only NAME]``.

Starts the demo's gateway, plays its walkthrough and adds a week of invented requests. Needs the extra ``browser`` and
Chromium.
"""

import argparse
import asyncio
import base64
import io
import os
import random
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, sync_playwright

from app.cli.demo.tour import Stage, stage
from app.cli.terminal import Screen
from app.db.database import Database
from app.events.records import RequestEvent, RequestRow
from app.events.storage.writer import EventWriter
from app.settings import Settings
from policies.types import Action, Decision, Phase

FOLDER = Path(__file__).parent / "images"
_SIZES = {"desktop": (1280, 860), "phone": (390, 844)}
_QUALITY = 62
_LARGEST = 2_000_000
_TIMEOUT_MS = 120_000
_REQUESTS = 1_800
_TRIES = 10
_WEEK = timedelta(days=7)


def pages(client: httpx.Client) -> dict[str, str]:
    """The path of each page, by the name of its screenshot."""
    policies = client.get("/admin/v1/policies", params={"limit": 200}).json()["items"]
    policy = next(policy["id"] for policy in policies if "leaflets" in policy["name"])
    blocked = client.get("/admin/v1/requests", params={"agent": "leaflet-desk", "action": "block"}).json()["items"]
    made = next(request["request_id"] for request in blocked if request["key_prefix"] != _KEY)
    return {
        "overview": "?span=week",
        "requests": "requests",
        "trace": f"requests/{made}",
        "policies": "policies",
        "policy": f"policies/{policy}",
        "policy-form": f"policies/{policy}/edit",
        "policy-versions": f"policies/{policy}/versions",
        "runs": "runs",
        "calibration": "calibration",
        "review": "review",
        "alerts": "alerts",
        "playground": "playground",
        "keys": "keys",
        "budgets": "budgets",
        "access": "access",
        "system": "system",
    }


_REASONS = {
    "allow": "Grounding audit passed (2 citations)",
    "warn": "Unverifiable claims 60% (max 50%)",
    "block": "Claim contradicts source 'handbook.pdf'",
}
_KEY = "gl-history"
"""Marks invented requests."""


def history(policies: dict[str, str]) -> list[RequestEvent]:
    """A week of invented requests: more by day than by night, and some of them warned or blocked."""
    chance, now = random.Random(3), datetime.now(UTC)
    made = []
    while len(made) < _REQUESTS:
        ts = now - _WEEK * chance.random()
        if chance.random() > (1.0 if 7 <= ts.hour <= 18 else 0.25):
            continue
        agent, policy = chance.choice(
            [("leaflet-desk", "leaflets"), ("leave-desk", "leave desk"), ("machine-support", "machine support")]
        )
        action = chance.choices(["allow", "warn", "block"], [86, 9, 5])[0]
        trusted = chance.betavariate(9, 1) if action == "allow" else chance.betavariate(3, 3)
        verdict = {"allow": "supported", "warn": "has_unverifiable", "block": "has_contradictions"}[action]
        upstream, judge = chance.lognormvariate(6.6, 0.4), chance.lognormvariate(3.0, 0.5)
        named = next((id, name) for id, name in policies.items() if policy in name)
        row = RequestRow(
            request_id=f"req_{chance.getrandbits(96):024x}", ts=ts, api="chat", model="scripted-1",
            resolved_model=None, agent=agent, run_id=None, key_prefix=_KEY, stream=True,
            status="blocked" if action == "block" else "completed", http_status=200, action=action, verdict=verdict,
            trust_score=round(trusted, 3), documents=3, sentences=chance.randrange(1, 6),
            prompt_tokens=chance.randrange(200, 900), completion_tokens=chance.randrange(30, 200),
            usage_estimated=False, upstream_ms=upstream, judge_ms=judge,
            total_ms=upstream + judge + chance.lognormvariate(0.8, 0.4), finish_reason="stop", error=None,
        )  # fmt: skip
        code = {"allow": None, "warn": "GROUNDING_UNVERIFIABLE", "block": "GROUNDING_CONTRADICTION"}[action]
        decision = Decision(
            policy_id=named[0], policy_version=1, policy_name=named[1], category="grounding",
            phase=Phase.AFTER_WORKFLOW, action=Action(action), reason_code=code, metadata={}, latency_ms=0.2,
            reason=_REASONS[action],
        )  # fmt: skip
        made.append(RequestEvent(request=row, decisions=(decision,)))
    return sorted(made, key=lambda event: event.request.ts)


async def write(database: Path, events: list[RequestEvent]) -> None:
    log = Database(f"sqlite+aiosqlite:///{database}", busy_timeout_s=60.0)
    writer = EventWriter(log, journal_path=database.with_name("history.events"))
    await writer.start()
    for event in events:
        await writer.append(event)
    await writer.aclose()
    await log.aclose()


def prepare(running: Stage, client: httpx.Client) -> None:
    """Play the walkthrough, and add the data that the pages show, from requests to tokens."""
    with redirect_stdout(io.StringIO()):
        running.walkthrough(Screen()).run()
    policies = {policy["id"]: policy["name"] for policy in client.get("/admin/v1/policies?limit=200").json()["items"]}
    # In another thread, because Playwright runs an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(write(running.folder / "groundlane.db", history(policies)))).result()
    watched = next(id for id, name in policies.items() if "leaflets" in name)
    client.patch(f"/admin/v1/policies/{watched}", json={"rules": {"max_unverifiable_ratio": 0.25}})
    for name, limit in (("leaflet service", 600), ("leave portal", None)):
        client.post("/admin/v1/keys", json={"name": name, "models": ["scripted-*"], "requests_per_minute": limit})
    for agent, most in (("leaflet-desk", 20_000), ("leave-desk", 5_000)):
        budget = {"subject": "agent", "name": agent, "unit": "requests", "period": "month", "limit": most}
        client.post("/admin/v1/budgets", json=budget).raise_for_status()
    for name, metric, most in (("Many blocked replies", "blocked", 0.2), ("Contradictions", "contradicted", 0.1)):
        alert = {"name": name, "metric": metric, "threshold": most, "min_requests": 20}
        client.post("/admin/v1/alerts", json=alert).raise_for_status()
    for name, role in (("dashboard of the help desk", "viewer"), ("policy pipeline", "editor")):
        client.post("/admin/v1/tokens", json={"name": name, "role": role}).raise_for_status()


@contextmanager
def browsers(url: str, token: str) -> Iterator[Page]:
    """A signed-in page."""
    path = os.environ.get("GROUNDLANE_TEST_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=_TIMEOUT_MS
        )
        context = browser.new_context(base_url=url, reduced_motion="reduce")
        context.set_default_timeout(_TIMEOUT_MS)
        page = context.new_page()
        take(page, "sign-in", "sign-in")
        page.fill("input[name=token]", token)
        page.click("form.sign-in button")
        page.wait_for_url("**/dashboard/")
        yield page
        browser.close()


def take(page: Page, name: str, path: str) -> None:
    """Take four screenshots of a page."""
    for size, (width, height) in _SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        # The overview keeps a connection open, so waiting for an idle network would never end.
        page.goto(f"/dashboard/{path}", wait_until="load")
        for _ in range(_TRIES):
            if not page.get_by_text("Degraded").count():
                break
            page.reload(wait_until="load")  # on a busy machine the database check may time out
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            file = FOLDER / name / f"{size}-{scheme}.webp"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(_webp(page))
            print(f"{name}/{size}-{scheme}", flush=True)


def _webp(page: Page) -> bytes:
    session: Any = page.context.new_cdp_session(page)
    try:
        shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": _QUALITY})
    finally:
        session.detach()
    return base64.b64decode(shot["data"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression: take only pages whose names match")
    wanted = parser.parse_args()
    with stage(Settings(), port=0, folder=None) as running:
        headers = {"authorization": f"Bearer {running.token}"}
        with httpx.Client(base_url=running.url, headers=headers, timeout=120) as client:
            prepare(running, client)
            paths = pages(client)
        with browsers(running.url, running.token) as page:
            for name, path in paths.items():
                if re.search(wanted.only, name):
                    take(page, name, path)
    size = sum(file.stat().st_size for file in FOLDER.glob("*/*.webp"))
    print(f"{size / 1e6:.2f} MB")
    if size > _LARGEST:
        raise SystemExit(f"more than {_LARGEST / 1e6:.1f} MB: lower the quality")


if __name__ == "__main__":
    main()
