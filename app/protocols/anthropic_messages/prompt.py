"""Reads the prompt text of a Messages request, and writes documents into the prompt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.protocols.common.document_prompt import documents_block
from judges.types import Chunk


def prompt_text(body: Mapping[str, Any]) -> str:
    """Return all text that is sent upstream with the request."""
    contents = [body.get("system"), *(message.get("content") for message in body["messages"])]
    return "\n".join(text for content in contents for text in _texts(content))


def _texts(content: Any) -> Iterator[str]:
    """Yield all text in the content of a message, including text in documents and tool results."""
    if isinstance(content, str):
        yield content
        return
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            yield block["text"]
        source = block.get("source")
        if isinstance(source, dict):
            yield from _texts(source.get("data") if source.get("type") == "text" else source.get("content"))
        yield from _texts(block.get("content"))


def inject(body: Mapping[str, Any], chunks: Sequence[Chunk], *, where: str) -> dict[str, Any]:
    """Return a copy of the body with ``chunks`` written into the prompt. With ``system``, they follow the system
    prompt. With ``user``, they precede the content of the last user message, except tool results, which must come
    first."""
    text = documents_block(chunks)
    block = {"type": "text", "text": text}
    if where == "system":
        system = body.get("system")
        joined = [*system, block] if isinstance(system, list) else f"{system}\n\n{text}" if system else text
        return {**body, "system": joined}
    messages = list(body["messages"])
    last = next((i for i in reversed(range(len(messages))) if messages[i].get("role") == "user"), None)
    if last is None:
        return {**body, "messages": [*messages, {"role": "user", "content": text}]}
    content = messages[last].get("content")
    if isinstance(content, list):
        after = next((i for i, part in enumerate(content) if not _is_tool_result(part)), len(content))
        messages[last] = {**messages[last], "content": [*content[:after], block, *content[after:]]}
    else:
        messages[last] = {**messages[last], "content": f"{text}\n\n{content}" if content else text}
    return {**body, "messages": messages}


def _is_tool_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"
