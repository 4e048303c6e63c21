"""The same question and answer in each of the four APIs, for tests that apply to all of them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.support.apis import messages_api, responses_api
from tests.support.gateways.in_process_gateway import chunk, said, whole
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply, json_reply

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
APIS = tuple(PATHS)
QUESTION = "How long does the lamp run?"
TRUE = "The lamp runs for 24 hours."
DOCUMENTS = [{"id": "d1", "text": f"{TRUE} Return it within 30 days.", "source": "lamp.md"}]
Json = dict[str, Any]


def request_of(api: str, agent: str, *, stream: bool, **more: Any) -> Json:
    """Return a request for ``api``, with documents."""
    body: Json = {"model": "m", "stream": stream, "grounding": {"agent": agent}, "documents": DOCUMENTS}
    if api == "completions":
        body["prompt"] = QUESTION
    elif api == "responses":
        body["input"] = QUESTION
    else:
        body["messages"] = [{"role": "user", "content": QUESTION}]
        if api == "messages":
            body["max_tokens"] = 100
    return {**body, **more}


def reply_of(api: str, text: str, *, stream: bool) -> Reply:
    """Return the answer ``text`` of an upstream with the API ``api``, in small frames if streamed."""
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    if api == "chat":
        return Reply(chunks=(said(*pieces),)) if stream else json_reply(whole(text))
    if api == "completions":
        frames = [_completion(piece, "text_completion.chunk") for piece in pieces]
        frames.append(_completion("", "text_completion.chunk", "stop"))
        return sse(frames) if stream else json_reply(_completion(text, "text_completion", "stop"))
    if api == "responses":
        body = responses_api.response(responses_api.message(text))
        events = responses_api.events(body, pieces={(0, 0): pieces})
        return Reply(chunks=(responses_api.sse(events),)) if stream else json_reply(body)
    return message_of(messages_api.text(*pieces), stream=stream)


def message_of(*blocks: list[Json], stream: bool, **ended: Any) -> Reply:
    """Return the answer of an upstream with the Messages API. Each of ``blocks`` has its start and its deltas."""
    events = messages_api.events(*blocks)
    for event in events:
        if event["type"] == "message_delta":
            event["delta"].update(ended)
    data = b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
    if stream:
        return Reply(chunks=(data,))
    message = messages_api.message_of(data)
    assert message is not None
    return json_reply(message)


def sse(frames: Iterable[Mapping[str, Any]]) -> Reply:
    """Return a stream of JSON frames that ends with ``[DONE]``."""
    return Reply(chunks=[*(f"data: {json.dumps(frame)}\n\n".encode() for frame in frames), b"data: [DONE]\n\n"])


def chat_reply(*deltas: Json, stream: bool) -> Reply:
    """Return the answer of an upstream with the chat API: a stream of ``deltas``, or a message with all their
    fields."""
    if stream:
        return sse([*map(chunk, deltas), chunk({}, "stop")])
    message: Json = {}
    for delta in deltas:
        message |= delta
    return json_reply(whole(message.pop("content", None), **message))


def ask(gateway: Gateway, api: str, agent: str, reply: Reply, *, stream: bool, **more: Any) -> tuple[int, str]:
    """Return the status and all strings that the client receives, except findings. Strings in the same field of a
    stream are joined."""
    gateway.upstream.script(reply)
    with gateway.call(request_of(api, agent, stream=stream, **more), path=PATHS[api]) as call:
        raw = call.read_all()
        status = call.status
    fields: dict[str, list[str]] = {}
    for frame in _frames(raw.decode()):
        for path, text in _strings(frame, ""):
            fields.setdefault(path, []).append(text)
    return status, "\n".join("".join(texts) for texts in fields.values())


def _completion(text: str, kind: str, finish: str | None = None) -> Json:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": kind, "created": 1, "model": "m-1", "choices": [choice]}


def _frames(body: str) -> Iterator[Any]:
    if body.startswith("{"):
        yield json.loads(body)
    for line in body.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name != "grounding":
                yield path, name
                yield from _strings(inner, f"{path}.{name}")
