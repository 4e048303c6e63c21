"""Checks in the process that asks: they answer as the gateway does, whoever asks, in whatever thread or loop."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from groundlane import GatewayStatusError
from groundlane.integrations import Guard
from groundlane.integrations._in_process import InProcess

from app.settings import Settings, SettingsError
from app.text_checks import in_process
from app.text_checks.in_process import InProcessChecks, shared_checks
from judges.testing import ScriptedJudge, contradicts, entails
from judges.types import Label
from tests.support.live_gateway import Gateway
from tests.system.e2e.conftest import gateway, shared_gateway

__all__ = ["gateway", "shared_gateway"]

PLANS, LIE = "The plan costs 9 euros.", "The plan includes a boat."
BODY = {"text": f"{PLANS} {LIE}", "documents": [{"text": PLANS, "source": "plans.md"}]}
POLICY = """
[[upstreams]]
name = "models"
base_url = "http://127.0.0.1:9/v1"

[[policies]]
name = "strict"
category = "grounding"
rules = {contradiction_action = "block"}
"""


def checks_of(settings: Settings | None = None) -> InProcessChecks:
    judge = ScriptedJudge(lambda _, claim: contradicts() if "boat" in claim else entails())
    return InProcessChecks(settings or Settings(_env_file=None), scorer=judge)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InProcessChecks]:
    """Those of this process, with a policy of a file's."""
    (tmp_path / "gateway.toml").write_text(POLICY, "utf-8")
    made = checks_of(Settings(_env_file=None, config=str(tmp_path / "gateway.toml")))
    monkeypatch.setattr(in_process, "_shared", {os.getpid(): made})
    yield made
    made.close()


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        {**BODY, "options": {"contradiction_action": "block"}},
        {"text": PLANS, "documents": []},
        {"text": 3},
        {**BODY, "policy": "nobody's"},
        {**BODY, "options": {"mood": "good"}},
    ],
)
def test_it_answers_as_the_gateway_does(checks: InProcessChecks, gateway: Gateway, body: dict[str, Any]) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    with gateway.call(body, path="/v1/grounding/check") as call:
        expected = json.loads(call.read_all())
    status, answer = checks.ask(body).result()
    assert (status, shape(answer)) == (call.status, shape(expected))


def test_a_policy_of_the_file_is_asked_for_by_its_name(checks: InProcessChecks) -> None:
    verdict = Guard(in_process=True, policy="strict", block_on="never").check(BODY["text"], BODY["documents"])
    assert (verdict.blocked, verdict.reason) == (True, "GROUNDING_CONTRADICTION")
    with pytest.raises(GatewayStatusError, match="not in force"):
        Guard(in_process=True, policy="lax").check(BODY["text"], BODY["documents"])


def test_threads_and_event_loops_may_ask_at_once(checks: InProcessChecks) -> None:
    guard = Guard(in_process=True)

    async def ask() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(guard.acheck(PLANS, [{"text": PLANS}])) for _ in range(4)]
        return [task.result().name for task in tasks]

    with ThreadPoolExecutor(4) as pool:
        loops = [pool.submit(asyncio.run, ask()) for _ in range(2)]
        plain = [pool.submit(guard.check, LIE, [{"text": PLANS}]) for _ in range(4)]
        assert [name for loop in loops for name in loop.result()] == ["supported"] * 8
        assert {one.result().blocked for one in plain} == {True}
    assert asyncio.run(ask()) == ["supported"] * 4, "in another loop than before"


def test_what_goes_wrong_inside_is_an_error_of_the_server(
    checks: InProcessChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("a secret of the machine room")

    monkeypatch.setattr(in_process, "shown_check", broken)
    with pytest.raises(GatewayStatusError) as caught:
        Guard(in_process=True).check(PLANS, [{"text": PLANS}])
    assert caught.value.status == 500
    assert "secret" not in str(caught.value)
    assert Guard(in_process=True, on_error="open").check(PLANS, [{"text": PLANS}]).name == "not_checked"


def test_a_process_has_one_judge_and_a_forked_one_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [checks_of(), checks_of()]
    monkeypatch.setattr(in_process, "_shared", {})
    monkeypatch.setattr(in_process, "InProcessChecks", iter(made).__next__)
    assert shared_checks() is shared_checks() is made[0]
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    assert shared_checks() is made[1]
    for one in made:
        one.close()


@pytest.mark.parametrize("name", ["base_url", "api_key"])
def test_a_gateway_and_a_judge_in_the_process_are_not_both_asked(checks: InProcessChecks, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Guard(in_process=True, **{name: "http://gateway"})


def test_a_bad_setting_is_told_when_the_guard_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "_shared", {})
    monkeypatch.setenv("GROUNDLANE_JUDGE", "oracle:delphi")
    with pytest.raises(SettingsError, match="GROUNDLANE_JUDGE"):
        Guard(in_process=True)


def test_without_the_package_the_guard_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "app.text_checks.in_process", None)
    with pytest.raises(ImportError, match=r"needs the package groundlane .*app/__init__.py is in the way"):
        InProcess()


def shape(answer: Any) -> Any:
    """What does not change from one check to the next."""
    if "error" in answer:
        return answer
    return {
        **{name: value for name, value in answer.items() if name not in ("request_id", "judge", "claims", "decisions")},
        "claims": [(claim["claim"], claim["verdict"], claim["span"]) for claim in answer["claims"]],
        "decisions": [(decision["action"], decision["reason_code"]) for decision in answer["decisions"]],
    }
