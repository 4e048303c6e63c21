"""The demo: the upstream's answers, their wire format, and the output of the tour."""

import io
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from starlette.types import ASGIApp, Receive, Scope, Send

from app.cli.demo.content import Content, ScriptedAnswer, load_content
from app.cli.demo.servers import ServerStartError, bind, serving
from app.cli.demo.tour import Stage, TourError, stage, tour
from app.cli.demo.upstream import NO_ANSWER, ScriptedUpstream
from app.cli.demo.walkthrough import SceneResult, WalkthroughError
from app.cli.main import main
from app.cli.terminal import Screen
from app.protocols.common.document_prompt import documents_block
from app.settings import Settings
from judges.types import Chunk
from tests.support.command_line import logging_restored

ANSWERS = [ScriptedAnswer(question="How long is the warranty?", answer="The warranty covers 24 months.")]


@pytest.fixture(scope="module", autouse=True)
def logging_as_before() -> Iterator[None]:
    """The demo redirects the process's log to its own terminal output."""
    with logging_restored():
        yield


@pytest.fixture
def content() -> Content:
    return load_content()


async def complete(upstream: ScriptedUpstream, body: dict[str, Any]) -> httpx.Response:
    transport = httpx.ASGITransport(app=upstream.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://upstream") as client:
        return await client.post("/v1/chat/completions", json=body)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def frames(response: httpx.Response) -> Iterator[dict[str, Any]]:
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize(
    "question",
    ["How long is the warranty?", "how long is the warranty", "[1] A manual.\n\nHow long is the warranty?"],
)
def test_known_question_gets_its_scripted_answer(question: str) -> None:
    assert ScriptedUpstream(ANSWERS).answer([user(question)]) == "The warranty covers 24 months."


def test_last_user_message_selects_the_answer() -> None:
    messages = [user("How long is the warranty?"), {"role": "assistant", "content": "Long."}, user("Who are you?")]
    assert ScriptedUpstream(ANSWERS).answer(messages) != "The warranty covers 24 months."


def test_unknown_question_is_answered_from_the_documents_in_the_prompt() -> None:
    prompt = "[1] Manual\nThe pump works at 9 bar. The drip tray holds 0.4 litres of water."
    messages = [{"role": "system", "content": prompt}, user("What pressure does the pump reach?")]
    assert ScriptedUpstream(ANSWERS).answer(messages) == "The pump works at 9 bar."


def test_content_parts_are_read_as_text() -> None:
    parts = [{"type": "text", "text": "How long is the warranty?"}]
    assert ScriptedUpstream(ANSWERS).answer([{"role": "user", "content": parts}]) == "The warranty covers 24 months."


def test_without_documents_the_answer_says_so() -> None:
    assert ScriptedUpstream([]).answer([user("Hi")]) == "I don't have a document that answers that."


def test_titles_and_unrelated_sentences_are_no_answer() -> None:
    manual = Chunk(id="m", text="The pump works at 9 bar.", title="What pressure does the pump reach at most")
    messages = [{"role": "system", "content": documents_block([manual])}]
    assert ScriptedUpstream([]).answer([*messages, user("What pressure does the pump reach?")]) == manual.text
    assert ScriptedUpstream([]).answer([*messages, user("Who sells coffee here?")]) == NO_ANSWER


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", ["chat", "completions", "responses", "messages"])
async def test_official_clients_read_the_reply_of_each_api(api: str, stream: bool) -> None:
    question, expected = ANSWERS[0].question, ANSWERS[0].answer
    with serving(ScriptedUpstream(ANSWERS, delay_s=0).app, bind(0)) as url:
        openai = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        text, asked = "", {"model": "scripted-1", "stream": stream}
        match api:
            case "chat":
                made: Any = await openai.chat.completions.create(messages=[user(question)], **asked)
                text = "" if stream else made.choices[0].message.content
                text += "".join([each.choices[0].delta.content or "" async for each in made] if stream else ())
            case "completions":
                made = await openai.completions.create(prompt=question, **asked)
                text = "" if stream else made.choices[0].text
                text += "".join([each.choices[0].text async for each in made] if stream else ())
            case "responses":
                made = await openai.responses.create(input=question, **asked)
                last = [event async for event in made][-1].response if stream else made
                text = last.output_text
            case _:
                anthropic = AsyncAnthropic(base_url=url, api_key="none")
                made = await anthropic.messages.create(messages=[user(question)], max_tokens=100, **asked)
                deltas = [e.delta.text async for e in made if e.type == "content_block_delta"] if stream else ()
                text = "".join(deltas) if stream else made.content[0].text
                await anthropic.close()
        await openai.close()
    assert text == expected


@pytest.mark.anyio
async def test_another_path_is_an_error_in_the_format_of_openai() -> None:
    transport = httpx.ASGITransport(app=ScriptedUpstream([]).app)
    async with httpx.AsyncClient(transport=transport, base_url="http://upstream") as client:
        for method, path, status in (("POST", "/v1/embeddings", 404), ("GET", "/v1/responses", 405)):
            answer = await client.request(method, path)
            assert answer.status_code == status
            assert f"{method} {path}" in answer.json()["error"]["message"]


@pytest.mark.anyio
async def test_whole_reply_has_usage_and_is_counted() -> None:
    upstream = ScriptedUpstream(ANSWERS)
    body = (await complete(upstream, {"model": "m", "messages": [user("How long is the warranty?")]})).json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == "The warranty covers 24 months."
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    assert upstream.calls == 1


@pytest.mark.anyio
async def test_streamed_reply_is_the_same_text_in_pieces() -> None:
    request = {"messages": [user("How long is the warranty?")], "stream": True}
    chunks = list(frames(await complete(ScriptedUpstream(ANSWERS, delay_s=0), request)))
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(pieces) == "The warranty covers 24 months."
    assert len([piece for piece in pieces if piece]) == 5
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.anyio
async def test_usage_comes_last_on_a_stream_that_asks_for_it() -> None:
    request = {"messages": [user("Hi")], "stream": True, "stream_options": {"include_usage": True}}
    *_, last = frames(await complete(ScriptedUpstream([], delay_s=0), request))
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 9)


