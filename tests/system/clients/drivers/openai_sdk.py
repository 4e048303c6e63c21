"""The official SDK's helpers; plain calls are in ``e2e/sdks/test_openai_sdk.py``."""

import asyncio
from typing import Any

from openai import AsyncOpenAI, BadRequestError, ContentFilterFinishReasonError, OpenAI

from tests.system.clients.scenario import MODEL, PROMPT, Question, Refusal, Seen


def ask(question: Question) -> Seen:
    """Whole: ``with_streaming_response``. Streamed: the ``stream`` helper."""
    with OpenAI(api_key="sk-client", base_url=question.base_url) as client:
        api = client.chat.completions
        try:
            if not question.stream:
                with api.with_streaming_response.create(**_arguments(question)) as response:
                    return _of_body(response.parse(), response.headers)
            with api.stream(**_arguments(question)) as stream:
                events = list(stream)
                try:
                    text, finish = _of_final(stream.get_final_completion())
                except ContentFilterFinishReasonError:
                    text, finish = None, "content_filter"
                return _of_events(events, text, finish)
        except BadRequestError as error:
            return refused(error)


def ask_async(question: Question) -> Seen:
    """Whole: ``with_raw_response``. Streamed: the asynchronous ``stream`` helper."""

    async def run() -> Seen:
        async with AsyncOpenAI(api_key="sk-client", base_url=question.base_url) as client:
            api = client.chat.completions
            if not question.stream:
                raw = await api.with_raw_response.create(**_arguments(question))
                return _of_body(raw.parse(), raw.headers)
            async with api.stream(**_arguments(question)) as stream:
                events = [event async for event in stream]
                try:
                    text, finish = _of_final(await stream.get_final_completion())
                except ContentFilterFinishReasonError:
                    text, finish = None, "content_filter"
                return _of_events(events, text, finish)

    try:
        return asyncio.run(run())
    except BadRequestError as error:
        return refused(error)


def refused(error: BadRequestError) -> Seen:
    fields = {"type": error.type, "code": error.code, "param": error.param}
    return Seen(refusal=Refusal.of(error.status_code, fields), everything=error.response.text)


def _arguments(question: Question) -> dict[str, Any]:
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": MODEL, "messages": messages, "extra_body": question.extension}


def _of_body(completion: Any, headers: Any) -> Seen:
    choice = completion.choices[0]
    grounding = (completion.model_extra or {}).get("grounding", {})
    assert headers.get("x-groundlane-verdict") == grounding.get("verdict", "no_sources")
    return Seen(
        text=choice.message.content,
        finish=choice.finish_reason,
        verdict=grounding.get("verdict"),
        everything=completion.model_dump_json(),
    )


def _of_final(completion: Any) -> tuple[str, str]:
    return completion.choices[0].message.content, completion.choices[0].finish_reason


def _of_events(events: list[Any], text: str | None, finish: str) -> Seen:
    """The helper's final completion omits unknown fields, so the verdict is read from the chunk events."""
    groundings = [(event.chunk.model_extra or {}).get("grounding", {}) for event in events if event.type == "chunk"]
    joined = "".join(event.delta for event in events if event.type == "content.delta")
    assert text in (None, joined)
    return Seen(
        text=joined,
        finish=finish,
        verdict=next((found["verdict"] for found in groundings if "verdict" in found), None),
        everything=repr(events),
    )
