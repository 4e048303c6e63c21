"""The demo's script: what the upstream says, what it looks like on the wire, and what the tour shows."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.demo.content import Answer, Content, load_content
from app.demo.servers import ServerStartError, bind, serving
from app.demo.upstream import ScriptedUpstream

ANSWERS = [Answer(question="How long is the warranty?", answer="The warranty covers 24 months.")]


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
def test_a_known_question_gets_its_scripted_answer(question: str) -> None:
    assert ScriptedUpstream(ANSWERS).answer([user(question)]) == "The warranty covers 24 months."


def test_the_last_user_message_counts() -> None:
    messages = [user("How long is the warranty?"), {"role": "assistant", "content": "Long."}, user("Who are you?")]
    assert ScriptedUpstream(ANSWERS).answer(messages) != "The warranty covers 24 months."


def test_an_unknown_question_is_answered_from_the_documents_in_the_prompt() -> None:
    prompt = "[1] Manual\nThe pump works at 9 bar. The drip tray holds 0.4 litres of water."
    messages = [{"role": "system", "content": prompt}, user("What pressure does the pump reach?")]
    assert ScriptedUpstream(ANSWERS).answer(messages) == "The pump works at 9 bar."


def test_content_parts_are_read_as_text() -> None:
    parts = [{"type": "text", "text": "How long is the warranty?"}]
    assert ScriptedUpstream(ANSWERS).answer([{"role": "user", "content": parts}]) == "The warranty covers 24 months."


def test_without_any_document_it_says_so() -> None:
    assert ScriptedUpstream([]).answer([user("Hi")]) == "I have no document to answer that from."


@pytest.mark.anyio
async def test_a_whole_reply_has_usage_and_is_counted() -> None:
    upstream = ScriptedUpstream(ANSWERS)
    body = (await complete(upstream, {"model": "m", "messages": [user("How long is the warranty?")]})).json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == "The warranty covers 24 months."
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    assert upstream.calls == 1


@pytest.mark.anyio
async def test_a_streamed_reply_is_the_same_text_in_pieces() -> None:
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
async def test_the_model_is_listed() -> None:
    transport = httpx.ASGITransport(app=ScriptedUpstream([]).app)
    async with httpx.AsyncClient(transport=transport, base_url="http://upstream") as client:
        body = (await client.get("/v1/models")).json()
    assert [model["id"] for model in body["data"]] == ["scripted-1"]


def test_every_scene_names_documents_and_a_question_that_exist(content: Content) -> None:
    known = {document.id for document in content.documents}
    questions = {answer.question for answer in content.answers}
    for scene in content.scenes:
        assert set(scene.documents) <= known
        assert scene.question in questions


def test_a_scenes_request_carries_documents_and_agent(content: Content) -> None:
    scene = next(scene for scene in content.scenes if scene.key == "stale")
    body = content.request(scene)
    assert [document["id"] for document in body["documents"]] == ["leave-2021"]
    assert "url" not in body["documents"][0]
    assert body["grounding"] == {"agent": "leave-desk", "inject": "system"}


def test_a_server_serves_for_as_long_as_the_block_runs() -> None:
    with serving(ScriptedUpstream([]).app, bind(0)) as url:
        assert httpx.get(f"{url}/v1/models").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v1/models")


def test_a_server_that_cannot_start_says_so() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(ServerStartError), serving(broken, bind(0)):
        pass


def test_a_port_that_is_taken_is_an_error() -> None:
    taken = bind(0)
    taken.listen()
    with taken, pytest.raises(OSError, match="in use"):
        bind(taken.getsockname()[1])
