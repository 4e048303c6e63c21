"""Upstreams to which no connection succeeds: certificates that must not be trusted, and unknown host names."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.support.gateways.mock_upstream import closed_port
from tests.support.gateways.server_process import Process, gateway
from tests.system.faults.matrix import CONNECTION_FAULTS
from tests.system.faults.support.certificates import Authority
from tests.system.faults.support.scripts import TEXT, good
from tests.system.faults.support.wire import RawUpstream

pytestmark = pytest.mark.slow

_TABLE = """
[[upstreams]]
name = "{name}"
base_url = "{url}/v1"
models = ["{name}"]
retries = 0
timeouts = {{ connect = {connect} }}
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A gateway that trusts one root, with a valid upstream and one for each fault; each upstream's name is also its
    model's."""
    folder = tmp_path_factory.mktemp("connections")
    authority = Authority(folder)
    contexts = {
        "good": authority.context(),
        "self-signed": authority.context(trusted=False),
        "expired": authority.context(days=-1),
        "wrong-host": authority.context("elsewhere.example"),
        "no-tls": None,
        "silent-tls": None,
    }
    greetings = {"no-tls": b"HTTP/1.1 400 Bad Request\r\n\r\n", "silent-tls": b""}
    with ExitStack() as stack:
        urls = {"refused": f"http://127.0.0.1:{closed_port()}", "unknown-name": "http://upstream.invalid"}
        for name, context in contexts.items():
            upstream = RawUpstream(tls=context, greeting=greetings.get(name))
            stack.callback(upstream.close)
            upstream.play(good(stream=False))
            urls[name] = f"https://127.0.0.1:{upstream.port}"
        tables = [
            _TABLE.format(name=name, url=url, connect=0.5 if name == "silent-tls" else 60.0)
            for name, url in urls.items()
        ]
        (folder / "groundlane.toml").write_text("".join(tables), "utf-8")
        environment = {"SSL_CERT_FILE": str(authority.root)}
        yield stack.enter_context(
            gateway(folder, "http://127.0.0.1:1", environment=environment, config="groundlane.toml", judge="none")
        )


def ask(process: Process, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "How long is the warranty?"}]}
    return httpx.post(f"{process.url}/v1/chat/completions", json=body, timeout=120)


def test_connection(process: Process) -> None:
    """The client learns that the upstream can't be reached, but not why; the log has the cause.

    One test for all, because they share a process.
    """
    # Without this check, the others would prove nothing.
    assert ask(process, "good").json()["choices"][0]["message"]["content"] == TEXT
    for fault in CONNECTION_FAULTS:
        answer = ask(process, fault.id)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable"), fault.id
        assert answer.json()["error"]["message"] == "The upstream is unreachable.", fault.id
        request_id = answer.headers["x-groundlane-request-id"]
        # The line was written before the answer; it may not have come through the pipe yet.
        process.wait_for(request_id, "upstream_failed")
        line = next(line for line in process.lines if request_id in line and "upstream_failed" in line)
        assert fault.detail in json.loads(line)["detail"], fault.id
