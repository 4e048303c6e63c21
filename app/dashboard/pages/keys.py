"""``/dashboard/keys``: creates, changes and revokes gateway keys."""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from app.api.admin.common import CursorText, decode_cursor, encode_cursor
from app.api.admin.keys import KeyDocument, KeyId
from app.auth import KeyDraft, KeyStore, StoredKey
from app.dashboard.curl_example import curl_example
from app.dashboard.error_messages import field_errors
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import KeysDep, ResourcesDep
from app.identity import Role, requires

router = APIRouter(prefix="/keys", route_class=DashboardRoute)
_PAGE = 50
_FIELDS = ("name", "models", "collections", "requests_per_minute")
Filled = Mapping[str, str]


@router.get("")
@requires(Role.VIEWER)
async def show(
    request: Request,
    store: KeysDep,
    resources: ResourcesDep,
    revoked: bool = False,
    cursor: CursorText | None = None,
    q: str = "",
) -> Response:
    """List the keys and show a form to create one."""
    return await _list(
        request, store, resources.settings.require_keys, revoked=revoked, cursor=cursor, prefix=q.strip()
    )


@router.post("")
@requires(Role.ADMIN)
async def create(request: Request, store: KeysDep, resources: ResourcesDep) -> Response:
    """Create a key and show its secret. This is the only time it is shown."""
    filled = await _filled(request)
    required = resources.settings.require_keys
    try:
        document = _document(filled)
    except ValidationError as error:
        return await _list(request, store, required, status=422, filled=filled, errors=field_errors(error))
    made, text = await store.create(KeyDraft(**document.model_dump()))
    return await _list(request, store, required, status=201, made=made, text=text)


@router.get("/{key_id}")
@requires(Role.VIEWER)
async def show_key(request: Request, store: KeysDep, key_id: KeyId) -> Response:
    """Show a key with a form to change its limits."""
    key = await store.get(key_id)
    return page(request, "keys/detail.html", key=key, filled=_filled_by(key), errors={})


@router.post("/{key_id}")
@requires(Role.ADMIN)
async def change(request: Request, store: KeysDep, key_id: KeyId) -> Response:
    filled = await _filled(request)
    try:
        document = _document(filled)
    except ValidationError as error:
        key = await store.get(key_id)
        return page(request, "keys/detail.html", status=422, key=key, filled=filled, errors=field_errors(error))
    await store.change(key_id, document.model_dump())
    return RedirectResponse("/dashboard/keys", status_code=303)


@router.post("/{key_id}/revoke")
@requires(Role.ADMIN)
async def revoke(store: KeysDep, key_id: KeyId) -> Response:
    await store.revoke(key_id)
    return RedirectResponse("/dashboard/keys", status_code=303)


async def _list(
    request: Request,
    store: KeyStore,
    required: bool,
    *,
    status: int = 200,
    revoked: bool = False,
    cursor: str | None = None,
    prefix: str = "",
    **context: Any,
) -> Response:
    after = None if cursor is None else cast(tuple[str, str], decode_cursor(cursor, str, str))
    found = await store.list(prefix=prefix or None, revoked=revoked, after=after, limit=_PAGE + 1)
    keys = found[:_PAGE]
    chosen = {name: value for name, value in (("revoked", "true" if revoked else ""), ("q", prefix)) if value}
    older = None
    if len(found) > _PAGE:
        older = "?" + urlencode(chosen | {"cursor": encode_cursor(keys[-1].name, keys[-1].prefix)})
    context = {"filled": dict.fromkeys(_FIELDS, ""), "errors": {}, "made": None, "text": None} | context
    newest = "?" + urlencode(chosen) if cursor is not None else None
    return page(
        request,
        "keys/list.html",
        status=status,
        keys=keys,
        revoked=revoked,
        prefix=prefix,
        required=required,
        older=older,
        newest=newest,
        example=curl_example(request, key=context["text"] or ""),
        **context,
    )


async def _filled(request: Request) -> Filled:
    form = await request.form()
    return {name: value.strip() if isinstance(value := form.get(name, ""), str) else "" for name in _FIELDS}


def _filled_by(key: StoredKey) -> Filled:
    return {
        "name": key.name,
        "models": ", ".join(key.models),
        "collections": ", ".join(key.collections),
        "requests_per_minute": "" if key.requests_per_minute is None else str(key.requests_per_minute),
    }


def _document(filled: Filled) -> KeyDocument:
    """Build the document from the form. Raises pydantic's ValidationError."""
    per_minute: Any = filled["requests_per_minute"] or None
    if per_minute is not None and per_minute.isascii() and per_minute.isdecimal():
        per_minute = int(per_minute)
    return KeyDocument.model_validate(
        {
            "name": filled["name"],
            "models": _globs(filled["models"]),
            "collections": _globs(filled["collections"]),
            "requests_per_minute": per_minute,
        }
    )


def _globs(text: str) -> list[str]:
    return [glob for part in text.split(",") if (glob := part.strip())]