@pytest.mark.anyio
async def test_model_is_listed() -> None:
    transport = httpx.ASGITransport(app=ScriptedUpstream([]).app)
    async with httpx.AsyncClient(transport=transport, base_url="http://upstream") as client:
        body = (await client.get("/v1/models")).json()
    assert [model["id"] for model in body["data"]] == ["scripted-1"]


def test_every_scene_has_existing_documents_and_questions(content: Content) -> None:
    known = {document.id for document in content.documents}
    questions = {answer.question for answer in content.answers}
    for scene in content.scenes:
        assert set(scene.documents) <= known
        assert scene.question in questions


def test_scenes_request_carries_documents_and_agent(content: Content) -> None:
    scene = next(scene for scene in content.scenes if scene.key == "stale")
    body = content.request(scene)
    assert [document["id"] for document in body["documents"]] == ["leave-2021"]
    assert "url" not in body["documents"][0]
    assert body["grounding"] == {"agent": "leave-desk", "inject": "system"}


def test_server_runs_while_the_block_runs() -> None:
    with serving(ScriptedUpstream([]).app, bind(0)) as url:
        assert httpx.get(f"{url}/v1/models").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v1/models")


def test_server_that_cannot_start_is_an_error() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(ServerStartError), serving(broken, bind(0)):
        pass


def test_port_in_use_is_an_error() -> None:
    taken = bind(0)
    taken.listen()
    with taken, pytest.raises(OSError, match="in use"):
        bind(taken.getsockname()[1])


@pytest.mark.slow
def test_demo_is_ready_and_records_its_requests(running: tuple[Stage, dict[str, SceneResult]]) -> None:
    standing, _ = running
    assert httpx.get(f"{standing.url}/readyz").json()["status"] == "ready"
    headers = {"authorization": f"Bearer {standing.token}"}

    def actions() -> set[str]:
        found = httpx.get(f"{standing.url}/admin/v1/requests", headers=headers, params={"limit": 200}).json()["items"]
        return {request["action"] for request in found}

    deadline, tick = time.monotonic() + 30, Event()
    while not {"block", "allow", "warn"} <= actions():  # the last of them is on its way to the log
        assert time.monotonic() < deadline, f"the log has {actions()} alone"
        tick.wait(0.05)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, dict[str, SceneResult]]]:
    """The demo with a real judge on real servers, and the results of its walkthrough."""
    settings = Settings(_env_file=None, judge_threads=1)
    with stage(settings, port=0, folder=tmp_path_factory.mktemp("demo")) as standing:
        yield standing, standing.walkthrough(Screen()).run()


@pytest.fixture
def outcomes(running: tuple[Stage, dict[str, SceneResult]]) -> dict[str, SceneResult]:
    return running[1]


@pytest.mark.slow
def test_request_heads_are_bounded_as_with_serve(running: tuple[Stage, dict[str, SceneResult]]) -> None:
    response = httpx.get(f"{running[0].url}/healthz", headers={"x-long": "a" * 70_000})
    assert response.status_code == 431


