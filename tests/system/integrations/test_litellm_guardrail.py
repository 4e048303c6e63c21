"""The guardrail in LiteLLM's proxy, set up in its configuration file: the proxy calls the model, and the gateway
judges."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from judges.types import Label
from tests.support.apis.reply_reader import read_stream
from tests.support.apis.scripted_answers import answer, chunk, streamed, whole
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.mock_upstream import Reply, json_reply
from tests.system.clients.registry import missing_module
from tests.system.clients.scenario import ABSTENTION, DOCUMENTS, LIE, MODEL, PLANS, PROMPT, STALE, SUPPORT
from tests.system.clients.workers import ROOT, SDK, environment, python_with
from tests.system.integrations.test_page import PAGE, examples

pytestmark = [pytest.mark.slow, pytest.mark.clients]

PROXY = "litellm_proxy_extras"
KEY = "sk-key-of-the-proxy-for-tests-only"
START_S = 240.0
AGENT = "proxied"
AWAY = "http://127.0.0.1:9"
HAS_JUDGE = python_with("onnxruntime") == python_with(PROXY) is not None
"""The gateway's package is installed beside LiteLLM."""


def guardrails(gateway: Gateway) -> list[dict[str, Any]]:
    common = {
        "guardrail": "groundlane.integrations.litellm.GroundlaneGuardrail",
        "mode": ["pre_call", "post_call"],
        "api_base": gateway.base_url,
    }
    variants: dict[str, dict[str, Any]] = {
        "ruled": {"agent": AGENT, "replacement": ABSTENTION},
        "rules": {
            "options": {"unverifiable_action": "strip", "contradiction_action": "block"},
            "replacement": ABSTENTION,
        },
        "strict": {"on_block": "error"},
        "away": {"api_base": AWAY, "timeout": 1},
        "away-open": {"api_base": AWAY, "timeout": 1, "unreachable_fallback": "fail_open"},
        **({"alone": {"api_base": None, "in_process": True}} if HAS_JUDGE else {}),
    }
    return [{"guardrail_name": name, "litellm_params": {**common, **more}} for name, more in variants.items()]


