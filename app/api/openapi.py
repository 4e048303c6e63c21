"""Completes ``/openapi.json``: bodies that handlers parse themselves, authentication, and errors.

The bodies of the LLM APIs are those of OpenAI and Anthropic. Only fields that the gateway reads are described. All
others are forwarded, so the schemas are open.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from app.protocols.documents.options import Options, Reported
from app.runs.run_requests import RunCompletion, RunStart
from policies.grounding.rules import GroundingRules

Json = dict[str, Any]

_SCHEMAS = "#/components/schemas/"
_TEXT: Json = {"type": "string"}
_OBJECT: Json = {"type": "object", "additionalProperties": True}
_OBJECTS: Json = {"type": "array", "items": _OBJECT}
_STREAMS: Json = {"type": "boolean"}


def _ref(name: str) -> Json:
    return {"$ref": f"{_SCHEMAS}{name}"}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _open(required: list[str], **fields: Json) -> Json:
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": True}


def _closed(required: list[str], **fields: Json) -> Json:
    return {**_open(required, **fields), "additionalProperties": False}


_OURS: Json = {"documents": _ref("Documents"), "grounding": _or_null(_ref("Options"))}
_SCORE: Json = {"type": "number", "minimum": 0, "maximum": 1}
_ERROR_TEXT = _or_null(_TEXT)

_COMPONENTS: Json = {
    "RetrievedDocument": _open(
        [],
        id={"type": ["string", "integer", "null"]},
        text={"description": "A string, or a list of strings and text parts", "type": ["string", "array", "null"]},
        source=_or_null(_TEXT),
        collection=_or_null(_TEXT),
        relevance_score=_or_null(_SCORE),
        age_days=_or_null({"type": "number", "minimum": 0}),
        title=_or_null(_TEXT),
        url=_or_null(_TEXT),
        metadata=_or_null(_OBJECT),
    )
    | {"description": "Other field names are accepted too: see docs/apis/documents.md"},
    "Documents": {
        "anyOf": [
            {"type": "array", "items": {"anyOf": [{"type": "string", "minLength": 1}, _ref("RetrievedDocument")]}},
            {"type": "null"},
        ]
    },
    "ChatRequest": _open(
        ["messages"],
        model=_or_null(_TEXT),
        messages={**_OBJECTS, "minItems": 1},
        stream=_or_null(_STREAMS),
        n=_or_null({"type": "integer", "minimum": 1, "maximum": 128}),
        stream_options=_or_null(_OBJECT),
        response_format=_or_null(_OBJECT),
        extra_body=_or_null(_OBJECT),
        chat_template_kwargs=_or_null(_OBJECT),
        **_OURS,
    ),
    "CompletionRequest": _open(
        [],
        model=_or_null(_TEXT),
        prompt={"description": "A string, a list of strings, or token ids", "type": ["string", "array", "null"]},
        stream=_or_null(_STREAMS),
        n=_or_null({"type": "integer", "minimum": 1, "maximum": 128}),
        echo=_or_null({"type": "boolean"}),
        **_OURS,
    ),
    "ResponsesRequest": _open(
        [],
        model=_or_null(_TEXT),
        input={"anyOf": [_TEXT, _OBJECTS, {"type": "null"}]},
        stream=_or_null(_STREAMS),
        include={"type": ["array", "null"], "items": _TEXT},
        **_OURS,
    ),
    "MessagesRequest": _open(
        ["messages"], model=_or_null(_TEXT), messages=_OBJECTS, stream=_or_null(_STREAMS), **_OURS
    ),
    "CheckRequest": _closed(
        ["text"],
        text=_TEXT,
        sources={"type": ["array", "null"], "items": _TEXT},
        documents=_ref("Documents"),
        policy=_or_null(_TEXT),
        options=_or_null(_ref("GroundingRules")),
    ),
    "Error": _open(
        ["error"],
        error=_open(
            ["message"],
            message=_TEXT,
            type=_ERROR_TEXT,
            param=_ERROR_TEXT,
            code={"type": ["string", "integer", "null"]},
        ),
    )
    | {"description": "In the format of the API that was called. An upstream's errors are forwarded unchanged"},
    "Problem": _open(
        ["type", "title", "status", "detail"],
        type=_TEXT,
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        errors={"type": "array", "items": _open(["loc", "msg"], loc={"type": "array"}, msg=_TEXT)},
    )
    | {"description": "RFC 9457"},
}

_BODIES: Mapping[str, str] = {
    "/v1/chat/completions": "ChatRequest",
    "/v1/completions": "CompletionRequest",
    "/v1/responses": "ResponsesRequest",
    "/v1/messages": "MessagesRequest",
    "/v1/grounding/check": "CheckRequest",
    "/v1/runs": "RunStart",
    "/v1/runs/{run_id}/retrieval": "RetrievedDocument",
    "/v1/runs/{run_id}/grounding": "Reported",
    "/v1/runs/{run_id}/complete": "RunCompletion",
}
_MAY_BE_EMPTY = "/v1/runs"
_STREAMED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
_FILES: Json = {"application/jsonl": {}, "text/csv": {}}

_KEYS: Json = {
    "adminToken": {"type": "http", "scheme": "bearer", "description": "The admin token"},
    "gatewayKey": {"type": "http", "scheme": "bearer", "description": "A gateway key, if the gateway requires one"},
}


def describe(schema: Json) -> Json:
    """Complete the framework's schema, in place."""
    _, read = models_json_schema(
        [(model, "validation") for model in (Options, Reported, RunStart, RunCompletion, GroundingRules)],
        ref_template=_SCHEMAS + "{model}",
    )
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(_COMPONENTS | read.get("$defs", {}))
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's format, which isn't used here
        schemas.pop(name, None)
    components["securitySchemes"] = _KEYS
    for path, operation in _operations(schema):
        if path.startswith("/admin/"):
            _describe_admin(path, operation)
        elif path.startswith("/v1/"):
            _describe_v1(path, operation)
    return schema


def _operations(schema: Json) -> Iterator[tuple[str, Json]]:
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            yield path, operation


def _describe_admin(path: str, operation: Json) -> None:
    operation["security"] = [{"adminToken": []}]
    responses = operation["responses"]
    responses.pop("422", None)
    if path.endswith("/export"):
        responses["200"]["content"] = _FILES
    responses["default"] = {
        "description": "Error",
        "content": {"application/problem+json": {"schema": _ref("Problem")}},
    }


def _describe_v1(path: str, operation: Json) -> None:
    operation["security"] = [{}, {"gatewayKey": []}]
    responses = operation["responses"]
    responses.pop("422", None)
    if path in _STREAMED:
        responses["200"]["content"] = {"application/json": {"schema": _OBJECT}, "text/event-stream": {}}
    responses["default"] = {"description": "Error", "content": {"application/json": {"schema": _ref("Error")}}}
    if (body := _BODIES.get(path)) is not None:
        operation["requestBody"] = {
            "required": not path.startswith(_MAY_BE_EMPTY),
            "content": {"application/json": {"schema": _ref(body)}},
        }
