"""Budgets hold at the wire: over workers and restarts, and by every path."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import json_reply

QUESTION: dict[str, Any] = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "How much leave?"}]}
Start = Callable[..., Gateway]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a gateway on the same database as the others."""
    started: list[Gateway] = []

    def started_(**settings: Any) -> Gateway:
        started.append(Gateway(tmp_path, **settings))
        return started[-1].start()

    yield started_
    for gateway in started:
        gateway.close()


def key_of(gateway: Gateway, **budget: Any) -> str:
    """A new key with a budget."""
    made = gateway.admin.post("/keys", json={"name": "bot"}).json()
    values = {"subject": "key", "name": made["id"], "unit": "requests", "period": "day", "limit": 1, **budget}
    gateway.admin.post("/budgets", json=values).raise_for_status()
    return str(made["key"])


def ask(gateway: Gateway, key: str, *, path: str = "/v1/chat/completions", **fields: Any) -> tuple[int, Any, Any]:
    gateway.upstream.script(answer("Fine.", stream=bool(fields.get("stream"))))
    with gateway.call({**QUESTION, **fields}, path=path, headers={"authorization": f"Bearer {key}"}) as call:
        return call.status, call.read_all(), {name.lower(): value for name, value in call.headers}


def test_two_workers_share_a_budget_of_one(start: Start) -> None:
    first = start()
    key = key_of(first)
    second = start()  # It loads keys and budgets before it serves.
    with ThreadPoolExecutor(4) as threads:
        statuses = sorted(threads.map(lambda gateway: ask(gateway, key)[0], (first, second, first, second)))
    assert statuses == [200, 429, 429, 429]


def test_exhausted_budget_stays_exhausted_after_a_restart_on_every_path(start: Start) -> None:
    gateway = start()
    key = key_of(gateway)
    assert ask(gateway, key, stream=True)[0] == 200
    again = start()
    for path in ("/v1/chat/completions", "/v1/chat/completions/", "/v1/responses", "/v1/messages", "/v1/completions"):
        status, _, headers = ask(again, key, path=path)
        assert status == 429, path
        assert int(headers["retry-after"]) > 0
        assert headers["x-should-retry"] == "false"
    again.upstream.script(json_reply({}))
    for path in ("/v1/embeddings", "/v1/moderations"):
        with again.call({"model": "m", "input": "x"}, path=path, headers={"authorization": f"Bearer {key}"}) as call:
            call.read_all()
        assert call.status == 429, path


def test_streamed_tokens_are_counted_and_the_error_names_the_budget(start: Start) -> None:
    gateway = start()
    key = key_of(gateway, unit="tokens", limit=2, uncounted="allow")
    assert ask(gateway, key, stream=True)[0] == 200
    status, body, _ = ask(gateway, key)
    assert status == 429
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("insufficient_quota", "budget_exceeded")
    assert (error["budget"]["unit"], error["budget"]["remaining"], error["budget"]["limit"]) == ("tokens", 0, 2)


def test_unpriced_model_cannot_bypass_a_cost_budget(start: Start) -> None:
    gateway = start()
    key = key_of(gateway, unit="cost", limit=1)
    assert ask(gateway, key)[0] == 200
    assert ask(gateway, key, model="nobody-7b")[0] == 403
    with gateway.call({"input": "x"}, path="/v1/embeddings", headers={"authorization": f"Bearer {key}"}) as call:
        call.read_all()
    assert call.status == 403


def test_agent_can_have_a_budget(start: Start) -> None:
    gateway = start()
    made = {"subject": "agent", "name": "desk", "unit": "requests", "period": "month", "limit": 1}
    gateway.admin.post("/budgets", json=made).raise_for_status()
    assert ask(gateway, "sk-any", grounding={"agent": "desk"})[0] == 200
    assert ask(gateway, "sk-any", grounding={"agent": "desk"})[0] == 429
    assert ask(gateway, "sk-any", grounding={"agent": "other"})[0] == 200
