"""The guardrail alone."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from groundlane.integrations.litellm import GroundlaneGuardrail
from litellm.types.utils import ModelResponse, ModelResponseStream


class _Record:
    """Stands for LiteLLM's record of a request."""


def stream(base_url: str, chunks: Sequence[Any], documents: Sequence[str], **options: Any) -> list[Any]:
    """Check a stream whose chunks have the choices ``chunks``. Return the choices that are delivered."""
    guardrail = GroundlaneGuardrail(
        guardrail_name="grounded", event_hook=["pre_call", "post_call"], api_base=base_url, **options
    )

    async def given() -> AsyncIterator[ModelResponseStream]:
        for choices in chunks:
            yield ModelResponseStream(id="chunk", choices=list(choices))

    async def checked() -> list[Any]:
        data: dict[str, Any] = {"documents": list(documents), "litellm_logging_obj": _Record()}
        await guardrail.async_pre_call_hook(None, None, data, "acompletion")
        found = guardrail.async_post_call_streaming_iterator_hook(None, given(), data)
        return [choice async for chunk in found for choice in chunk.model_dump(exclude_none=True)["choices"]]

    return asyncio.run(checked())


def answered(base_url: str, body: Mapping[str, Any], stream: bool, documents: Sequence[str], **options: Any) -> str:
    """Check the reply "Yes." to the request ``body``. Return what is delivered."""
    guardrail = GroundlaneGuardrail(
        guardrail_name="grounded", event_hook=["pre_call", "post_call"], api_base=base_url, **options
    )
    said = {"index": 0, "finish_reason": "stop"}

    async def given() -> AsyncIterator[ModelResponseStream]:
        yield ModelResponseStream(id="chunk", choices=[{**said, "delta": {"content": "Yes."}}])

    async def checked() -> str:
        data: dict[str, Any] = {**body, "documents": list(documents), "litellm_logging_obj": _Record()}
        await guardrail.async_pre_call_hook(None, None, data, "acompletion")
        if not stream:
            reply = ModelResponse(choices=[{**said, "message": {"role": "assistant", "content": "Yes."}}])
            return str((await guardrail.async_post_call_success_hook(data, None, reply)).choices[0].message.content)
        found = guardrail.async_post_call_streaming_iterator_hook(None, given(), data)
        return "".join([choice.delta.content or "" async for chunk in found for choice in chunk.choices])

    return asyncio.run(checked())


def refused(**options: Any) -> str:
    """The error for an invalid argument."""
    try:
        GroundlaneGuardrail(guardrail_name="grounded", **options)
    except ValueError as error:
        return str(error)
    return ""
