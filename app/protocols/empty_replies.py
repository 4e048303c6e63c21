"""Builds empty upstream replies for requests that are blocked before the upstream is called. An empty reply is
processed like any other, and its text becomes the replacement that the policies specify."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson

_NO_TOKENS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def empty_reply(api: str, *, model: str | None, choices: int = 1) -> bytes:
    """Build the JSON body of a whole reply without text. ``api`` names the protocol, and ``choices`` is the requested
    number of choices."""
    return orjson.dumps(_BY_API[api](model or "", choices))


def _chat(model: str, choices: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": "", "refusal": None}
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": _now(),
        "model": model,
        "choices": [
            {"index": index, "message": message, "logprobs": None, "finish_reason": "stop"} for index in range(choices)
        ],
        "usage": _NO_TOKENS,
    }


def _completions(model: str, choices: int) -> dict[str, Any]:
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": _now(),
        "model": model,
        "choices": [
            {"index": index, "text": "", "logprobs": None, "finish_reason": "stop"} for index in range(choices)
        ],
        "usage": _NO_TOKENS,
    }


def _responses(model: str, _choices: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": "", "annotations": []}
    message = {"type": "message", "id": f"msg_{uuid4().hex}", "status": "completed", "role": "assistant"}
    return {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": _now(),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [{**message, "content": [text]}],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        },
    }


def _messages(model: str, _choices: int) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": ""}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


_BY_API: Mapping[str, Callable[[str, int], dict[str, Any]]] = {
    "chat.completions": _chat,
    "completions": _completions,
    "responses": _responses,
    "messages": _messages,
}


def _now() -> int:
    return int(datetime.now(UTC).timestamp())