def configuration(gateway: Gateway) -> str:
    """The proxy's file: the guardrail from the page, those of these tests, and the model."""
    (documented,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    documented = documented.replace("http://localhost:8080", gateway.base_url).replace("default_on: true", "")
    target = {"model": f"openai/{MODEL}", "api_base": gateway.upstream.base_url, "api_key": "sk-upstream"}
    models = [{"model_name": name, "litellm_params": target} for name in (MODEL, "gpt-4o-mini")]
    ours = "".join(f"  - {json.dumps(guardrail)}\n" for guardrail in guardrails(gateway))
    return f"{documented}{ours}\nmodel_list: {json.dumps(models)}\n"


class Proxy:
    """LiteLLM's proxy in front of the scripted upstream."""

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.gateway, self.url = gateway, f"http://127.0.0.1:{port}"

    def ask(self, guardrail: str, *, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "guardrails": [guardrail], **fields}
        headers = {"authorization": f"Bearer {KEY}"}
        return httpx.post(self.url + path, json=body, headers=headers, timeout=START_S)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    python = python_with(PROXY)
    if python is None:
        pytest.skip(str(missing_module(PROXY)))
    folder = tmp_path_factory.mktemp("guardrail")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gateway = Gateway(folder).start()
    gateway.policy("retrieval", {}, scope={"agents": [AGENT]})
    (folder / "proxy.yaml").write_text(configuration(gateway), "utf-8")
    command = [Path(python).parent / "litellm", "--config", "proxy.yaml", "--host", "127.0.0.1", "--port", str(port)]
    env = environment(LITELLM_MASTER_KEY=KEY, PYTHONPATH=os.pathsep.join((str(SDK), str(ROOT))))
    with (folder / "proxy.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT)
    proxy = Proxy(gateway, port)

    def alive() -> bool | None:
        if process.poll() is not None:
            raise AssertionError((folder / "proxy.log").read_text("utf-8")[-4000:])
        try:
            return httpx.get(f"{proxy.url}/health/liveliness").is_success or None
        except httpx.TransportError:
            return None

    try:
        eventually(alive, "start of the proxy", START_S)
        yield proxy
    finally:
        process.terminate()
        process.wait(START_S)
        gateway.close()


@pytest.fixture
def proxy(started: Proxy) -> Proxy:
    started.gateway.reset()
    started.gateway.upstream.exchanges.clear()
    started.gateway.judge.labels = {"boat": Label.CONTRADICTED}
    return started


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def said(response: httpx.Response) -> tuple[str, list[str]]:
    """The text that arrived, and how it ended."""
    assert response.status_code == 200, response.text
    if "event-stream" not in response.headers["content-type"]:
        (choice,) = response.json()["choices"]
        return choice["message"]["content"], [choice["finish_reason"]]
    reading = read_stream(response.content)
    assert reading.ends_with_done
    return reading.text(), reading.finishes()


def test_supported_text_arrives_and_the_model_gets_no_fields_of_ours(proxy: Proxy, stream: bool) -> None:
    proxy.gateway.upstream.script(answer(f"{PLANS} {SUPPORT}", stream=stream))
    response = proxy.ask("ruled", stream=stream, documents=list(DOCUMENTS))
    assert said(response) == (f"{PLANS} {SUPPORT}", ["stop"])
    sent = proxy.gateway.upstream.wait_exchange().json
    assert not {"documents", "grounding", "guardrails"} & sent.keys()
    assert set(proxy.gateway.judge.claims) == {PLANS, SUPPORT}


def test_contradiction_never_arrives(proxy: Proxy, stream: bool) -> None:
    proxy.gateway.upstream.script(answer(f"{PLANS} {LIE} {SUPPORT}", stream=stream))
    response = proxy.ask("ruled", stream=stream, documents=list(DOCUMENTS))
    assert said(response) == (f"{PLANS} {ABSTENTION}" if stream else ABSTENTION, ["content_filter"])
    assert "boat" not in response.text


OTHERS = {
    "reasoning_content": LIE,
    "provider_specific_fields": {"citations": [LIE]},
    "tool_calls": [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "send", "arguments": json.dumps([LIE])}}
    ],
}
"""The parts of a message that aren't its text."""


def with_others(text: str, *, stream: bool) -> Reply:
    """A reply with ``text``, reasoning, a tool call, log probabilities and a field of the provider."""
    if not stream:
        body = whole(text, message=OTHERS)
        body["choices"][0]["logprobs"] = {"content": [{"token": LIE, "logprob": 0.0, "top_logprobs": []}]}
        return json_reply({**body, "answer_copy": LIE})
    start = [chunk(0, {"role": "assistant", "content": "", **OTHERS})]
    return Reply(chunks=[*start, *(event for event in streamed(text))], pause_s=0)


def test_blocked_reply_has_nothing_of_the_model(proxy: Proxy, stream: bool) -> None:
    proxy.gateway.upstream.script(with_others(f"{PLANS} {LIE}", stream=stream))
    response = proxy.ask("ruled", stream=stream, documents=list(DOCUMENTS))
    assert said(response) == (f"{PLANS} {ABSTENTION}" if stream else ABSTENTION, ["content_filter"])
    assert "boat" not in response.text


def test_supported_reply_keeps_its_reasoning_and_tool_calls(proxy: Proxy, stream: bool) -> None:
    proxy.gateway.upstream.script(with_others(f"{PLANS} {SUPPORT}", stream=stream))
    response = proxy.ask("ruled", stream=stream, documents=list(DOCUMENTS))
    text, (finish,) = said(response)
    assert (text, finish) == (f"{PLANS} {SUPPORT}", "stop" if stream else "tool_calls")
    assert response.text.count("call_1") == 1
    assert '"reasoning_content"' in response.text
    assert not stream or response.text.index("call_1") < response.text.index('"finish_reason":"stop"')


