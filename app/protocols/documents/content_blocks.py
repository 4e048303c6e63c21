"""Content blocks that are evidence by their type: Anthropic's, Cohere's, and ``grounding_source`` parts.

A block without readable text (a PDF, a link) is not evidence; it goes upstream unchanged.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from app.protocols.documents.collection import Documents

GROUNDING_SOURCE = "grounding_source"
TOOL_RESULT = "tool_result"


def take_blocks(documents: Documents, content: Any, path: str) -> None:
    """Add each block of ``content`` that is evidence, including those in tool results. Raises InvalidRequestError."""
    for part, where in parts_of(content, path):
        kind = part.get("type")
        if kind == GROUNDING_SOURCE:
            documents.take({name: value for name, value in part.items() if name != "type"}, where)
        elif kind == "search_result":
            _take(documents, part, part.get("content"), where)
        elif kind == "document" and isinstance(part.get("document"), dict):  # Cohere's
            documents.take({"document": part["document"]}, where)
        elif kind == "document":
            _take(documents, part, _content(part), where)
        elif kind == TOOL_RESULT:
            take_blocks(documents, part.get("content"), f"{where}.content")


def parts_of(content: Any, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The typed parts of ``content``, each with its path; none if it is a string."""
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, dict):
            yield part, f"{path}[{index}]"


def plain_text(content: Any) -> str:
    """The text of a string or of text parts; other parts have none."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part, _ in parts_of(content, "") if part.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))


def _content(part: Mapping[str, Any]) -> Any:
    """The content of a ``document`` block, which may be text or blocks."""
    source = part.get("source")
    if not isinstance(source, dict):
        return None
    return source.get("data") if source.get("type") == "text" else source.get("content")


def _take(documents: Documents, part: Mapping[str, Any], content: Any, path: str) -> None:
    text = plain_text(content)
    if text.strip():
        named = {name: part[name] for name in ("source", "title") if isinstance(part.get(name), str)}
        documents.take({"text": text, **named}, path)
