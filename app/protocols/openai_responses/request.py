"""Reads Responses API requests. They may have the fields ``documents`` and ``grounding``, and tool results among their
input items."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from app.protocols.documents.document_extraction import Documents, Limits, parts_of
from app.protocols.documents.json_body import inside, parse_json, read_flag, refuse
from app.protocols.documents.parsed_request import ParsedRequest, read_model, read_options, wants_json, without
from app.protocols.documents.tool_results import take_result
from judges.types import Chunk

_RESULTS = "file_search_call.results"
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_CALLS = ("function_call", "custom_tool_call")
_TEXTS = ("input_text", "output_text", "text")


def read_responses(raw: bytes, headers: Mapping[str, str], limits: Limits) -> ParsedRequest:
    """Read a Responses request, which may contain the gateway's fields. Raises InvalidRequestError."""
    body = parse_json(raw)
    documents = Documents(limits, any_scale=True)
    documents.take_all(body.get("documents"))
    options = read_options(body.get("grounding"), headers)
    items = _items(body.get("input"))
    forwarded = without(body)
    return ParsedRequest(
        body=forwarded,
        raw=raw if forwarded is body else None,
        chunks=tuple(documents.chunks),
        paths=tuple(documents.paths),
        unscaled=documents.unscaled,
        notes=documents.notes,
        documents=body.get("documents"),
        from_tools=partial(_tool_results, items, limits),
        query=options.query,
        options=options,
        model=read_model(body),
        stream=read_flag(body.get("stream"), "stream"),
        is_json=wants_json(inside(body, "text", "format")),
        include_usage=True,  # responses of this API always report their token counts
        late=_RESULTS in (body["include"] if isinstance(body.get("include"), list) else ()),
    )


def _items(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the input items. A request may have no input, for example if it names a stored prompt or an earlier
    response."""
    if value is None or isinstance(value, str):
        return ()
    if not isinstance(value, list):
        refuse("input", "a string or a list of items", value)
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            refuse(f"input[{index}]", "an object", item)
    return value


def _tool_results(items: Sequence[Mapping[str, Any]], limits: Limits) -> Documents:
    """Return the results of file searches and functions."""
    documents = Documents(limits, prefix="tool")
    named: dict[Any, Any] = {}
    for index, item in enumerate(items):
        kind, call = item.get("type"), item.get("call_id")
        if kind in _CALLS and isinstance(call, str):
            named[call] = item.get("name")
        elif kind in _OUTPUTS:
            name = named.get(call) if isinstance(call, str) else None
            take_result(documents, _text(item.get("output")), f"input[{index}].output", tool=name)
        elif kind == "file_search_call":
            take_search(documents, item, f"input[{index}]")
    return documents


def take_search(
    documents: Documents, item: Mapping[str, Any], path: str, *, is_name: Callable[[str], bool] = bool
) -> None:
    """Add the passages of a file search, if ``item`` has any. File names are used only if ``is_name`` accepts them. A
    passage is left out if ``is_name`` rejects its collection. Raises InvalidRequestError if the passages exceed the
    limits."""
    for result, where in parts_of(item.get("results"), f"{path}.results"):
        if (chunk := _found(result, documents.next_id, is_name)) is not None:
            documents.add(chunk, where)


def _found(result: Mapping[str, Any], identifier: str, is_name: Callable[[str], bool]) -> Chunk | None:
    """Parse a result of a file search. Return None if it has no text, or if ``is_name`` rejects its collection."""
    text, score, attributes = result.get("text"), result.get("score"), result.get("attributes")
    if not isinstance(text, str) or not text.strip():
        return None
    given = attributes.get("collection") if isinstance(attributes, dict) else None
    collection = given if isinstance(given, str) and given else None
    if collection is not None and not is_name(collection):
        return None
    share = score if isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1 else None
    given_names = result.get("filename"), result.get("file_id")
    names = [name for name in given_names if isinstance(name, str) and is_name(name)]
    return Chunk(
        id=identifier,
        text=text,
        source=names[0] if names else None,
        collection=collection,
        relevance_score=None if share is None else float(share),
        metadata=attributes if isinstance(attributes, dict) else {},
    )


def _text(output: Any) -> str:
    if isinstance(output, str):
        return output
    texts = (part.get("text") for part, _ in parts_of(output, "") if part.get("type") in _TEXTS)
    return "\n".join(text for text in texts if isinstance(text, str))
