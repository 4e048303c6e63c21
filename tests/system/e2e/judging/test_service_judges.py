"""Services as judges, from the setting to the verdict, over real connections: streamed and whole."""

import asyncio
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.judging.pair_services import (
    Azure,
    Bedrock,
    Chat,
    ServiceStandin,
    Vectara,
    Vertex,
    granite_answer,
    granite_pair,
    lynx_answer,
    lynx_pair,
    serving,
)

Start = Callable[..., Gateway]

SAID, FALSE = "A cat is sleeping.", "A dog is barking loudly."
DOCUMENTS = [
    {"id": "d1", "text": "A cat is sleeping on the red sofa.", "source": "pets.txt"},
    {"id": "d2", "text": "The garden has two apple trees.", "source": "garden.txt"},
]
ALLOW = {"min_citations": 0, "contradiction_action": "flag"}
STRIP = {"min_citations": 0, "unverifiable_action": "strip", "contradiction_action": "block"}

KINDS: dict[str, tuple[Callable[[], ServiceStandin], str, dict[str, str]]] = {
    "vectara": (Vectara, "preset:vectara?url={url}", {"vectara_api_key": "the-key"}),
    "azure": (
        Azure,
        "preset:azure-groundedness?endpoint={url}",
        {"azure_content_safety_api_key": "the-key"},
    ),
    "vertex": (Vertex, "preset:vertex-check-grounding?project=acme&url={url}", {"google_credentials": "the-key"}),
    "bedrock": (
        Bedrock,
        "preset:bedrock-guardrail?guardrail=g&region=eu-west-1&url={url}",
        {"bedrock_api_key": "the-key:secret"},
    ),
    "minicheck": (Chat, "preset:bespoke-minicheck-7b?url={url}/v1", {}),
    "granite": (
        partial(Chat, read=granite_pair, write=granite_answer),
        "preset:granite-guardian-3.3-8b?url={url}/v1",
        {},
    ),
    "lynx": (partial(Chat, read=lynx_pair, write=lynx_answer), "preset:lynx-8b?url={url}/v1", {}),
    "cascade": (Vectara, "embedded then preset:vectara?url={url} if uncertain 0..1", {"vectara_api_key": "the-key"}),
}


def ask(gateway: Gateway, *, stream: bool, rules: dict[str, Any], text: str = f"{SAID} {FALSE}") -> tuple[str, str]:
    """The reply's bytes and the id of its request."""
    gateway.upstream.script(answer(text, stream=stream))
    agent = gateway.agent(grounding={**rules, "stream_mode": "hold"})
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "What is going on?"}],
        "documents": DOCUMENTS,
        "stream": stream,
        "grounding": {"agent": agent},
    }
    with gateway.call(body) as call:
        return call.read_all().decode(), call.request_id


def verdicts(gateway: Gateway, request_id: str) -> list[tuple[Any, ...]]:
    claims = gateway.trace(request_id).claims
    return [(claim["text"], claim["label"], claim["reason"], claim["score"]) for claim in claims]


@pytest.mark.parametrize("kind", list(KINDS))
def test_held_stream_gets_the_verdicts_of_a_whole_reply(kind: str, start_gateway: Start, log: io.StringIO) -> None:
    standin, spec, settings = KINDS[kind]
    server = standin()
    with serving(server) as url:
        gateway = start_gateway(real_judge=True, judge=spec.format(url=url), **settings)
        found = {}
        for stream in (False, True):
            reply, request_id = ask(gateway, stream=stream, rules=ALLOW)
            assert "cat" in reply
            found[stream] = verdicts(gateway, request_id)
            usage = gateway.trace(request_id).request["llm"]
            assert usage["calls"] > 0
            assert usage["failed"] == 0
        reply, _ = ask(gateway, stream=True, rules=STRIP)
        metrics = httpx.get(f"http://127.0.0.1:{gateway.port}/metrics").text
    assert found[True] == found[False]
    assert [(label, reason) for _, label, reason, _ in found[True]] == [("supported", None), ("unverifiable", None)]
    assert "sleeping" in reply
    assert "barking" not in reply
    assert len(server.requests) > 2
    assert 'groundlane_llm_calls_total{mode="judge",outcome="ok"}' in metrics
    for secret in ("sleeping", "barking", "sofa", "the-key"):
        assert secret not in log.getvalue()


