"""Reads plain (legacy) completion requests, which have a prompt instead of messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import InvalidRequestError
from app.protocols.documents.document_extraction import Documents, Limits
from app.protocols.documents.json_body import parse_json, read_flag, refuse
from app.protocols.documents.parsed_request import (
    ParsedRequest,
    read_choices,
    read_model,
    read_options,
    read_stream,
    wants_json,
    without,
)

_EXPECTED = "a string, a list of strings, or token ids"


def read_text(raw: bytes, headers: Mapping[str, str], limits: Limits) -> ParsedRequest:
    """Read a completion request, which may contain the gateway's fields. Raises InvalidRequestError."""
    body = parse_json(raw)
    documents = Documents(limits, any_scale=True)
    documents.take_all(body.get("documents"))
    options = read_options(body.get("grounding"), headers)
    prompts = read_prompts(body.get("prompt"))
    if options.inject != "none" and documents.chunks and None in prompts:
        raise InvalidRequestError(
            "prompt: documents can be added only to a text prompt, not to token ids.", param="prompt"
        )
    read_flag(body.get("echo"), "echo")
    stream, include_usage = read_stream(body)
    forwarded = without(body)
    return ParsedRequest(
        body=forwarded,
        raw=raw if forwarded is body else None,
        chunks=tuple(documents.chunks),
        paths=tuple(documents.paths),
        unscaled=documents.unscaled,
        notes=documents.notes,
        documents=body.get("documents"),
        query=options.query,
        options=options,
        model=read_model(body),
        stream=stream,
        choices=len(prompts) * read_choices(body),
        include_usage=include_usage,
        is_json=wants_json(body.get("response_format")),
    )


def read_prompts(prompt: Any) -> Sequence[str | None]:
    """Return the prompts of a request. A prompt of token ids is returned as None. If the request has no prompt, return
    a single empty prompt."""
    if prompt is None or isinstance(prompt, str):
        return (prompt or "",)
    if not isinstance(prompt, list):
        refuse("prompt", _EXPECTED, prompt)
    if not prompt:
        raise InvalidRequestError("prompt: the list is empty; at least one prompt is required.", param="prompt")
    if _is_token(prompt[0]):
        _check_tokens(prompt, "prompt")
        return (None,)
    return [_read_prompt(item, f"prompt[{index}]") for index, item in enumerate(prompt)]


def _read_prompt(item: Any, path: str) -> str | None:
    if isinstance(item, str):
        return item
    if not isinstance(item, list):
        refuse(path, _EXPECTED, item)
    _check_tokens(item, path)
    return None


def _check_tokens(tokens: Sequence[Any], path: str) -> None:
    for index, token in enumerate(tokens):
        if not _is_token(token):
            refuse(f"{path}[{index}]", "a token id", token)


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