@pytest.mark.slow
def test_grounded_answer_is_delivered_with_a_verdict_per_claim(outcomes: dict[str, SceneResult]) -> None:
    outcome = outcomes["grounded"]
    assert (outcome.status, outcome.finish_reason) == (200, "stop")
    assert [claim["verdict"] for claim in outcome.claims] == ["supported", "supported"]
    assert outcome.grounding["action"] == "allow"


@pytest.mark.slow
def test_contradicted_sentence_is_withheld(outcomes: dict[str, SceneResult]) -> None:
    outcome = outcomes["contradicted"]
    assert outcome.text.startswith("Adults take one 10 mg tablet twice a day with food.")
    assert outcome.text.endswith("Please ask your pharmacist.")
    assert "8 tablets" not in outcome.text
    assert outcome.finish_reason == "content_filter"
    assert (outcome.grounding["action"], outcome.grounding["verdict"]) == ("block", "has_contradictions")


@pytest.mark.slow
def test_unsupported_sentence_is_removed(outcomes: dict[str, SceneResult]) -> None:
    outcome = outcomes["unverifiable"]
    assert "canteen" not in outcome.text
    assert "28 days" in outcome.text
    assert "31 March" in outcome.text
    assert outcome.finish_reason == "stop"
    assert [claim["verdict"] for claim in outcome.claims if not claim.get("delivered", True)] == ["unverifiable"]


@pytest.mark.slow
def test_stale_document_is_refused_before_the_upstream_is_called(outcomes: dict[str, SceneResult]) -> None:
    outcome = outcomes["stale"]
    assert outcome.status == 400
    assert outcome.error["code"] == "RETRIEVAL_STALE_SOURCE"
    assert not outcome.upstream_called


@pytest.mark.slow
def test_command_plays_the_tour_and_leaves_its_requests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Run twice with ``--keep``: the second time, the policies already exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUNDLANE_JUDGE", "none")
    monkeypatch.setattr("sys.argv", ["groundlane", "demo", "--port", "0", "--exit", "--keep"])
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    shown = capsys.readouterr().out
    assert shown.count("RETRIEVAL_STALE_SOURCE") == 2
    assert "curl -sN http://127.0.0.1:" in shown
    assert {file.name for file in (tmp_path / "groundlane-demo").glob("*.json")} == {
        "grounded.json",
        "contradicted.json",
        "unverifiable.json",
        "stale.json",
    }


def test_port_in_use_ends_the_demo_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = bind(0)
    taken.listen()
    with taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setattr("sys.argv", ["groundlane", "demo", "--port", port, "--exit"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"Error: port {port}: Address already in use. Choose another with --port.\n"


class Interrupted(Event):
    """Ctrl-C is sent as soon as the demo waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        signal.raise_signal(signal.SIGINT)
        return super().wait(10)


@pytest.mark.slow
def test_demo_runs_until_ctrl_c_and_restores_signal_handlers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.cli.demo.tour.Event", Interrupted)
    before = signal.getsignal(signal.SIGINT)
    tour(Settings(_env_file=None, judge="none"), port=0, folder=None, leave=False)
    assert signal.getsignal(signal.SIGINT) is before
    assert "Serving. Press Ctrl-C to stop." in capsys.readouterr().out


@pytest.mark.slow
def test_unexpected_answer_ends_the_tour(running: tuple[Stage, dict[str, SceneResult]]) -> None:
    standing, _ = running
    with pytest.raises(WalkthroughError, match="GET /admin/v1/policies returned HTTP 401"):
        replace(standing, token="wrong").walkthrough(Screen()).run()


@pytest.mark.slow
def test_refused_stream_is_shown_as_refused(
    running: tuple[Stage, dict[str, SceneResult]], capsys: pytest.CaptureFixture[str]
) -> None:
    standing, _ = running
    (stale,) = (scene for scene in standing.content.scenes if scene.key == "stale")
    content = standing.content.model_copy(update={"scenes": (stale.model_copy(update={"stream": True}),)})
    outcomes = replace(standing, content=content).walkthrough(Screen()).run()
    assert outcomes["stale"].error["code"] == "RETRIEVAL_STALE_SOURCE"
    assert "HTTP 400 RETRIEVAL_STALE_SOURCE" in capsys.readouterr().out


def test_demo_reports_a_gateway_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(_: Settings) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "lifespan.startup.failed", "message": "broken"})

        return app

    monkeypatch.setattr("app.cli.demo.tour.create_app", broken)
    with pytest.raises(TourError, match="did not start"):
        tour(Settings(_env_file=None, judge="none"), port=0, folder=tmp_path, leave=True)


def test_screen_works_without_colours_and_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    Screen().claim({"verdict": "supported", "confidence": None, "reason": "timeout"})
    assert written.getvalue().split() == [b"?", b"supported", b"(timeout)"]
