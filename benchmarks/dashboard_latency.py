"""Measures the dashboard's pages and the admin API's lists on a database filled by ``benchmarks.fill_event_log`` or
``benchmarks.seed_traffic``.

    python -m benchmarks.dashboard_latency URL [--runs N] [--only TEXT] [--database-pid PID]

Starts a gateway in a separate process and requests one page after another over loopback. The first request to each page
isn't measured. Reports the time from each request to the last byte of its response, and the CPU time that the gateway's
process spent on it. ``--database-pid`` is the main process of a PostgreSQL server on this machine; the CPU time of all
its processes is then reported too. Other work on the machine hardly affects the CPU time.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import quote

import httpx

from benchmarks.latency import fetched, started
from benchmarks.soak import free_port

_TOKEN = "the-token-of-the-benchmark"  # the gateway runs only during the benchmark
_BAR_MS = 300.0
_TICK_S = 0.01
"""Linux counts the CPU time of processes in units of this many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Values from the database, for use in requests. The agent ``rare`` has the fewest requests; all other values have
    many."""

    request_id: str
    old_request_id: str
    run_id: str
    agent: str
    rare: str
    model: str
    key: str
    policy: str
    code: str


def known(client: httpx.Client) -> Known:
    """Look up the values to use in requests."""

    def items(path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = client.get(f"/admin/v1/{path}").json()["items"]
        return found

    month = f"since={datetime.now(UTC) - timedelta(days=90):%Y-%m-%dT%H:%M:%SZ}"
    stats = {by: client.get(f"/admin/v1/stats?{month}&by={by}").json()["groups"] for by in ("agent", "model", "policy")}
    newest, old = items("requests?limit=500"), items(f"requests?until={_ago(10)}&limit=1") or items("requests?limit=1")
    codes = stats["policy"][0]["reason_codes"] or {"NONE": 0}
    runs = [run["run_id"] for run in items("runs?limit=1")] + [item["run_id"] for item in newest if item["run_id"]]
    return Known(
        request_id=newest[0]["request_id"],
        old_request_id=old[0]["request_id"],
        run_id=next(iter(runs), "none"),
        agent=quote(stats["agent"][0]["key"]),
        rare=quote(stats["agent"][-1]["key"]),
        model=quote(stats["model"][-1]["key"]),
        key=quote(next((item["key_prefix"] for item in newest if item["key_prefix"]), "none")),
        policy=stats["policy"][0]["policy_id"],
        code=max(codes, key=lambda code: int(codes[code])),
    )


def _ago(days: float) -> str:
    return f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"


def questions(of: Known) -> Mapping[str, str]:
    """Return the requests, keyed by their names in the table."""
    return {**_lists(of), **_statistics(of), **_other_lists(of), **_request_pages(of), **_other_pages(of)}


def _lists(of: Known) -> Mapping[str, str]:
    return {
        f"{name} {label}": f"/admin/v1/{name}?{query}"
        for name in ("requests", "events")
        for label, query in {
            "": "",
            "of 15 days ago": f"until={_ago(15)}",
            "agent": f"agent={of.rare}",
            "agent, model, block": f"agent={of.rare}&model={of.model}&action=block",
            "agent unknown": "agent=nobody",
            "action block": "action=block",
            "policy": f"policy={of.policy}",
            "policy, block, a day": f"policy={of.policy}&action=block&since={_ago(1)}",
            "policy unknown": "policy=pol_99",
            "policy, agent unknown": f"policy={of.policy}&agent=nobody",
            "phase": "phase=after_workflow",
            "phase unused": "phase=mid_execution",
            "reason code": f"reason_code={of.code}",
            "reason code unknown": "reason_code=NONE",
            "shadow": "shadow=true",
            "policy in no shadow": f"policy={of.policy}&shadow=true",
            "run": f"run_id={of.run_id}",
            "500": "limit=500",
        }.items()
    }


def _statistics(of: Known) -> Mapping[str, str]:
    quarter = f"since={_ago(90)}"
    stats = {
        "a day": "",
        "a day by minute": f"since={_ago(1)}&bucket=minute",
        "90 days": quarter,
        "80 days by hour": f"since={_ago(80)}&bucket=hour",
        "90 days by day, agents": f"{quarter}&bucket=day&by=agent",
        "90 days, models": f"{quarter}&by=model",
        "90 days, policies": f"{quarter}&by=policy",
        "90 days, agent": f"{quarter}&agent={of.agent}&bucket=day",
        "90 days, block": f"{quarter}&action=block&bucket=day",
        "90 days, policy": f"{quarter}&policy={of.policy}&bucket=day",
        "30 days, run": f"since={_ago(30)}&run_id={of.run_id}",
        "a day, reason code": f"since={_ago(1)}&reason_code={of.code}",
        "90 days, phase": f"{quarter}&phase=after_workflow",
        "90 days, reason code": f"{quarter}&reason_code={of.code}",
        "90 days, shadow": f"{quarter}&shadow=false",
    }
    usage = {
        "a day by hour": "bucket=hour",
        "90 days, models": f"{quarter}&by=model",
        "90 days by day, keys": f"{quarter}&bucket=day&by=key",
        "90 days, key": f"{quarter}&key={of.key}",
    }
    facets = {
        "": "",
        "action block": "action=block",
        "reason code": f"reason_code={of.code}",
        "verdict": "verdict=has_contradictions",
        "search": "q=handbook",
    }
    paths = {"stats": stats, "usage": usage, "requests/facets": facets}
    return {
        f"{path.removeprefix('requests/')} {label}": f"/admin/v1/{path}?{query}"
        for path, queries in paths.items()
        for label, query in queries.items()
    }


def _other_lists(of: Known) -> Mapping[str, str]:
    lists = {
        "trace": f"requests/{of.request_id}",
        "trace, old": f"requests/{of.old_request_id}",
        "calibration": "calibration",
        "calibration, agent": f"calibration?agent={of.rare}",
        "calibration, retrieval": "calibration?source=retrieval",
        "calibration, reported": "calibration?source=reported",
        "feedback": "feedback",
        "feedback wrong": "feedback?correct=false",
        "feedback of a request": f"feedback?request_id={of.old_request_id}",
        "feedback quality": "feedback/quality",
        "feedback quality, a week": f"feedback/quality?since={_ago(7)}",
        "review": "review",
        "runs list": "runs",
        "runs list, agent": f"runs?agent={of.rare}",
        "runs list, agent unknown": "runs?agent=nobody",
        "runs list, model": f"runs?model={of.model}",
        "runs list, model unknown": "runs?model=nothing",
        "runs list, block": "runs?action=block",
        "runs list, open": "runs?status=open",
        "run": f"runs/{of.run_id}",
        "policy": f"policies/{of.policy}",
        "policy status": f"policies/{of.policy}/status",
        "policy versions": f"policies/{of.policy}/versions",
        **{
            name: name
            for name in (
                *("audit", "keys", "policies", "upstreams", "alerts", "alerts/firings", "alerts/destinations"),
                *("budgets", "sessions", "tokens", "users", "views", "secrets", "me"),
            )
        },
        "audit, actor": "audit?actor=cli",
        "audit, action": "audit?action=policy.update",
    }
    return {name: f"/admin/v1/{path}" for name, path in lists.items()}


def _request_pages(of: Known) -> Mapping[str, str]:
    pages = {
        "requests": "",
        "requests, a day": "span=day",
        "requests, agent and block": f"agent={of.rare}&action=block",
        "requests, policy": f"policy={of.policy}",
        "requests, code": f"code={of.code}",
        "requests, code unknown": "code=NONE",
        "requests, id": f"q={of.old_request_id}",
        "requests, id prefix": f"q={of.request_id[:20]}",
        "requests, id prefix unknown": "q=req_zzz",
        "requests, verdict": "verdict=has_contradictions",
        "requests, verdict, policy": f"verdict=has_contradictions&policy={of.policy}",
        "requests, status rare": "status=incomplete",
        "requests, status unused": "status=failed",
        "requests, slow": "min_ms=4000",
        "requests, slower than any": "min_ms=900000",
        "requests, slow, of an agent": f"min_ms=3000&agent={of.rare}",
        "requests, low trust": "max_trust=50",
        "requests, trust that none has": "max_trust=1",
        "requests, trust that few verdicts have": "min_trust=99&verdict=has_contradictions",
        "requests, key": f"key={of.key}",
        "requests, key unknown": "key=gl-none",
        "requests, key, verdict": f"key={of.key}&verdict=has_contradictions",
        "requests, oldest": "sort=time",
        "requests, oldest of a verdict": "sort=time&verdict=has_contradictions",
        "requests, oldest of an unknown agent": "sort=time&agent=nobody",
        "requests, slowest": "sort=-latency",
        "requests, fastest, a day": "sort=latency&span=day",
        "requests, slowest of an agent": f"sort=-latency&agent={of.agent}",
        "requests, slowest of a verdict": "sort=-latency&verdict=has_contradictions",
        "requests, slowest of a code": f"sort=-latency&code={of.code}",
        "requests, least trusted": "sort=trust",
        "requests, most trusted of a verdict": "sort=-trust&verdict=has_contradictions",
        "requests, most tokens, a week": "sort=-tokens&span=week",
        "search, common word": "q=handbook",
        "search, two words": "q=refund+receipt",
        "search, phrase": "q=%22gift+order%22",
        "search, phrase that is rare": "q=%22order+handbook%22",
        "search, beginning of 3": "q=ref*",
        "search, beginning of 5": "q=deliv*",
        "search, rare word": "q=12345",
        "search, unknown word": "q=zebra",
        "search, common and unknown word": "q=handbook+zebra",
        "search, common and rare word": "q=handbook+12345",
        "search, words that exclude each other": "q=battery+password",
        "search, common word, a day": "q=handbook&span=day",
        "search, common word, verdict": "q=handbook&verdict=has_contradictions",
        "search, common word, status unused": "q=handbook&status=failed",
        "search, common word, agent unknown": "q=handbook&agent=nobody",
        "search, common word, slowest": "q=handbook&sort=-latency",
        "search, common word, oldest": "q=handbook&sort=time",
        "search, 20 common words": "q=" + "+".join(["handbook pdf you answer customers of a shop politely order"] * 2),
        "search, ideographs": "q=%E8%BF%94%E6%AC%BE",
    }
    return {f"page {name}": f"/dashboard/requests?{query}" for name, query in pages.items()}


def _other_pages(of: Known) -> Mapping[str, str]:
    pages = {
        "overview, an hour": "?span=hour",
        "overview, a day": "",
        "overview, a week": "?span=week",
        "overview, a month": "?span=month",
        "overview, 90 days": "?span=quarter",
        "overview, 90 days, models": "?span=quarter&by=model",
        "overview, 90 days, policies": "?span=quarter&by=policy",
        "overview, 90 days, keys": "?span=quarter&cost=key",
        "overview, 90 days, one policy": f"?span=quarter&policy={of.policy}",
        "overview, a week, one agent": f"?span=week&agent={of.agent}",
        "overview, two hours": f"?from={_ago(5 / 24)[:16]}&to={_ago(3 / 24)[:16]}",
        "overview, four days": f"?from={_ago(8.3)[:16]}&to={_ago(4.3)[:16]}",
        "trace": f"requests/{of.request_id}",
        "trace, old": f"requests/{of.old_request_id}",
        "runs": "runs",
        "runs, agent": f"runs?agent={of.rare}",
        "runs, model unknown": "runs?model=nothing",
        "run": f"runs/{of.run_id}",
        "policy": f"policies/{of.policy}",
        "policy form": f"policies/{of.policy}/edit",
        "policy versions": f"policies/{of.policy}/versions",
        "calibration, 20,000 runs": "calibration?most=20000",
        "calibration, reported": "calibration?source=reported",
        "calibration, retrieval": "calibration?source=retrieval",
        **{
            path: path
            for path in (
                *("policies", "policies/new", "calibration", "review", "playground", "keys", "access", "sessions"),
                *("budgets", "alerts", "alerts/new", "system"),
            )
        },
    }
    return {f"page {name}": f"/dashboard/{path}" for name, path in pages.items()} | {"page docs": "/docs"}


# Second pages of lists. The first page has the URL of the second.


def further_pages(client: httpx.Client, of: Known) -> Mapping[str, str]:
    """Return the paths of the second pages of some lists, keyed by their names in the table."""
    found = {}
    for name in ("requests", "events", "runs", "audit", "feedback"):
        if cursor := client.get(f"/admin/v1/{name}").json().get("next_cursor"):
            found[f"{name} second page"] = f"/admin/v1/{name}?cursor={quote(cursor)}"
    for label, query in {
        "search, common word": "q=handbook",
        "search, a verdict": "q=handbook&verdict=has_contradictions",
        "slowest": "sort=-latency",
        "slowest of an agent": f"sort=-latency&agent={of.agent}",
        "least trusted": "sort=trust",
    }.items():
        if cursor := client.get(f"/admin/v1/requests?{query}").json().get("next_cursor"):
            found[f"requests second page, {label}"] = f"/admin/v1/requests?{query}&cursor={quote(cursor)}"
    return found


def cpu_s(pid: int | None) -> float:
    """Return the CPU time of a process and the processes that it started, in seconds."""
    if pid is None:
        return 0.0
    return sum(map(_own_cpu_s, _with_children(pid))) + _ended_cpu_s(pid)


def _with_children(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(each for child in children for each in _with_children(int(child)))]


def _own_cpu_s(pid: int) -> float:
    try:
        return (
            sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9
        )
    except FileNotFoundError:  # the process has ended; its time now counts as that of an ended child
        return 0.0


def _ended_cpu_s(pid: int) -> float:
    """Return the CPU time of the process's children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) * _TICK_S