@pytest.mark.parametrize("text", ["The moon is blue.", LIE])
def test_rules_hold_the_stream_until_its_end(proxy: Proxy, stream: bool, text: str) -> None:
    proxy.gateway.judge.labels = {"boat": Label.CONTRADICTED, "moon": Label.UNVERIFIABLE}
    proxy.gateway.upstream.script(with_others(f"{PLANS} {text}", stream=stream))
    response = proxy.ask("rules", stream=stream, documents=list(DOCUMENTS))
    assert said(response) == (ABSTENTION, ["content_filter"])
    assert "boat" not in response.text


def test_block_can_be_an_error(proxy: Proxy, stream: bool) -> None:
    proxy.gateway.upstream.script(answer(LIE, stream=stream))
    response = proxy.ask("strict", stream=stream, documents=[PLANS])
    assert response.status_code == (200 if stream else 400)
    assert "1 of 1 claims contradicted" in response.text
    assert "grounding_policy_violation" in response.text
    assert "boat" not in response.text


def test_stale_document_blocks_before_the_call(proxy: Proxy, stream: bool) -> None:
    response = proxy.ask("ruled", stream=stream, documents=list(STALE))
    assert response.status_code == 400
    assert "Source age (400 days) exceeds max (90 days)" in response.text
    assert proxy.gateway.upstream.exchanges == []


def test_reply_without_documents_passes(proxy: Proxy, stream: bool) -> None:
    proxy.gateway.upstream.script(answer(LIE, stream=stream))
    assert said(proxy.ask("ruled", stream=stream)) == (LIE, ["stop"])
    assert proxy.gateway.judge.claims == []


@pytest.mark.parametrize("documents", ["text", [""], [{"title": "no text"}], [3]])
def test_malformed_documents_are_rejected(proxy: Proxy, documents: Any) -> None:
    response = proxy.ask("ruled", documents=documents)
    assert (response.status_code, "documents" in response.text) == (400, True)
    assert proxy.gateway.upstream.exchanges == []


def test_unchecked_apis_reject_documents(proxy: Proxy) -> None:
    response = proxy.ask("ruled", path="/v1/responses", input=PROMPT, documents=list(DOCUMENTS))
    assert (response.status_code, "chat completions" in response.text) == (400, True)


def test_nothing_arrives_without_a_gateway(proxy: Proxy, stream: bool) -> None:
    proxy.gateway.upstream.script(answer(PLANS, stream=stream))
    response = proxy.ask("away", stream=stream, documents=[PLANS])
    assert PLANS not in response.text
    assert "could not be checked" in response.text


def test_reply_passes_without_a_gateway_if_configured(proxy: Proxy, stream: bool) -> None:
    proxy.gateway.upstream.script(answer(PLANS, stream=stream))
    assert said(proxy.ask("away-open", stream=stream, documents=[PLANS])) == (PLANS, ["stop"])


@pytest.mark.skipif(not HAS_JUDGE, reason="needs the package groundlane beside LiteLLM")
def test_proxy_judges_without_a_gateway(proxy: Proxy, stream: bool) -> None:
    """By the embedded judge; the gateway is not called."""
    text = "Adults take one tablet twice a day. Do not take more than 8 tablets in 24 hours."
    proxy.gateway.upstream.script(answer(text, stream=stream))
    response = proxy.ask("alone", stream=stream, documents=[text.replace("8", "4")])
    assert said(response)[1] == ["content_filter"]
    assert "8 tablets" not in response.text
    assert proxy.gateway.judge.claims == []


def test_example_of_the_page_prints_the_documented_output(proxy: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [example for example in examples() if "proxy" in example.needs]
    proxy.gateway.judge.labels = {"8 tablets": Label.CONTRADICTED}
    text = "Adults take one tablet twice a day. Do not take more than 8 tablets in 24 hours."
    proxy.gateway.upstream.script(answer(text, stream=True))
    code = example.code.replace("http://localhost:4000", proxy.url).replace("sk-proxy-key", KEY)
    code = code.replace("extra_body={", 'extra_body={"guardrails": ["grounded"], ')
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == example.printed
