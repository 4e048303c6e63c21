"""Compares the CPU time and latency of the gateway with a bare proxy, LiteLLM and Portkey, alternating in one run.

    python -m benchmarks.gateway FOLDER [--reps 5] [--seconds 2] [--litellm VENV] [--portkey FOLDER] [--only NAME,...]

FOLDER contains the C sources of a mock upstream (``mock.c``) and a load generator (``lg.c``). They are built in a
temporary folder. ``--litellm`` is a virtual environment with ``litellm[proxy]``. ``--portkey`` is a folder in which
``@portkey-ai/gateway`` is installed. Without these options, LiteLLM and Portkey are not measured.

The measured gateway uses one core. The mock and the load generator share a second core. The CPU time of the gateway's
processes comes from ``/proc/PID/task/*/schedstat``, so other work on the machine has little effect on it. Every figure
is the median over the repetitions, with its range. Each measurement includes work that continues after a request, such
as writing events and log lines.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GATEWAY_CORE, LOAD_CORE = "0", "1"
PIECES = 276
"""The number of text chunks in one streamed reply of the mock."""

SETTLE_S = 0.4
"""The pause after a load. It is longer than the delay before events are written."""

REPOSITORY = Path(__file__).resolve().parent.parent
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Tell me about the harbour town."},
]
TEXTS = [
    "The harbour of the town was built in 1887 and holds about two hundred fishing boats.",
    "A ferry leaves the eastern pier every morning at seven and returns in the evening.",
    "The lighthouse on the northern cape stands 34 metres tall and is open to visitors in summer.",
    "Its market hall was restored after the fire of 1921 and sells fish, bread and vegetables.",
    "The railway reached the town in 1902; the journey to the capital takes four hours.",
]
DOCUMENTS = [
    {"id": f"doc-{n}", "text": text, "source": f"guide/{n}.md", "relevance_score": 0.9 - n / 20, "age_days": 10 + n}
    for n, text in enumerate(TEXTS)
]

RETRIEVAL = """
[[policies]]
name = "retrieval"
category = "retrieval"
rules = { min_relevance_score = 0.5, max_source_age_days = 365, min_chunks = 1 }
"""
GROUNDING = """
[[policies]]
name = "grounding"
category = "grounding"
rules = { contradiction_action = "block", stream_mode = "hold" }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """``command`` builds the command line for a given port. ``extra`` is added to the body of each request."""

    name: str
    command: Callable[[int], list[str]]
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path = REPOSITORY
    headers: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    ready: str = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``arguments`` contains the arguments of the load generator, and ``mock`` the settings of the upstream."""

    name: str
    arguments: tuple[str, ...]
    mock: str = "tokens=1&delay_us=0&ts=0"
    stream: bool = False


CASES = (
    Case(name="c1", arguments=("-c", "1")),
    Case(name="c16", arguments=("-c", "16")),
    Case(name="paced", arguments=("-s", "-c", "4"), mock="tokens=1&delay_us=10000&ts=0", stream=True),
)


def uvicorn(app: str, *options: str) -> Callable[[int], list[str]]:
    return lambda port: [
        *(sys.executable, "-m", "uvicorn", app, "--loop", "uvloop", "--http", "httptools"),
        *("--no-access-log", "--log-level", "warning", "--port", str(port), *options),
    ]


def serve(port: int) -> list[str]:
    return [sys.executable, "-c", "from app.cli.main import main; main()", "serve", "--port", str(port)]


def contestants(folder: Path, upstream: int, bench: Path, options: argparse.Namespace) -> Iterator[Contestant]:
    """Yield the gateways to compare. ``folder`` is a temporary folder, and ``bench`` is the folder that contains the
    mock."""
    base = f"http://127.0.0.1:{upstream}"
    yield Contestant(name="bare", command=uvicorn("benchmarks.support.bare_proxy:app"), environment={"UPSTREAM": base})

    def ours(name: str, policies: str, **more: str) -> dict[str, str]:
        home = folder / name
        home.mkdir()
        config = f'[[upstreams]]\nname = "mock"\nbase_url = "{base}/v1"\n{policies}'
        (home / "groundlane.toml").write_text(config)
        return {
            "PYTHONPATH": str(REPOSITORY),
            "GROUNDLANE_CONFIG": str(home / "groundlane.toml"),
            "GROUNDLANE_DATABASE_URL": f"sqlite+aiosqlite:///{home}/groundlane.db",
            "GROUNDLANE_ADMIN_TOKEN": "admin-token-for-the-benchmark",
            "GROUNDLANE_JUDGE": "none",
            **more,
        }

    documents = {"documents": DOCUMENTS}
    quiet = {"GROUNDLANE_ANNOTATE_BY_DEFAULT": "false"}
    yield Contestant(name="groundlane", command=serve, environment=ours("groundlane", ""), ready="/healthz")
    yield Contestant(
        name="groundlane+retrieval",
        command=serve,
        environment=ours("groundlane+retrieval", RETRIEVAL, **quiet),
        extra=documents,
        ready="/healthz",
    )
    yield Contestant(
        name="groundlane+judge",
        command=uvicorn("benchmarks.support.free_judge:build_app", "--factory", "--no-server-header"),
        environment=ours("groundlane+judge", RETRIEVAL + GROUNDING),
        extra=documents,
        ready="/healthz",
    )
    if options.litellm:
        config = (bench / "conf" / "litellm_guard.yaml").read_text().replace("127.0.0.1:9100", f"127.0.0.1:{upstream}")
        (folder / "litellm.yaml").write_text(config)
        program = [str(Path(options.litellm) / "bin" / "litellm"), "--config", str(folder / "litellm.yaml")]
        yield Contestant(
            name="litellm",
            command=lambda port: [*program, "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"],
            environment={
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
                "LITELLM_LOG": "ERROR",
                "PYTHONPATH": str(bench / "conf"),
            },
            folder=folder,
            ready="/health/liveliness",
        )
    if options.portkey:
        script = "node_modules/@portkey-ai/gateway/build/start-server.js"
        shim = str(bench / "conf" / "portkey_shim.mjs")
        yield Contestant(
            name="portkey",
            command=lambda port: ["node", "--import", shim, script, "--headless", f"--port={port}"],
            environment={"NODE_ENV": "production"},
            folder=Path(options.portkey),
            headers=("x-portkey-provider: openai", f"x-portkey-custom-host: {base}/v1", "authorization: Bearer none"),
        )


@dataclass(slots=True)
class Running:
    contestant: Contestant
    process: subprocess.Popen[bytes]
    port: int
    start_cpu_s: float
    bodies: dict[bool, Path]
    """The files with the request bodies: True for streamed replies, False for others."""


def tree(pid: int) -> Iterator[int]:
    """Return the ids of the process and its descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from tree(int(child))


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process and its children have used so far."""
    files = [file for each in tree(pid) for file in Path(f"/proc/{each}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def memory_mib(pid: int) -> float:
    lines = [line for each in tree(pid) for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> None:
    """Send a GET request. Raises OSError if nothing is listening."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    connection.getresponse().read()
    connection.close()


