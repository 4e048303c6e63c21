"""The dashboard's paths."""

import httpx

from benchmarks.dashboard_latency import Known, questions
from tests.support.gateways.live_gateway import Gateway
from tests.support.storage.dashboard_seed import AGENT


def test_pages_that_the_benchmark_requests_exist(
    client: httpx.Client, gateway: Gateway, played: dict[str, str]
) -> None:
    values = Known(
        request_id=played["fine"],
        old_request_id=played["false"],
        run_id="run_none",
        agent=AGENT,
        rare=AGENT,
        model="m",
        key="gl-none",
        policy=gateway.policy("retrieval", scope={"agents": ["nobody"]})["id"],
        code="NONE",
    )
    answers = {name: client.get(url) for name, url in questions(values).items() if name.startswith("page ")}
    missing = [name for name, answer in answers.items() if answer.status_code not in (200, 303)]
    assert missing == ["page run"]
