"""Chat Completions requests."""

from collections.abc import Mapping
from typing import Any

from app.errors import InvalidRequestError
from app.intake.documents import Documents, Limits
from app.intake.fields import refuse
from app.intake.options import read_options
from app.intake.request import Intake, parse_json, read_choices, read_model, read_stream, refuse_constants, without


def read_chat(raw: bytes, headers: Mapping[str, str], limits: Limits) -> Intake:
    """Read a Chat Completions request with our extension. Raises InvalidRequestError."""
    body = parse_json(raw)
    documents = Documents(limits)
    documents.take_all(body.get("documents"))
    options = read_options(body.get("grounding"), headers)
    refuse_constants(body)
    _check_messages(body.get("messages"))
    model = read_model(body)
    stream, include_usage = read_stream(body)
    forwarded = without(body)
    return Intake(
        body=forwarded,
        raw=raw if forwarded is body else None,
        chunks=documents.chunks,
        paths=documents.paths,
        documents=body.get("documents"),
        options=options,
        model=model,
        stream=stream,
        choices=read_choices(body),
        include_usage=include_usage,
    )


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list):
        refuse("messages", "a list of messages", messages)
    if not messages:
        raise InvalidRequestError("messages: the list is empty, at least one message is needed.", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            refuse(f"messages[{index}]", "an object", message)
