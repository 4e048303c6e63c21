"""Every client in the same situations, streamed and unary: what its user sees, and what must not be visible."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judges.types import Label
from tests.support.apis.api_cases import CHAT, TEXT
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.system.clients import processes
from tests.system.clients.registry import CLIENTS, Client, parameter
from tests.system.clients.scenario import ABSTENTION, CLOSED, DOCUMENTS, LIE, PLANS, STALE, SUPPORT, Question, Seen
from tests.system.clients.workers import Worker, python_with

Ask = Callable[..., Seen]
Script = Callable[[str], None]


@pytest.fixture(params=[parameter(client) for client in CLIENTS])
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    if found.missing:
        pytest.skip(found.missing)
    return found


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def script(gateway: Gateway, client: Client, stream: bool) -> Callable[[str], None]:
    """Sets the upstream's answer."""
    return lambda text: gateway.upstream.script(
        answer(text, stream=stream, usage=True)
        if client.api is CHAT
        else client.api.reply([(TEXT, text)], stream=stream)
    )


@pytest.fixture
def ask(
    gateway: Gateway, client: Client, stream: bool, worker: Callable[[str, str], Worker], tmp_path: Path
) -> Callable[..., Seen]:
    """Sends a question as a user of the client would."""
    if stream not in client.streams:
        pytest.skip(f"{client.name} has no such way of asking")

    def ask(**fields: Any) -> Seen:
        question = Question(base_url=gateway.base_url, stream=stream, **fields)
        if client.on_node:
            return processes.node(client.driver, question, tmp_path)
        if client.driver == "curl":
            return processes.curl(question)
        python = python_with(client.package)
        assert python is not None
        module, _, function = client.driver.partition(":")
        return worker(python, client.package).ask(module, function, question)

    return ask


def test_supported_answer_is_unchanged_with_its_verdict(
    gateway: Gateway, script: Script, ask: Ask, client: Client, stream: bool
) -> None:
    script(f"{PLANS} {SUPPORT}")
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    seen = ask(agent=agent, documents=DOCUMENTS)
    assert (seen.text, seen.finish) == (f"{PLANS} {SUPPORT}", client.stopped)
    assert seen.verdict == ("supported" if stream in client.shows else None)
    assert "documents" not in gateway.upstream.wait_exchange().json


def test_contradicted_sentence_never_reaches_the_user(
    gateway: Gateway, script: Script, ask: Ask, client: Client, stream: bool
) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    script(f"{PLANS} {LIE} {SUPPORT}")
    seen = ask(agent=gateway.agent(grounding=CLOSED), documents=DOCUMENTS)
    text = f"{PLANS} {ABSTENTION}" if stream else ABSTENTION
    assert seen.text == ("" if client.raises_if_blocked else text)
    assert seen.finish == (client.filtered if stream in client.tells_of_blocks else None)
    assert seen.verdict == ("has_contradictions" if stream in client.shows else None)
    assert "boat" not in seen.everything


def test_refused_document_is_an_error_without_retries(gateway: Gateway, script: Script, ask: Ask) -> None:
    script(PLANS)
    agent = gateway.agent(retrieval={})
    seen = ask(agent=agent, documents=STALE)
    assert seen.refusal is not None
    assert (seen.refusal.status, seen.refusal.type) == (400, "retrieval_policy_violation")
    assert (seen.refusal.code, seen.refusal.param) == ("RETRIEVAL_STALE_SOURCE", "documents[0]")
    assert gateway.upstream.exchanges == []
    assert len(gateway.rows(1, agent=agent)) == 1


def test_reply_without_documents_is_that_of_the_upstream(
    gateway: Gateway, script: Script, ask: Ask, client: Client
) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    script(LIE)
    seen = ask()
    assert (seen.text, seen.finish) == (LIE, client.stopped)
    # The body is untouched; the header of a whole reply says why there is no verdict.
    assert seen.verdict in {None, "no_sources"}
    assert gateway.judge.claims == []