def measure(client: httpx.Client, runs: int, only: str, pids: Mapping[str, int | None]) -> None:
    of = known(client)
    names = "".join(f" {name:>8}" for name in pids)
    print(f"{'ms':48} {'min':>8} {'median':>8}{names}  bytes")
    slow = busy = 0
    for name, url in {**questions(of), **further_pages(client, of)}.items():
        if only not in name:
            continue
        client.get(url)
        before, times = {name: cpu_s(pid) for name, pid in pids.items()}, []
        for _ in range(runs):
            began = perf_counter()
            answer = client.get(url)
            times.append((perf_counter() - began) * 1e3)
        spent = [(cpu_s(pid) - before[name]) / runs * 1e3 for name, pid in pids.items()]
        fault = "" if answer.status_code in (200, 303) else f"  status {answer.status_code}"
        over = "  OVER" if median(times) > _BAR_MS else ""
        over += "  BUSY" if sum(spent) > _BAR_MS else ""
        slow, busy = slow + ("OVER" in over), busy + ("BUSY" in over)
        row = f"{min(times):8.1f} {median(times):8.1f}" + "".join(f" {each:8.1f}" for each in spent)
        print(f"{name:48} {row}  {len(answer.content)}{fault}{over}", flush=True)
    print(f"{slow} took more than {_BAR_MS:.0f} ms (OVER), {busy} more than {_BAR_MS:.0f} ms of CPU time (BUSY)")


