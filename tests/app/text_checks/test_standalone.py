"""Checks without a gateway give the same results as the gateway, from the settings alone."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings, SettingsError
from app.text_checks.standalone import StandaloneChecks
from judges.testing import ScriptedJudge, contradicts, entails
from judges.types import Label
from tests.support.gateways.live_gateway import Gateway
from tests.system.e2e.conftest import gateway, shared_gateway

__all__ = ["gateway", "shared_gateway"]

pytestmark = pytest.mark.anyio

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


@pytest.fixture
async def checks(tmp_path: Path) -> AsyncIterator[StandaloneChecks]:
    """With a policy from a file."""
    (tmp_path / "gateway.toml").write_text(POLICY, "utf-8")
    judge = ScriptedJudge(lambda _, claim: contradicts() if "boat" in claim else entails())
    settings = Settings(_env_file=None, config=str(tmp_path / "gateway.toml"))
    async with StandaloneChecks.open(settings, scorer=judge) as opened:
        yield opened


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
async def test_standalone_check_answers_like_the_gateway(
    checks: StandaloneChecks, gateway: Gateway, body: dict[str, Any]
) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    with gateway.call(body, path="/v1/grounding/check") as call:
        expected = json.loads(call.read_all())
    status, answer = await checks.answer(body)
    assert (status, shape(answer)) == (call.status, shape(expected))


async def test_policy_of_the_file_is_found_by_name(checks: StandaloneChecks) -> None:
    status, answer = await checks.answer({**BODY, "policy": "strict"})
    blocking = {one["reason_code"] for one in answer["decisions"] if one["action"] == "block"}
    assert (status, answer["action"], "GROUNDING_CONTRADICTION" in blocking) == (200, "block", True)
    status, answer = await checks.answer({**BODY, "policy": "lax"})
    assert status == 400
    assert "not in force" in answer["error"]["message"]


async def test_unknown_judge_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="GROUNDLANE_JUDGE"):
        StandaloneChecks.open(Settings(_env_file=None, judge="oracle:delphi"))


def shape(answer: Any) -> Any:
    """The values that are the same in every check."""
    if "error" in answer:
        return answer
    return {
        **{name: value for name, value in answer.items() if name not in ("request_id", "judge", "claims", "decisions")},
        "claims": [(claim["claim"], claim["verdict"], claim["span"]) for claim in answer["claims"]],
        "decisions": [(decision["action"], decision["reason_code"]) for decision in answer["decisions"]],
    }
