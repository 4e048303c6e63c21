"""Well-formed upstream answers with given texts, streamed and whole."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.gateways.mock_upstream import Reply, json_reply

USAGE = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}
_HEAD = {"id": "chatcmpl-1", "created": 1790000000, "model": "test-model-1", "system_fingerprint": "fp_7"}


def whole(*texts: str, finish: str = "stop", message: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a ``chat.completion`` with one choice for each text."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None, **(message or {})},
            "logprobs": None,
            "finish_reason": finish,
        }
        for index, text in enumerate(texts)
    ]
    return {**_HEAD, "object": "chat.completion", "choices": choices, "usage": USAGE, "x_vendor": {"kept": True}}


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def chunk(index: int, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": index, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
    return event({**_HEAD, "object": "chat.completion.chunk", "choices": [choice]})


def streamed(*texts: str, finish: str = "stop", usage: bool = False) -> list[bytes]:
    """Return the same as a stream, word by word, with alternating choices."""
    words = [re.findall(r"\s*\S+|\s+$", text) for text in texts]
    chunks = [chunk(index, {"role": "assistant", "content": ""}) for index in range(len(texts))]
    for turn in range(max(map(len, words), default=0)):
        chunks += [chunk(index, {"content": of[turn]}) for index, of in enumerate(words) if turn < len(of)]
    chunks += [chunk(index, {}, finish) for index in range(len(texts))]
    if usage:
        chunks.append(event({**_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}))
    return [*chunks, b"data: [DONE]\n\n"]


def answer(*texts: str, stream: bool, **options: Any) -> Reply:
    """Return the upstream's answer with these texts."""
    if stream:
        return Reply(chunks=streamed(*texts, **options), pause_s=0)
    options.pop("usage", None)
    return json_reply(whole(*texts, **options))


def joined(chunks: Sequence[bytes]) -> bytes:
    return b"".join(chunks)
