"""Calls of the official OpenAI SDK, and their results in a common format."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openai import AsyncOpenAI, OpenAI

from tests.support.apis.scripted_answers import USAGE
from tests.support.gateways.live_gateway import Gateway, Trace

PLANS = "The basic plan costs 9 euros a month. "
SUPPORT = "Support answers within two days."
LIE = "The basic plan includes a free boat."

DOCUMENTS: list[dict[str, Any]] = [
    {
        "id": "plans",
        "text": "The basic plan costs 9 euros a month.",
        "source": "plans.md",
        "collection": "kb",
        "relevance_score": 0.92,
        "age_days": 14,
        "title": "Plans",
        "url": "https://docs.test/plans",
    },
    {
        "id": "support",
        "text": "Support answers within two days.",
        "source": "support.md",
        "collection": "kb",
        "relevance_score": 0.81,
        "age_days": 3,
    },
]
CLOSED = {"min_citations": 0, "min_grounding_score": 0.0, "contradiction_action": "block"}
"""Only a contradiction blocks, so it is the only reason."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """A client's result in a common format, streamed or not."""

    text: str = ""
    finish: str | None = None
    grounding: dict[str, Any] | None = None
    annotations: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, int] | None = None
    request_id: str = ""
    per_sentence: list[dict[str, Any]] = field(default_factory=list)
    """The ``grounding`` objects that came before the summary."""


Ask = Callable[..., Seen]


def request_of(agent: str | None, documents: list[dict[str, Any]] | None, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": "test-model-1",
        "messages": [{"role": "user", "content": "What does it cost?"}],
        **options.pop("fields", {}),
    }
    extra: dict[str, Any] = {}
    if documents is not None:
        extra["documents"] = documents
    grounding = {**({"agent": agent} if agent else {}), **options}
    if grounding:
        extra["grounding"] = grounding
    return {**body, "extra_body": extra}


def plain(value: Any) -> Any:
    """SDK models as plain values."""
    return value.model_dump() if hasattr(value, "model_dump") else value


def seen_whole(completion: Any, headers: Any) -> Seen:
    choice = completion.choices[0]
    return Seen(
        text=choice.message.content or "",
        finish=choice.finish_reason,
        grounding=(completion.model_extra or {}).get("grounding"),
        annotations=[plain(entry) for entry in choice.message.annotations or ()],
        usage=counts(completion.usage),
        request_id=headers["x-groundlane-request-id"],
    )


class Gatherer:
    """Puts the chunks of a stream together, as an application would."""

    def __init__(self, headers: Any) -> None:
        self.seen = Seen(request_id=headers["x-groundlane-request-id"])

    def take(self, piece: Any) -> None:
        seen = self.seen
        if piece.usage is not None:
            seen.usage = counts(piece.usage)
        grounding = (piece.model_extra or {}).get("grounding")
        if grounding is not None:
            if "verdict" in grounding:
                seen.grounding = grounding
            else:
                seen.per_sentence.append(grounding)
        for choice in piece.choices:
            if choice.index:
                continue
            seen.text += choice.delta.content or ""
            seen.finish = choice.finish_reason or seen.finish
            seen.annotations += [plain(e) for e in (choice.delta.model_extra or {}).get("annotations", ())]


def counts(usage: Any) -> dict[str, int] | None:
    if usage is None:
        return None
    return {name: getattr(usage, name) for name in USAGE}


def ask_sync(gateway: Gateway, stream: bool, body: dict[str, Any]) -> Seen:
    with OpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client:
        raw_api = client.chat.completions.with_raw_response
        if not stream:
            raw = raw_api.create(**body)
            return seen_whole(raw.parse(), raw.headers)
        with client.chat.completions.with_streaming_response.create(**body, stream=True) as response:
            gatherer = Gatherer(response.headers)
            for piece in response.parse():
                gatherer.take(piece)
        return gatherer.seen


def ask_async(gateway: Gateway, stream: bool, body: dict[str, Any]) -> Seen:
    async def ask() -> Seen:
        async with AsyncOpenAI(api_key="sk-client", base_url=gateway.base_url, max_retries=0) as client:
            if not stream:
                raw = await client.chat.completions.with_raw_response.create(**body)
                return seen_whole(raw.parse(), raw.headers)
            async with client.chat.completions.with_streaming_response.create(**body, stream=True) as response:
                gatherer = Gatherer(response.headers)
                async for piece in await response.parse():
                    gatherer.take(piece)
            return gatherer.seen

    return asyncio.run(ask())


def citation(annotation: dict[str, Any]) -> dict[str, Any]:
    inner = annotation[annotation["type"]]
    assert isinstance(inner, dict)
    return inner


def left(trace: Trace, **expected: Any) -> None:
    """The request's row has exactly these values."""
    assert {name: trace.request[name] for name in expected} == expected


def raw_body(agent: str | None, **grounding: Any) -> dict[str, Any]:
    """The same request without an SDK."""
    body = request_of(agent, DOCUMENTS, **grounding)
    extra = body.pop("extra_body")
    return {**body, **extra}


def known(completion: dict[str, Any]) -> dict[str, Any]:
    """A completion without the field that isn't in OpenAI's API, which no policy lets pass."""
    return {name: value for name, value in completion.items() if name != "x_vendor"}
