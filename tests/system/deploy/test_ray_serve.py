"""The judge on Ray Serve with the shipped configuration, on a cluster of this machine: its verdicts, and requests
during the loss of a replica. A cluster takes a while to start: opt in."""

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from judges.checker import GroundingChecker
from judges.cross_encoder import open_scorer, spec_languages
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.remote.http_scorer import HttpScorer
from judges.types import GroundingReport
from tests.support.gateways.live_gateway import Gateway
from tests.support.judging.judged_replies import replies, report_on, reports
from tests.system.deploy.shipped import load, yaml

ROOT = Path(__file__).parents[3]
REPLICA = "ray::ServeReplica:judge:Judge"
KEY = "judge-key-for-tests-only"
START_S = 300.0
STARTS = 3
PATIENCE_S = 120.0
"""A busy machine may take seconds for a claim."""

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("GROUNDLANE_TEST_RAY") != "1" or importlib.util.find_spec("ray") is None,
        reason="needs the extra ray and GROUNDLANE_TEST_RAY=1",
    ),
]


class Cluster:
    """A process that runs Serve on its own Ray. ``replicas`` are found among its descendants."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._file = folder / "serve.yaml"
        self._file.write_text(yaml.safe_dump(shipped(port)), "utf-8")
        self._log = folder / "serve.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """On a busy machine, Ray's start times out after half a minute: then retry."""
        for _ in range(STARTS):
            self._launch()
            if self._reached(lambda: len(self.replicas()) >= 2 and self._answers()):
                return
            self.stop()
        raise AssertionError(f"the judge does not answer\n{self._log.read_text('utf-8')[-4000:]}")

    def _launch(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "GROUNDLANE_JUDGE_API_KEY": KEY,
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("serve"), "run", self._file],
                cwd=self._file.parent,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for_replicas(self, count: int) -> None:
        assert self._reached(lambda: len(self.replicas()) >= count), self._log.read_text("utf-8")[-4000:]

    def _reached(self, done: Callable[[], bool]) -> bool:
        end = time.monotonic() + START_S
        while not done():
            if self._process is None or self._process.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.5)
        return True

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/info", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
        except httpx.HTTPError:
            return False

    def replicas(self) -> list[int]:
        """Their process ids."""
        return [pid for pid in self._descendants() if title(pid).startswith(REPLICA)]

    def _descendants(self) -> list[int]:
        parents = {int(one.name): parent(int(one.name)) for one in Path("/proc").iterdir() if one.name.isdecimal()}
        found = [] if self._process is None else [self._process.pid]
        for pid in found:
            found += [child for child, of in parents.items() if of == pid]
        return found

    def stop(self) -> None:
        """Stop it, and any remaining child processes."""
        if self._process is None:
            return
        left = self._descendants()
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def shipped(port: int) -> dict[str, Any]:
    """The shipped configuration, on a loopback port and no larger than this machine."""
    config = load("ray/serve.yaml")
    config["http_options"] |= {"host": "127.0.0.1", "port": port}
    (application,) = config["applications"]
    (deployment,) = application["deployments"]
    deployment["autoscaling_config"] |= {"min_replicas": 2, "max_replicas": 2}
    deployment["ray_actor_options"]["num_cpus"] = 0.5  # two replicas fit on any machine
    return config


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("ray"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def expected() -> list[GroundingReport]:
    """The verdicts of the in-process judge."""
    scorer = open_scorer("embedded", threads=1)
    assert scorer is not None
    return asyncio.run(reports(scorer, spec_languages("embedded")))


def remote(cluster: Cluster, timeout_s: float = PATIENCE_S) -> HttpScorer:
    return HttpScorer(f"groundlane+{cluster.url}", api_key=KEY, timeout_s=timeout_s)


def test_verdicts_equal_the_in_process_judge(cluster: Cluster, expected: list[GroundingReport]) -> None:
    assert asyncio.run(reports(remote(cluster), None)) == expected


def test_no_request_fails_when_a_replica_is_killed_under_load(
    cluster: Cluster, expected: list[GroundingReport]
) -> None:
    async def scenario() -> list[bool]:
        checker = GroundingChecker(BatchingScorer(remote(cluster)), timeout_s=PATIENCE_S)
        await checker.start()
        killed = asyncio.Event()
        right: list[bool] = []
        after = 0

        async def client(place: int) -> None:
            nonlocal after
            while after < 60:
                place = (place + 1) % len(expected)
                right.append(await report_on(checker, *replies()[place]) == expected[place])
                after += killed.is_set()
                if len(right) == 40:
                    os.kill(cluster.replicas()[0], signal.SIGKILL)
                    killed.set()

        async with asyncio.TaskGroup() as group:
            for place in range(8):
                group.create_task(client(place))
        await checker.aclose()
        return right

    cluster.wait_for_replicas(2)
    right = asyncio.run(scenario())
    assert len(right) >= 100
    assert all(right)
    cluster.wait_for_replicas(2)


def test_gateway_uses_it_through_its_settings(cluster: Cluster, tmp_path: Path) -> None:
    cluster.wait_for_replicas(2)
    settings = {
        "judge": f"http:groundlane+{cluster.url}",
        "judge_api_key": KEY,
        "judge_timeout_ms": int(PATIENCE_S * 1e3),
    }
    gateway = Gateway(tmp_path, real_judge=True, **settings).start()
    try:
        body = {
            "text": "Parental leave lasts 14 weeks at full pay. Travel expenses are refunded within 90 days.",
            "sources": ["Parental leave lasts 14 weeks at full pay. Travel expenses are refunded within 30 days."],
        }
        os.kill(cluster.replicas()[0], signal.SIGKILL)
        with gateway.call(body, path="/v1/grounding/check") as call:
            answer = json.loads(call.read_all())
            assert call.status == 200
        assert [claim["verdict"] for claim in answer["claims"]] == ["supported", "contradicted"]
        assert answer["judge"]["name"].startswith("http:embedded@")
    finally:
        gateway.close()
