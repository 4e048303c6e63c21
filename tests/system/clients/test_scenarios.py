"""Every client in the same situations, streamed and not: what its user sees of them, and what must never be seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judges.types import Label
from tests.support.live_gateway import Gateway
from tests.support.scripted_answers import answer
from tests.system.clients import processes
from tests.system.clients.registry import CLIENTS, Client, parameter
from tests.system.clients.scenario import ABSTENTION, CLOSED, DOCUMENTS, LIE, PLANS, STALE, SUPPORT, Question, Seen
from tests.system.clients.workers import Worker, python_with

Ask = Callable[..., Seen]


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
def ask(
    gateway: Gateway, client: Client, stream: bool, worker: Callable[[str, str], Worker], tmp_path: Path
) -> Callable[..., Seen]:
    """Sends a question as a user of the client would."""

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


def test_a_supported_answer_comes_unchanged_with_its_verdict(
    gateway: Gateway, ask: Ask, client: Client, stream: bool
) -> None:
    gateway.upstream.script(answer(f"{PLANS} {SUPPORT}", stream=stream, usage=True))
    agent = gateway.agent(retrieval={}, grounding=CLOSED)
    seen = ask(agent=agent, documents=DOCUMENTS)
    assert (seen.text, seen.finish) == (f"{PLANS} {SUPPORT}", "stop")
    assert seen.verdict == ("supported" if stream in client.shows else None)
    assert "documents" not in gateway.upstream.wait_exchange().json


def test_a_contradicted_sentence_never_reaches_the_user(
    gateway: Gateway, ask: Ask, client: Client, stream: bool
) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(f"{PLANS} {LIE} {SUPPORT}", stream=stream, usage=True))
    seen = ask(agent=gateway.agent(grounding=CLOSED), documents=DOCUMENTS)
    assert (seen.text, seen.finish) == (f"{PLANS} {ABSTENTION}" if stream else ABSTENTION, client.filtered)
    assert seen.verdict == ("has_contradictions" if stream in client.shows else None)
    assert "boat" not in seen.everything


def test_a_refused_document_is_an_error_without_retries(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.upstream.script(answer(PLANS, stream=stream))
    agent = gateway.agent(retrieval={})
    seen = ask(agent=agent, documents=STALE)
    assert seen.refusal is not None
    assert (seen.refusal.status, seen.refusal.type) == (400, "retrieval_policy_violation")
    assert (seen.refusal.code, seen.refusal.param) == ("RETRIEVAL_STALE_SOURCE", "documents[0]")
    assert gateway.upstream.exchanges == []
    assert len(gateway.rows(1, agent=agent)) == 1


def test_without_documents_the_reply_is_the_upstreams(gateway: Gateway, ask: Ask, stream: bool) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(LIE, stream=stream))
    seen = ask()
    assert (seen.text, seen.finish) == (LIE, "stop")
    # The body is untouched; the header of a whole reply says why there is no verdict.
    assert seen.verdict in {None, "no_sources"}
    assert gateway.judge.claims == []
