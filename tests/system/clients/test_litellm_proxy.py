"""LiteLLM's proxy between the gateway and the models: a common upstream with its own way of streaming."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from judges.types import Label
from tests.support.apis.scripted_answers import USAGE, answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.system.clients.registry import missing_module
from tests.system.clients.scenario import ABSTENTION, CLOSED, DOCUMENTS, LIE, MODEL, PLANS, PROMPT, SUPPORT, Question
from tests.system.clients.workers import environment, python_with

pytestmark = [pytest.mark.slow, pytest.mark.clients]

PROXY = "litellm_proxy_extras"
"""What LiteLLM's proxy needs beyond LiteLLM."""

KEY = "sk-key-of-the-proxy-for-tests-only"
START_S = 120.0


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose upstream is the proxy; behind it is its scripted upstream."""
    python = python_with(PROXY)
    if python is None:
        pytest.skip(str(missing_module(PROXY)))
    folder = tmp_path_factory.mktemp("proxy")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gateway = Gateway(folder, upstream_base_url=f"http://127.0.0.1:{port}/v1", upstream_api_key=KEY).start()
    target = {"model": f"openai/{MODEL}", "api_base": gateway.upstream.base_url, "api_key": "sk-upstream"}
    models = [{"model_name": MODEL, "litellm_params": target}]
    (folder / "proxy.yaml").write_text(json.dumps({"model_list": models}), "utf-8")
    command = [Path(python).parent / "litellm", "--config", "proxy.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "proxy.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(LITELLM_MASTER_KEY=KEY), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        eventually(lambda: alive(process, port, folder), "start of the proxy", START_S)
        yield gateway
    finally:
        process.terminate()
        process.wait(START_S)
        gateway.close()


def alive(process: subprocess.Popen[bytes], port: int, folder: Path) -> bool | None:
    if process.poll() is not None:
        raise AssertionError((folder / "proxy.log").read_text("utf-8")[-2000:])
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/liveliness").is_success or None
    except httpx.TransportError:
        return None


@pytest.fixture
def gateway(behind_proxy: Gateway) -> Gateway:
    behind_proxy.reset()
    return behind_proxy


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_reply_through_the_proxy_is_judged(gateway: Gateway, stream: bool) -> None:
    text = f"{PLANS} {SUPPORT}"
    gateway.upstream.script(answer(text, stream=stream, usage=True))
    with gateway.call(body(gateway, stream)) as call:
        if stream:
            reading = call.reading()
            found = (reading.text(), reading.finishes(), reading.grounding["verdict"])
            assert reading.ends_with_done
            assert len(reading.claims) == 2
        else:
            reply = call.json()
            found = (
                reply["choices"][0]["message"]["content"],
                [reply["choices"][0]["finish_reason"]],
                reply["grounding"]["verdict"],
            )
            assert {name: reply["usage"][name] for name in USAGE} == USAGE
    assert found == (text, ["stop"], "supported")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_contradiction_through_the_proxy_is_blocked(gateway: Gateway, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(f"{PLANS} {LIE}", stream=stream, usage=True))
    with gateway.call(body(gateway, stream)) as call:
        raw = call.read_all()
    assert b"boat" not in raw
    assert b"content_filter" in raw
    assert ABSTENTION.encode() in raw


def body(gateway: Gateway, stream: bool) -> dict[str, object]:
    agent = gateway.agent(grounding=CLOSED)
    question = Question(base_url=gateway.base_url, stream=stream, documents=DOCUMENTS, agent=agent)
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": MODEL, "messages": messages, "stream": stream, **question.extension}