def signed_in(client: httpx.Client) -> None:
    form = client.get("/dashboard/sign-in").text
    csrf = form.partition('name="csrf" value="')[2].partition('"')[0]
    answer = client.post("/dashboard/sign-in", data={"csrf": csrf, "token": _TOKEN})
    if answer.status_code != 303:
        raise SystemExit(f"sign-in: {answer.status_code}")


def run(url: str, work: Callable[[httpx.Client, int], None]) -> None:
    """Start a gateway on the database, and call ``work`` with a signed-in client and the process id."""
    port = free_port()
    settings = {"DATABASE_URL": url, "ADMIN_TOKEN": _TOKEN, "JUDGE": "none", "LOG_LEVEL": "error"}
    environment = {f"GROUNDLANE_{name}": value for name, value in settings.items()}
    with started(sys.executable, "-m", "groundlane_server", "serve", "--port", str(port), **environment) as gateway:
        fetched(gateway, port, "/healthz", 120.0)
        base, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {_TOKEN}"}
        with httpx.Client(base_url=base, headers=headers, timeout=120, trust_env=False) as client:
            signed_in(client)
            work(client, gateway.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "url", help="URL of a database that benchmarks.fill_event_log or benchmarks.seed_traffic has filled"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="only requests whose names contain this")
    parser.add_argument("--database-pid", type=int, help="process id of a PostgreSQL server on this machine")
    wanted = parser.parse_args()

    def work(client: httpx.Client, gateway: int) -> None:
        pids: dict[str, int | None] = {"gateway": gateway}
        if wanted.database_pid is not None:
            pids["database"] = wanted.database_pid
        measure(client, wanted.runs, wanted.only, pids)

    run(wanted.url, work)


if __name__ == "__main__":
    main()
