"""``/docs``: the HTTP API reference, generated from ``/openapi.json``. Needs no session or scripts, and loads nothing
from other hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from app.dashboard.page_security import OpenRoute
from app.dashboard.templating import page

router = APIRouter(route_class=OpenRoute, include_in_schema=False)

_ITEMS = "items"
_NULL = "null"
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldView:
    """A parameter of an operation or a field of a schema. ``types`` has the name of each type and the schema it links
    to."""

    name: str
    types: Sequence[tuple[str, str | None]]
    required: bool
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyView:
    """The body of a request or response."""

    media_types: Sequence[str]
    types: Sequence[tuple[str, str | None]]
    example: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    id: str
    method: str
    path: str
    summary: str
    about: str
    parameters: Sequence[FieldView]
    request: BodyView | None
    reply: BodyView | None
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaView:
    name: str
    about: str
    fields: Sequence[FieldView]
    types: Sequence[tuple[str, str | None]]


@router.get("/docs")
async def show(request: Request) -> Response:
    schema = request.app.openapi()
    return page(
        request,
        "api_reference/page.html",
        info=schema["info"],
        groups=_groups(schema["paths"]),
        schemas=[_schema(name, found) for name, found in sorted(schema["components"]["schemas"].items())],
    )


@router.get("/redoc")
async def redirect_from_redoc() -> Response:
    return RedirectResponse("/docs", status_code=308)


def _groups(paths: Mapping[str, Any]) -> Mapping[str, Sequence[OperationView]]:
    """Return the operations by tag, in the order of the OpenAPI document."""
    groups: dict[str, list[OperationView]] = {}
    for path, methods in paths.items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    return groups


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> OperationView:
    status, reply = next(each for each in operation["responses"].items() if each[0].startswith("2"))
    return OperationView(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        about=operation.get("description", ""),
        parameters=[
            FieldView(
                name=each["name"],
                types=_types(each["schema"]),
                required=each.get("required", False),
                about=each.get("description") or each["schema"].get("description", ""),
            )
            for each in operation.get("parameters", ())
        ],
        request=_body(operation.get("requestBody", {})),
        reply=_body(reply),
        status=status,
    )


def _body(described: Mapping[str, Any]) -> BodyView | None:
    content = described.get("content")
    if not content:
        return None
    first = next(iter(content.values()))
    return BodyView(media_types=list(content), types=_types(first["schema"]), example=first.get("example"))


def _schema(name: str, schema: Schema) -> SchemaView:
    required = schema.get("required", ())
    fields = [
        FieldView(name=key, types=_types(each), required=key in required, about=each.get("description", ""))
        for key, each in schema.get("properties", {}).items()
    ]
    return SchemaView(name=name, about=schema.get("description", ""), fields=fields, types=_types(schema))


def _types(schema: Schema) -> list[tuple[str, str | None]]:
    """Return the alternative types of ``schema``: their names and the schemas they refer to."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return [(name, name)]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return list(dict.fromkeys(each for inner in schema[several] for each in _types(inner)))
    if "enum" in schema:
        return [(", ".join(map(str, schema["enum"])), None)]
    if "const" in schema:
        return [(str(schema["const"]), None)]
    kinds = schema.get("type", "any")
    if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
        items = [(f"list of {name}", link) for name, link in _types(schema.get(_ITEMS, {})) if name != _NULL]
        return items + ([(_NULL, None)] if _NULL in kinds else [])
    return [(kind, None) for kind in (kinds if isinstance(kinds, list) else [kinds])]
