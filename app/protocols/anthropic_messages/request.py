"""Reads Anthropic Messages requests: the gateway's additional fields, and documents in content blocks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.errors import InvalidRequestError
from app.protocols.documents.document_extraction import Documents, Limits, parts_of, plain_text
from app.protocols.documents.json_body import inside, join_path, parse_json, read_flag, refuse
from app.protocols.documents.parsed_request import ParsedRequest, Path, read_model, read_options, wants_json, without
from app.protocols.documents.tool_results import take_result
from judges.types import Chunk

_WEB = ("http://", "https://")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentBlock:
    """A ``document`` or ``search_result`` block of a request. ``texts`` contains its parts in order, with an empty
    string for each part that is not text. ``plain`` means that its content is a single string. ``document`` is its
    position among the documents of the request, or None if it contains no text."""

    kind: str
    path: Path
    texts: Sequence[str]
    plain: bool
    source: str | None
    title: str | None
    document: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRequest:
    """A parsed request and its document blocks, in the order in which the API numbers them."""

    parsed: ParsedRequest
    blocks: Sequence[DocumentBlock]


def read_messages(raw: bytes, headers: Mapping[str, str], limits: Limits) -> MessagesRequest:
    """Read a Messages request, which may contain the gateway's fields. Raises InvalidRequestError."""
    body = parse_json(raw)
    documents = Documents(limits, any_scale=True)
    documents.take_all(body.get("documents"))
    options = read_options(body.get("grounding"), headers)
    messages = _messages(body.get("messages"))
    blocks = [_read(block, path, documents) for block, path in _evidence(messages)]
    forwarded = without(body)
    fixed = any(block.document is not None and _leaves_nothing(messages, block.path) for block in blocks)
    readable = {block.document: block.path for block in blocks if block.document is not None}
    parsed = ParsedRequest(
        body=forwarded,
        raw=raw if forwarded is body else None,
        chunks=tuple(documents.chunks),
        paths=tuple(documents.paths),
        unscaled=documents.unscaled,
        documents=body.get("documents"),
        blocks={} if fixed else readable,
        standing=len(readable) if fixed else 0,
        from_tools=partial(_tool_results, messages, limits),
        notes=(*documents.notes, *(_note(block) for block in blocks if block.document is None)),
        options=options,
        model=read_model(body),
        stream=read_flag(body.get("stream"), "stream"),
        is_json=wants_json(body.get("output_format") or inside(body, "output_config", "format")),
        include_usage=True,  # messages of this API always report their token counts
    )
    return MessagesRequest(parsed=parsed, blocks=blocks)


def _messages(value: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list):
        refuse("messages", "a list of messages", value)
    if not value:
        raise InvalidRequestError("messages: the list is empty; at least one message is required.", param="messages")
    for index, message in enumerate(value):
        if not isinstance(message, dict):
            refuse(f"messages[{index}]", "an object", message)
    return value


def _evidence(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Yield each block that is a document, with its path. The blocks may be in messages or in tool results."""
    for number, message in enumerate(messages):
        yield from _evidence_in(message, ("messages", number))


def _evidence_in(holder: Mapping[str, Any], path: Path) -> Iterator[tuple[Mapping[str, Any], Path]]:
    content = holder.get("content")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        where = (*path, "content", index)
        if _is_evidence(block):
            yield block, where
        elif isinstance(block, dict) and block.get("type") == "tool_result":
            yield from _evidence_in(block, where)


def _is_evidence(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("document", "search_result")


def _read(block: Mapping[str, Any], path: Path, documents: Documents) -> DocumentBlock:
    given = block.get("source")
    named = {name: block[name] for name in ("source", "title") if isinstance(block.get(name), str) and block[name]}
    texts, plain = _texts(block, given)
    source, title = named.get("source"), named.get("title")
    position = None
    if any(text.strip() for text in texts):
        position = len(documents.chunks)
        context = block.get("context")
        chunk = Chunk(
            id=documents.next_id,
            text="\n".join(texts),
            source=source or title,
            title=title,
            url=source if source is not None and source.startswith(_WEB) else None,
            metadata={"context": context} if isinstance(context, str) else {},
        )
        documents.add(chunk, join_path("", path))
    return DocumentBlock(
        kind=str(block["type"]), path=path, texts=texts, plain=plain, source=source, title=title, document=position
    )


def _texts(block: Mapping[str, Any], source: Any) -> tuple[Sequence[str], bool]:
    """Return the texts of a block, and whether its content is a single string. A block without text, such as a PDF or a
    file, has no texts."""
    content = block.get("content")
    if block["type"] == "document":
        kind = source.get("type") if isinstance(source, dict) else None
        content = source.get("data") if kind == "text" else source.get("content") if kind == "content" else None
    if isinstance(content, str):
        return (content,), True
    return [plain_text([part]) for part, _ in parts_of(content, "")], False


def _leaves_nothing(messages: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Return whether the message at ``path`` would be empty without its documents."""
    if len(path) > len(("messages", 0, "content", 0)):
        return False  # a tool result may be empty
    return all(_is_evidence(block) for block in messages[int(path[1])]["content"])


def _note(block: DocumentBlock) -> str:
    return (
        f"{join_path('', block.path)}: the {block.kind} is sent upstream, but contains no text that can be used "
        "as evidence"
    )


def _tool_results(messages: Sequence[Mapping[str, Any]], limits: Limits) -> Documents:
    """Return the tool results that are plain text rather than document blocks."""
    documents = Documents(limits, prefix="tool")
    named: dict[Any, Any] = {}
    for number, message in enumerate(messages):
        for block, path in parts_of(message.get("content"), f"messages[{number}].content"):
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                named[block["id"]] = block.get("name")
            elif block.get("type") == "tool_result":
                call = block.get("tool_use_id")
                name = named.get(call) if isinstance(call, str) else None
                take_result(documents, plain_text(block.get("content")), f"{path}.content", tool=name)
    return documents
