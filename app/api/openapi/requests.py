"""Schemas of the request bodies that handlers parse themselves, and of errors.

The LLM APIs accept the request bodies of OpenAI and Anthropic. These schemas describe only the fields that the gateway
reads. They are open, because all other fields are forwarded.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from app.protocols.documents.parsed_request import Options, Reported
from app.runs.run_requests import RunCompletion, RunStart
from policies.grounding.rules import GroundingRules

Json = dict[str, Any]

_SCHEMAS = "#/components/schemas/"
_TEXT: Json = {"type": "string"}
_OBJECT: Json = {"type": "object", "additionalProperties": True}
_OBJECTS: Json = {"type": "array", "items": _OBJECT}
_INTEGERS: Json = {"type": "array", "items": {"type": "integer"}}
_PLACE: Json = {"type": "array", "items": {"anyOf": [_TEXT, {"type": "integer"}]}}
_STREAMS: Json = {"type": "boolean"}


def ref(name: str) -> Json:
    return {"$ref": f"{_SCHEMAS}{name}"}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _open(required: list[str], **fields: Json) -> Json:
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": True}


def _closed(required: list[str], **fields: Json) -> Json:
    return {**_open(required, **fields), "additionalProperties": False}


_OURS: Json = {"documents": ref("Documents"), "grounding": _or_null(ref("Options"))}
_SCORE: Json = {"type": "number", "minimum": 0, "maximum": 1}
_ERROR_TEXT = _or_null(_TEXT)

COMPONENTS: Json = {
    "RetrievedDocument": _open(
        [],
        id={"type": ["string", "integer", "null"]},
        text={
            "description": "A string, or a list of strings and text parts",
            "anyOf": [_TEXT, {"type": "array", "items": {"anyOf": [_TEXT, _OBJECT]}}, {"type": "null"}],
        },
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
            {"type": "array", "items": {"anyOf": [{"type": "string", "minLength": 1}, ref("RetrievedDocument")]}},
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
        prompt={
            "description": "A string, a list of strings, or token ids",
            "anyOf": [
                _TEXT,
                {"type": "array", "items": {"anyOf": [_TEXT, {"type": "integer"}, _INTEGERS]}},
                {"type": "null"},
            ],
        },
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
        question=_or_null(_TEXT),
        sources={"type": ["array", "null"], "items": _TEXT},
        documents=ref("Documents"),
        policy=_or_null(_TEXT),
        options=_or_null(ref("GroundingRules")),
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
    | {"description": "An error in the format of the called API. Errors from upstreams are forwarded"},
    "Problem": _open(
        ["type", "title", "status", "detail"],
        type=_TEXT,
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        errors={
            "type": "array",
            "items": _open(["loc", "msg"], loc=_PLACE, msg=_TEXT),
        },
    )
    | {"description": "RFC 9457"},
}

BODIES: Mapping[str, str] = {
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
MODELS: tuple[type[BaseModel], ...] = (Options, Reported, RunStart, RunCompletion, GroundingRules)
