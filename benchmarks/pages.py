"""How long the pages of the dashboard and the lists of the admin API take on a database that ``benchmarks.rows`` has
filled: ``python -m benchmarks.pages URL [--runs N] [--only TEXT]``.

A gateway is started on it in this process and asked over loopback, one question after another; what is told is the
time from the question to the last byte of the answer, and at the end the processor time of this process, the client's
few percent in it, which does not grow when others keep the machine busy.
"""

import argparse
import logging
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles
from time import perf_counter, process_time

import httpx
import structlog
import uvicorn
from pydantic import SecretStr

from app.main import create_app
from app.settings import Settings
from benchmarks.rows import AGENTS

_TOKEN = "benchmark-token"  # of a gateway that lives for as long as the benchmark does
_BAR_MS = 300.0


def questions(request_id: str, run_id: str) -> dict[str, str]:
    """What is asked, by what it is called in the table."""
    now = datetime.now(UTC)
    day, month, quarter = (f"since={now - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" for days in (1, 30, 90))
    admin = "/admin/v1"
    lists = {
        f"{name} {label}": f"{admin}/{name}?{query}"
        for name in ("requests", "events")
        for label, query in {
            "": "",
            "of 30 days ago": f"until={now - timedelta(days=30):%Y-%m-%dT%H:%M:%SZ}",
            "agent": f"agent={AGENTS[-1]}",
            "agent, model, block": f"agent={AGENTS[-1]}&model=llama-3.3-70b&action=block",
            "agent unknown": "agent=nobody",
            "action block": "action=block",
            "policy": "policy=pol_02",
            "policy, block, a day": f"policy=pol_02&action=block&{day}",
            "policy unknown": "policy=pol_99",
            "policy, agent unknown": "policy=pol_02&agent=nobody",
            "phase": "phase=after_workflow",
            "phase unused": "phase=mid_execution",
            "reason code": "reason_code=GROUNDING_CONTRADICTED",
            "reason code unknown": "reason_code=NONE",
            "shadow": "shadow=true",
            "policy in no shadow": "policy=pol_02&shadow=true",
            "run": f"run_id={run_id}",
            "500": "limit=500",
        }.items()
    }
    stats = {
        f"stats {label}": f"{admin}/stats?{query}"
        for label, query in {
            "a day": "",
            "a day by minute": f"since={now - timedelta(hours=24):%Y-%m-%dT%H:%M:%SZ}&bucket=minute",
            "90 days": quarter,
            "80 days by hour": f"since={now - timedelta(days=80):%Y-%m-%dT%H:%M:%SZ}&bucket=hour",
            "90 days by day, agents": f"{quarter}&bucket=day&by=agent",
            "90 days, models": f"{quarter}&by=model",
            "90 days, policies": f"{quarter}&by=policy",
            "90 days, agent": f"{quarter}&agent={AGENTS[0]}&bucket=day",
            "90 days, block": f"{quarter}&action=block&bucket=day",
            "90 days, policy": f"{quarter}&policy=pol_02&bucket=day",
            "30 days, run": f"{month}&run_id={run_id}",
            "a day, reason code": f"{day}&reason_code=GROUNDING_CONTRADICTED",
        }.items()
    }
    others = {
        "trace": f"{admin}/requests/{request_id}",
        "calibration": f"{admin}/calibration",
        "feedback": f"{admin}/feedback",
        "feedback quality": f"{admin}/feedback/quality",
        "audit": f"{admin}/audit",
        "keys": f"{admin}/keys",
        "policies": f"{admin}/policies",
        "policy versions": f"{admin}/policies/pol_02/versions",
        "upstreams": f"{admin}/upstreams",
    }
    pages = {
        f"page {label}": f"/dashboard/{path}"
        for label, path in {
            "overview, an hour": "?span=hour",
            "overview, a day": "",
            "overview, a week": "?span=week",
            "overview, 90 days": "?span=quarter",
            "overview, 90 days, models": "?span=quarter&by=model",
            "overview, 90 days, policies": "?span=quarter&by=policy",
            "overview, 90 days, one policy": "?span=quarter&policy=pol_02",
            "requests": "requests",
            "requests, agent and block": f"requests?agent={AGENTS[-1]}&action=block",
            "requests, policy": "requests?policy=pol_02",
            "requests, code": "requests?code=GROUNDING_CONTRADICTED",
            "requests, code unknown": "requests?code=NONE",
            "requests, id": f"requests?id={request_id}",
            "trace": f"requests/{request_id}",
            "policies": "policies",
            "new policy": "policies/new",
            "policy": "policies/pol_02",
            "policy form": "policies/pol_02/edit",
            "policy versions": "policies/pol_02/versions",
            "calibration": "calibration",
            "playground": "playground",
            "keys": "keys",
            "system": "system",
        }.items()
    }
    return {**lists, **stats, **others, **pages}


def measure(client: httpx.Client, runs: int, only: str) -> None:
    items = client.get("/admin/v1/requests?limit=500").json()["items"]
    newest, run_id = items[0]["request_id"], next((item["run_id"] for item in items if item["run_id"]), "none")
    print(f"{'ms':40} {'p50':>8} {'p95':>8} {'max':>8} {'cpu':>8}  bytes")
    slow = 0
    for name, url in questions(newest, run_id).items():
        if only not in name:
            continue
        times, started_cpu = [], process_time()
        for _ in range(runs):
            started = perf_counter()
            answer = client.get(url)
            times.append((perf_counter() - started) * 1e3)
        cpu = (process_time() - started_cpu) / runs * 1e3
        fault = "" if answer.status_code == 200 else f"  status {answer.status_code}"
        p95 = quantiles(times, n=20, method="inclusive")[-1] if runs > 1 else times[0]
        over = "  OVER" if median(times) > _BAR_MS else ""
        slow += bool(over)
        row = f"{median(times):8.1f} {p95:8.1f} {max(times):8.1f} {cpu:8.1f}"
        print(f"{name:40} {row}  {len(answer.content)}{fault}{over}", flush=True)
    print(f"{slow} over {_BAR_MS:.0f} ms")


def signed_in(client: httpx.Client) -> None:
    form = client.get("/dashboard/sign-in").text
    csrf = form.partition('name="csrf" value="')[2].partition('"')[0]
    answer = client.post("/dashboard/sign-in", data={"csrf": csrf, "token": _TOKEN})
    if answer.status_code != 303:
        raise SystemExit(f"sign-in: {answer.status_code}")


def run(url: str, runs: int, only: str) -> None:
    settings = Settings(database_url=url, admin_token=SecretStr(_TOKEN), judge="none", log_level="warning")
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None, access_log=False, lifespan="on"))
    serving = threading.Thread(target=server.run, args=([listener],))
    serving.start()
    try:
        while not server.started and serving.is_alive():
            time.sleep(0.05)
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=base, headers={"authorization": f"Bearer {_TOKEN}"}, timeout=120) as client:
            signed_in(client)
            measure(client, runs, only)
    finally:
        server.should_exit = True
        serving.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of a database that benchmarks.rows has filled")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", default="", help="questions with this in their names")
    wanted = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    run(wanted.url, wanted.runs, wanted.only)


if __name__ == "__main__":
    main()
