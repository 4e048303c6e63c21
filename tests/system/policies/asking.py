"""Sends a request to a gateway, streamed or whole, and reads the parts of the answer that every client sees."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

LAMP = {
    "id": "faq",
    "text": "The Orion lamp costs 20 euros. It is delivered within three days. The lamp is made of brass.",
    "source": "faq.pdf",
    "relevance_score": 0.9,
    "age_days": 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a client got. ``calls``: the number of upstream calls."""

    status: int
    calls: int
    text: str = ""
    finish: str | None = None
    grounding: dict[str, Any]
    error: dict[str, Any]

    @property
    def action(self) -> str:
        return str(self.grounding["action"])

    @property
    def last(self) -> dict[str, Any]:
        """The last decision."""
        decision: dict[str, Any] = self.grounding["decisions"][-1]
        return decision

    @property
    def codes(self) -> list[str]:
        """The reason codes of the decisions that have one."""
        return [each["reason_code"] for each in self.grounding["decisions"] if each["reason_code"]]

    @property
    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.grounding["decisions"]]


def ask(
    gateway: Gateway,
    agent: str,
    reply: str,
    *,
    stream: bool,
    documents: Sequence[Any] | None = (LAMP,),
    question: str = "What does the Orion lamp cost?",
    grounding: dict[str, Any] | None = None,
    **fields: Any,
) -> Answered:
    """Request a reply that the upstream is scripted to give."""
    gateway.upstream.script(answer(reply, stream=stream))
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": question}],
        "grounding": {"agent": agent, **(grounding or {})},
        "stream": stream,
        **fields,
    }
    if documents is not None:
        body["documents"] = list(documents)
    with gateway.call(body) as call:
        status, raw = call.status, call.read_all()
        calls = len(gateway.upstream.exchanges)
        if not stream or status != 200:
            return _whole(status, calls, json.loads(raw))
        reading = call.reading()
    if reading.errors:
        return Answered(status=status, calls=calls, text=reading.text(), grounding={}, error=reading.errors[0])
    summary = next(chunk["grounding"] for chunk in reading.chunks if "action" in chunk.get("grounding", {}))
    (finish,) = reading.finishes()
    return Answered(status=status, calls=calls, text=reading.text(), finish=finish, grounding=summary, error={})


def _whole(status: int, calls: int, body: dict[str, Any]) -> Answered:
    if "error" in body:
        return Answered(status=status, calls=calls, grounding={}, error=body["error"])
    (choice,) = body["choices"]
    return Answered(
        status=status,
        calls=calls,
        text=choice["message"]["content"],
        finish=choice["finish_reason"],
        grounding=body["grounding"],
        error={},
    )
