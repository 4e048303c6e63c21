"""The API description is complete and valid, and matches the gateway's responses."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import httpx
import pytest

from app.api.openapi import examples
from app.auth.secrets import new_secret_key
from tests.support.apis.api_calls import ApiCalls
from tests.support.gateways.live_gateway import Gateway

jsonschema = pytest.importorskip("jsonschema", reason="the description of the API: needs jsonschema")

_NO_CONTENT = {"delete_budget", "revoke_token", "end_session", "delete_policy", "revoke_key", "delete_secret"}
_NO_CONTENT |= {"delete_alert", "delete_destination", "delete_label"}
_NO_CONTENT |= {"delete_view", "revoke_share"}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiCalls]:
    gateway = Gateway(tmp_path_factory.mktemp("openapi"), secret_key=new_secret_key()).start()
    schema = httpx.get(f"http://127.0.0.1:{gateway.port}/openapi.json", timeout=60).json()
    yield ApiCalls(gateway, schema, examples())
    gateway.close()


@pytest.fixture(scope="module")
def replies(calls: ApiCalls) -> dict[str, httpx.Response]:
    """The gateway's actual response to each operation."""
    return calls.all()


def success(operation: Any) -> Any:
    """The description of the operation's successful reply."""
    (reply,) = [reply for status, reply in operation["responses"].items() if status[0] == "2"]
    return reply


def test_document_is_valid(calls: ApiCalls) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="needs openapi-spec-validator")
    assert [error.message for error in validator.OpenAPIV31SpecValidator(deepcopy(calls.schema)).iter_errors()] == []


def test_every_operation_describes_its_request_and_its_reply(calls: ApiCalls) -> None:
    faults = []
    for method, _, operation in calls.operations():
        name = operation["operationId"]
        if method in ("post", "put", "patch") and "requestBody" not in operation:
            faults.append(f"{name}: no request")
        content = success(operation).get("content", {})
        if not content and name not in _NO_CONTENT:
            faults.append(f"{name}: no reply")
        bodies = [*content.values(), *operation.get("requestBody", {}).get("content", {}).values()]
        if not all(body.get("schema", {}).keys() & {"$ref", "type", "anyOf"} for body in bodies):
            faults.append(f"{name}: without a schema")
        if "application/json" in content and "$ref" not in content["application/json"]["schema"]:
            faults.append(f"{name}: the reply has no name")
        if not operation.get("summary") or not operation.get("tags"):
            faults.append(f"{name}: no summary or tag")
    assert faults == []


def test_arrays_and_references_name_their_items(calls: ApiCalls) -> None:
    """Client generators drop a schema that contains an array without an item type, and all schemas that refer to it."""
    faults = []

    def look(value: Any, where: str) -> None:
        if isinstance(value, dict):
            kinds = value.get("type", ())
            if "array" in (kinds if isinstance(kinds, list) else [kinds]) and "items" not in value:
                faults.append(f"{where}: an array without items")
            if isinstance(kinds, list) and "array" in kinds and kinds != ["array", "null"]:
                faults.append(f"{where}: an array among {kinds}")
            target = value.get("$ref")
            if isinstance(target, str) and target.rpartition("/")[2] not in calls.schema["components"]["schemas"]:
                faults.append(f"{where}: {target} is missing")
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, dict | list):
                look(inner, f"{where}.{key}")

    look({name: calls.schema[name] for name in ("paths", "components")}, "")
    assert faults == []


def strict(schema: Any) -> Any:
    """``schema``, with undescribed fields of objects forbidden unless it allows them."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: value if key == "example" else strict(value) for key, value in schema.items()}
    closed = "properties" in schema and schema.get("type") == "object"
    return {"additionalProperties": False, **inner} if closed else inner


def check(calls: ApiCalls, schema: Any, value: Any) -> list[str]:
    """The validation errors of ``value``."""
    document = {**strict(schema), "components": strict(calls.schema["components"])}
    validator = jsonschema.Draft202012Validator(document)
    return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]


def test_gateway_answers_as_described(calls: ApiCalls, replies: dict[str, httpx.Response]) -> None:
    faults = {}
    for _, _, operation in calls.operations():
        name = operation["operationId"]
        reply = replies[name]
        assert str(reply.status_code) in operation["responses"], name
        if name in _NO_CONTENT:
            assert reply.content == b"", name
            continue
        content = success(operation)["content"]
        kind = reply.headers["content-type"].partition(";")[0]
        assert kind in content, name
        if kind == "application/json" and (wrong := check(calls, content[kind]["schema"], reply.json())):
            faults[name] = wrong
    assert faults == {}


def test_every_operation_has_a_valid_example(calls: ApiCalls, replies: dict[str, httpx.Response]) -> None:
    """The example requests are those that ``replies`` responds to."""
    faults: dict[str, Any] = {}
    for _, _, operation in calls.operations():
        name = operation["operationId"]
        for body in operation.get("requestBody", {}).get("content", {}).values():
            faults[name] = check(calls, body["schema"], body["example"]) if "example" in body else "no request"
        if name in _NO_CONTENT:
            continue
        body = next(iter(success(operation)["content"].values()))
        if "example" not in body:
            faults[name] = "no reply"
        else:
            faults[name] = [*faults.get(name, ()), *check(calls, body["schema"], body["example"])]
    assert {name: fault for name, fault in faults.items() if fault} == {}