def test_failing_service_leaves_claims_unjudged_and_the_reply_to_the_policy(start_gateway: Start) -> None:
    server = Vectara(script=[httpx.Response(500)] * 1000)
    with serving(server) as url:
        gateway = start_gateway(
            real_judge=True, judge=f"preset:vectara?url={url}", vectara_api_key="the-key", judge_timeout_ms=300
        )
        for stream in (False, True):
            reply, request_id = ask(gateway, stream=stream, rules={**ALLOW, "unjudged_action": "warn"})
            assert "sleeping" in reply
            reasons = {reason for _, _, reason, _ in verdicts(gateway, request_id)}
            assert reasons <= {"timeout", "judge_error"}
            reply, _ = ask(gateway, stream=stream, rules={**ALLOW, "unjudged_action": "block"})
            assert "sleeping" not in reply
        _, request_id = ask(gateway, stream=True, rules=ALLOW)
        told = "preset:vectara failed 5 times in a row and is paused"
        assert gateway.trace(request_id).request["judge_fault"] == told
        ready = httpx.get(f"http://127.0.0.1:{gateway.port}/readyz").json()
        assert (ready["status"], ready["checks"]["judge"]["detail"]) == ("degraded", told)


def test_cascade_reports_a_missing_judge_and_continues(start_gateway: Start) -> None:
    gateway = start_gateway(real_judge=True, judge="embedded then preset:vectara if uncertain")
    _, request_id = ask(gateway, stream=True, rules=ALLOW)
    assert [reason for _, _, reason, _ in verdicts(gateway, request_id)] == [None, None]
    assert "no API key; set GROUNDLANE_VECTARA_API_KEY" in gateway.trace(request_id).request["judge_fault"]
    ready = httpx.get(f"http://127.0.0.1:{gateway.port}/readyz").json()
    assert ready["status"] == "degraded"
    assert "; judging only with embedded@" in ready["checks"]["judge"]["detail"]


def test_throttled_service_is_overloaded_and_a_cascade_uses_the_other_judge(start_gateway: Start) -> None:
    throttled = httpx.Response(429, headers={"retry-after": "60"})
    with serving(Vectara(script=[throttled] * 1000)) as url:
        alone = start_gateway(real_judge=True, judge=f"preset:vectara?url={url}", vectara_api_key="the-key")
        _, request_id = ask(alone, stream=True, rules=ALLOW)
        assert {reason for _, _, reason, _ in verdicts(alone, request_id)} == {"overloaded"}
        spec = f"embedded then preset:vectara?url={url} if uncertain 0..1"
        cascade = start_gateway(real_judge=True, judge=spec, vectara_api_key="the-key")
        _, request_id = ask(cascade, stream=True, rules=ALLOW)
        first, second = verdicts(cascade, request_id)
        assert (first[1:3], second[2]) == (("supported", None), None)


def test_key_stored_as_a_secret_is_used_without_a_restart(
    start_gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judges.checker._RETRY_S", 0.1)
    with serving(Vectara()) as url:
        gateway = start_gateway(
            real_judge=True,
            judge=f"preset:vectara?url={url}",
            secret_key="VkRRUzdqTkxyWkt0d2xVbHhRaGZ3SW9lY0ZnQmRnS1k=",
        )
        ready = httpx.get(f"http://127.0.0.1:{gateway.port}/readyz").json()
        assert "no API key; set GROUNDLANE_VECTARA_API_KEY, or store it as the secret 'vectara'" in str(ready)
        gateway.admin.put("/secrets/vectara", json={"value": "the-key"}).raise_for_status()

        def judged() -> bool | None:
            _, request_id = ask(gateway, stream=False, rules=ALLOW, text=SAID)
            found = verdicts(gateway, request_id)
            return True if [label for _, label, _, _ in found] == ["supported"] else None

        eventually(judged, "a verdict with the new key", deadline_s=30)


class Slow(Vectara):
    async def handle(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3)
        return await super().handle(request)


def test_slow_service_costs_a_cascade_no_verdict(start_gateway: Start) -> None:
    with serving(Slow()) as url:
        spec = f"embedded then preset:vectara?url={url} if uncertain 0..1"
        gateway = start_gateway(real_judge=True, judge=spec, vectara_api_key="the-key", judge_timeout_ms=2000)
        _, request_id = ask(gateway, stream=True, rules=ALLOW)
        assert [reason for _, _, reason, _ in verdicts(gateway, request_id)] == [None, None]
        assert gateway.trace(request_id).claims[0]["label"] == "supported"
