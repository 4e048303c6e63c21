"""An LLM judge belongs to the operator: callers of a text check can use one only if a policy or a setting allows it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.gateways.live_gateway import Gateway

TEXT = {"text": "The limit is 500.", "sources": ["The limit is 500."]}
SCORED = {"llm_grounding_check": True, "llm_grounding_model": "default/any-model"}


def check(gateway: Gateway, body: dict[str, Any], key: str | None = None) -> tuple[int, str | None, str | None]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with gateway.call({**TEXT, **body}, path="/v1/grounding/check", headers=headers) as call:
        error = call.json().get("error") or {}
        return call.status, error.get("code"), error.get("param")


def key(gateway: Gateway, **limits: Any) -> str:
    made = gateway.admin.post("/keys", json={"name": "k", **limits})
    return str(made.json()["key"])


@pytest.mark.parametrize(
    ("options", "param"),
    [
        (SCORED, "options.llm_grounding_check"),
        ({"llm_grounding_check": True}, "options.llm_grounding_check"),
        ({"contradiction_action": "correct"}, "options.contradiction_action"),
    ],
)
def test_caller_may_not_request_an_llm(start_gateway: Callable[..., Gateway], options: Any, param: str) -> None:
    gateway = start_gateway()
    before = len(gateway.upstream.exchanges)
    assert check(gateway, {"options": options}) == (403, "llm_check_not_allowed", param)
    assert len(gateway.upstream.exchanges) == before


def test_policy_in_scope_allows_only_its_own_model(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway()
    rules = {**SCORED, "contradiction_action": "correct", "llm_grounding_criteria": "Be strict."}
    policy = gateway.policy("grounding", rules, scope={"keys": ["k"]})
    ours = key(gateway)
    assert check(gateway, {"options": SCORED}, ours)[0] == 200
    assert check(gateway, {"options": {"contradiction_action": "correct"}}, ours)[0] == 200
    assert check(gateway, {"policy": policy["id"]}, ours)[0] == 200
    other = {"options": {**SCORED, "llm_grounding_model": "default/another"}}
    assert check(gateway, other, ours) == (403, "llm_check_not_allowed", "options.llm_grounding_model")
    assert check(gateway, {"options": SCORED}) == (403, "llm_check_not_allowed", "options.llm_grounding_check")
    assert check(gateway, {"policy": policy["id"]}) == (400, None, "policy")
    limited = key(gateway, models=["gpt-*"])
    assert check(gateway, {"options": SCORED}, limited) == (403, "model_not_allowed", "options.llm_grounding_model")


def test_setting_allows_models_permitted_to_the_key_but_no_criteria(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(caller_llm_checks=True)
    assert check(gateway, {"options": SCORED})[0] == 200
    limited = key(gateway, models=["gpt-*"])
    assert check(gateway, {"options": SCORED}, limited) == (403, "model_not_allowed", "options.llm_grounding_model")
    for options in ({"llm_grounding_criteria": "Say 1.0."}, {**SCORED, "llm_grounding_criteria": "Say 1.0."}):
        assert check(gateway, {"options": options}) == (400, None, "options.llm_grounding_criteria")


@pytest.mark.parametrize("rules", [{}, {**SCORED, "contradiction_action": "correct"}])
def test_policy_of_other_keys_is_unknown_by_id_and_name(
    start_gateway: Callable[..., Gateway], rules: dict[str, Any]
) -> None:
    """The answer is the same as for a policy that doesn't exist, whether or not the policy uses an LLM."""
    gateway = start_gateway()
    theirs = gateway.policy("grounding", rules, scope={"keys": ["theirs"]})
    ours = gateway.policy("grounding", {}, scope={"keys": ["k"], "agents": ["a"], "models": ["m"]})
    mine = key(gateway)
    for name in (theirs["id"], theirs["name"], "no-such-policy"):
        body = {**TEXT, "policy": name}
        for token in (mine, "sk-client-key"):
            with gateway.call(body, path="/v1/grounding/check", headers={"authorization": f"Bearer {token}"}) as call:
                error = call.json()["error"]
                assert (call.status, error["param"]) == (400, "policy")
                assert error["message"] == f"policy: {name!r} is not in force."
    assert check(gateway, {"policy": ours["id"]}, mine)[0] == 200
