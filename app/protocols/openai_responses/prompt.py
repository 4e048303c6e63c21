"""Reads the prompt text of a Responses request, and writes documents into the prompt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.protocols.common.document_prompt import documents_block
from judges.types import Chunk


def prompt_text(body: Mapping[str, Any]) -> str:
    """Return all text that is sent upstream with the request. It doesn't include earlier turns that the upstream
    stores."""
    return "\n".join(text for field in ("instructions", "input") for text in _texts(body.get(field)))


def inject(body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
    """Return a copy of the body with ``chunks`` written into the prompt. With ``system``, they follow the instructions.
    Instructions aren't stored in conversations, so the documents don't reappear in a later turn. With ``user``, they
    precede the text of the last user message."""
    block = documents_block(chunks)
    if where == "system":
        given = body.get("instructions")
        if given is None or isinstance(given, str):
            return {**body, "instructions": f"{given}\n\n{block}" if given else block}
        return {**body, "input": [{"role": "developer", "content": block}, *_items(body.get("input"))]}
    asked = body.get("input")
    if asked is None or isinstance(asked, str):
        return {**body, "input": f"{block}\n\n{asked}" if asked else block}
    items = _items(asked)
    last = next((i for i in reversed(range(len(items))) if _is_user(items[i])), None)
    if last is None:
        items.append({"role": "user", "content": block})
    else:
        items[last] = {**items[last], "content": _before(block, items[last].get("content"))}
    return {**body, "input": items}


def _items(asked: Any) -> list[Any]:
    if isinstance(asked, list):
        return list(asked)
    return [{"role": "user", "content": asked}] if asked else []


def _is_user(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def _before(block: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "input_text", "text": block}, *content]
    return f"{block}\n\n{content}" if content else block


def _texts(value: Any) -> Iterator[str]:
    """Yield each text in a string, in items, or in content parts. Tool results count too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                for name in ("content", "text", "output", "arguments", "results"):
                    yield from _texts(item.get(name))