@contextmanager
def running(contestant: Contestant, folder: Path) -> Iterator[Running]:
    port = free_port()
    with (folder / f"{contestant.name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["taskset", "-c", GATEWAY_CORE, *contestant.command(port)],
            cwd=contestant.folder,
            env={**os.environ, **contestant.environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        for _ in range(1_200):
            try:
                get(port, contestant.ready)
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"{contestant.name} did not start:\n{Path(log.name).read_text()}") from None
                time.sleep(0.1)
        bodies = {}
        for stream in (False, True):
            body = {"model": "mock", "messages": MESSAGES, **({"stream": True} if stream else {}), **contestant.extra}
            bodies[stream] = folder / f"{contestant.name}-{stream}.json"
            bodies[stream].write_text(json.dumps(body))
        yield Running(contestant, process, port, cpu_s(process.pid), bodies)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def load(programs: Path, one: Running, case: Case, seconds: float, warm_up: float) -> dict[str, Any]:
    command = ["taskset", "-c", LOAD_CORE, str(programs / "lg"), "-p", str(one.port), *case.arguments]
    command += ["-B", str(one.bodies[case.stream]), "-d", str(seconds), "-w", str(warm_up)]
    for header in one.contestant.headers:
        command += ["-H", header]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    return found


def measure(programs: Path, one: Running, case: Case, seconds: float) -> dict[str, Any]:
    before = cpu_s(one.process.pid)
    found = load(programs, one, case, max(seconds, 3.0) if case.stream else seconds, 0.3)
    time.sleep(SETTLE_S)
    spent = cpu_s(one.process.pid) - before
    requests = max(1, found["started"])
    if found["bad"] or found.get("bad_body"):
        print(f"{one.contestant.name} {case.name}: {found['bad']} failed: {found.get('bad_body', '')}", file=sys.stderr)
    return {
        "name": one.contestant.name,
        "case": case.name,
        "requests": requests,
        "cpu_us": spent * 1e6 / requests / (PIECES if case.stream else 1),
        "p50_ms": found["lat_us"]["p50"] / 1e3,
    }


def figures(rows: Sequence[dict[str, Any]], name: str, case: str, key: str) -> list[float]:
    return [row[key] for row in rows if row["name"] == name and row["case"] == case]


def report(rows: Sequence[dict[str, Any]], runs: Sequence[Running]) -> None:
    """Build a table of medians with ranges, and of ratios to the bare proxy. Ratios are computed within each
    repetition."""
    columns = ("CPU per plain request, c=1", "c=16", "CPU per paced chunk", "p50 at c=16")
    print(f"| | {' | of bare | '.join(columns)} | of bare |")
    print("|---|" + "---:|---:|" * len(columns))
    for one in runs:
        cells = [one.contestant.name]
        for case, key, unit in (*((case.name, "cpu_us", "µs") for case in CASES), ("c16", "p50_ms", "ms")):
            own, bare = figures(rows, one.contestant.name, case, key), figures(rows, "bare", case, key)
            if not own:
                cells += ["–", "–"]
                continue
            digits = 2 if unit == "ms" else 0
            shown = f"{statistics.median(own):,.{digits}f} {unit} ({min(own):,.{digits}f}–{max(own):,.{digits}f})"
            ratios = [mine / theirs for mine, theirs in zip(own, bare, strict=False)]
            cells += [shown, f"{statistics.median(ratios):.2f}" if ratios else "–"]
        print("| " + " | ".join(cells) + " |")
    print("\n| | CPU to start | memory after the load |\n|---|---:|---:|")
    for one in runs:
        print(f"| {one.contestant.name} | {one.start_cpu_s:.1f} s | {memory_mib(one.process.pid):.0f} MiB |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with mock.c and lg.c")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of a measurement; at least 3 for streams")
    parser.add_argument("--litellm", help="virtual environment with litellm[proxy]")
    parser.add_argument("--portkey", help="folder in which @portkey-ai/gateway is installed")
    parser.add_argument("--only", help="comma-separated names of gateways")
    parser.add_argument("--cases", default="c1,c16,paced")
    options = parser.parse_args()
    bench: Path = options.folder.resolve()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        for program in ("mock", "lg"):
            build = ["cc", "-O2", "-o", str(folder / program), str(bench / f"{program}.c"), "-lm"]
            subprocess.run(build, check=True)
        upstream = free_port()
        mock = ["taskset", "-c", LOAD_CORE, str(folder / "mock"), str(upstream)]
        process = stack.enter_context(subprocess.Popen(mock, stderr=subprocess.DEVNULL))
        stack.callback(process.terminate)
        wanted = options.only.split(",") if options.only else None
        runs = [
            stack.enter_context(running(contestant, folder))
            for contestant in contestants(folder, upstream, bench, options)
            if wanted is None or contestant.name in wanted
        ]
        cases = [case for case in CASES if case.name in options.cases.split(",")]
        for one in runs:  # the first requests fill caches
            for stream in (False, True):
                case = Case(name="first", arguments=("-n", "8", "-c", "2", *(("-s",) if stream else ())), stream=stream)
                load(folder, one, case, 10, 0)
        rows: list[dict[str, Any]] = []
        for rep in range(options.reps):
            for case in cases:
                get(upstream, f"/mock/config?{case.mock}")
                for one in runs:
                    rows.append(measure(folder, one, case, options.seconds))
            print(f"repetition {rep + 1} of {options.reps}", file=sys.stderr)
        report(rows, runs)


if __name__ == "__main__":
    main()
