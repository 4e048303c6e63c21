"""Completes ``/openapi.json`` with request and response bodies that FastAPI can't infer, examples, authentication, and
errors."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import orjson
from pydantic.json_schema import models_json_schema

from app.api.admin.common import REQUIRED_ROLE
from app.api.openapi.replies import REPLIES
from app.api.openapi.requests import BODIES, COMPONENTS, MODELS, Json, ref

_MAY_BE_EMPTY = "/v1/runs"
_STREAMED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
_TEXT: Json = {"schema": {"type": "string"}}
_JSON = "application/json"
_FILES: Json = {"application/jsonl": _TEXT, "text/csv": _TEXT}

_KEYS: Json = {
    "adminToken": {"type": "http", "scheme": "bearer", "description": "An admin token with the required role"},
    "gatewayKey": {"type": "http", "scheme": "bearer", "description": "A gateway key, if required"},
}


def describe(schema: Json) -> Json:
    """Complete FastAPI's schema in place."""
    models = dict.fromkeys((*MODELS, *REPLIES.values()))
    _, read = models_json_schema([(model, "validation") for model in models], ref_template=ref("{model}")["$ref"])
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(COMPONENTS | read.get("$defs", {}))
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's error format, which isn't used here
        schemas.pop(name, None)
    components["securitySchemes"] = _KEYS
    for path, operation in _operations(schema):
        _describe_reply(path, operation)
        if path.startswith("/admin/"):
            _describe_admin(path, operation)
        elif path.startswith("/v1/"):
            _describe_v1(path, operation)
    schema |= _plain(schema)
    return _add_examples(schema)


def _add_examples(schema: Json) -> Json:
    """Add an example request and reply to each operation, in place."""
    for _, operation in _operations(schema):
        example = examples().get(operation["operationId"], {})
        if "request" in example:
            operation["requestBody"]["content"][_JSON]["example"] = example["request"]
        if "reply" in example:
            content = next(reply["content"] for status, reply in operation["responses"].items() if status[0] == "2")
            next(iter(content.values()))["example"] = example["reply"]
    return schema


@cache
def examples() -> Mapping[str, Json]:
    """Return the examples by operation id. Each has a ``request`` and a ``reply`` if the operation has these bodies."""
    found: Mapping[str, Json] = orjson.loads(files(__name__).joinpath("examples.json").read_bytes())
    return found


def _describe_reply(path: str, operation: Json) -> None:
    if (model := REPLIES.get(operation["operationId"])) is not None:
        for status, reply in operation["responses"].items():
            if status != "422":
                reply["content"] = {_JSON: {"schema": ref(model.__name__)}}
    if path.endswith("/export"):
        operation["responses"]["200"]["content"] = _FILES
    if path == "/metrics":
        operation["responses"]["200"]["content"] = {"text/plain": _TEXT}
    if path in _STREAMED:
        operation["responses"]["200"]["content"]["text/event-stream"] = _TEXT


def _plain(value: Any) -> Any:
    """Replace double backticks with single ones in all strings in ``value``, because OpenAPI descriptions are
    Markdown."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case str():
            return value.replace("``", "`")
    return value


def _operations(schema: Json) -> Iterator[tuple[str, Json]]:
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            yield path, operation


def _describe_admin(path: str, operation: Json) -> None:
    # OpenAPI 3.1 lets a requirement list the roles that the credentials must have.
    operation["security"] = [{"adminToken": [role] if (role := operation.pop(REQUIRED_ROLE, None)) else []}]
    responses = operation["responses"]
    responses.pop("422", None)
    responses["default"] = {
        "description": "Error",
        "content": {"application/problem+json": {"schema": ref("Problem")}},
    }


def _describe_v1(path: str, operation: Json) -> None:
    operation["security"] = [{}, {"gatewayKey": []}]
    responses = operation["responses"]
    responses.pop("422", None)
    responses["default"] = {"description": "Error", "content": {_JSON: {"schema": ref("Error")}}}
    if (body := BODIES.get(path)) is not None:
        operation["requestBody"] = {
            "required": not path.startswith(_MAY_BE_EMPTY),
            "content": {_JSON: {"schema": ref(body)}},
        }
