"""``/admin/v1/keys``: gateway keys."""

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.admin.common import AdminRoute, CursorText, Limit, decode_cursor, encode_cursor
from app.auth import KeyDraft, StoredKey
from app.dependencies import KeysDep
from app.field_types import Line, Word
from app.identity import Role, requires
from app.policy_admin.policy_document import Globs

router = APIRouter(prefix="/keys", route_class=AdminRoute, tags=["keys"])

KeyId = Annotated[Word, Path(description="ID or prefix")]
PerMinute = Annotated[int, Field(ge=1, le=1_000_000)]


class KeyDocument(BaseModel):
    """A gateway key to create. ``models`` and ``collections`` are shell globs; an empty list allows any."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Line
    models: Globs = []
    collections: Globs = []
    requests_per_minute: PerMinute | None = None


class KeyPatch(BaseModel):
    """The fields of a key to change. A ``null`` rate limit removes the limit."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Line = Field(default_factory=str)  # Unlike a plain default, a factory doesn't appear in the schema.
    models: Globs = []
    collections: Globs = []
    requests_per_minute: PerMinute | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedKey(StoredKey):
    """A new key. ``key`` is returned only in this response."""

    key: str


class KeyPage(BaseModel):
    items: list[StoredKey]
    next_cursor: str | None


@router.post("", status_code=201)
@requires(Role.ADMIN)
async def create_key(store: KeysDep, document: KeyDocument, response: Response) -> CreatedKey:
    """Create a key. ``key`` is returned only in this response."""
    made, key = await store.create(KeyDraft(**document.model_dump()))
    response.headers["Location"] = f"/admin/v1/keys/{made.id}"
    response.headers["Cache-Control"] = "no-store"
    return CreatedKey(**asdict(made), key=key)


@router.get("")
@requires(Role.VIEWER)
async def list_keys(
    store: KeysDep,
    prefix: Word | None = None,
    name: Word | None = None,
    revoked: bool | None = None,
    limit: Limit = 50,
    cursor: CursorText | None = None,
) -> KeyPage:
    """List the keys, sorted by name. Only the prefix of each key is returned."""
    after = None if cursor is None else decode_cursor(cursor, str, str)
    found = await store.list(prefix=prefix, name=name, revoked=revoked, after=after, limit=limit + 1)
    items = list(found[:limit])
    more = len(found) > limit
    return KeyPage(items=items, next_cursor=encode_cursor(items[-1].name, items[-1].prefix) if more else None)


@router.get("/{key_id}")
@requires(Role.VIEWER)
async def get_key(store: KeysDep, key_id: KeyId) -> StoredKey:
    return await store.get(key_id)


@router.patch("/{key_id}")
@requires(Role.ADMIN)
async def change_key(store: KeysDep, key_id: KeyId, patch: KeyPatch) -> StoredKey:
    """Change a key's name or limits. The key itself stays the same."""
    return await store.change(key_id, patch.model_dump(exclude_unset=True))


@router.delete("/{key_id}", status_code=204)
@requires(Role.ADMIN)
async def revoke_key(store: KeysDep, key_id: KeyId) -> None:
    """Revoke a key. Within a second, every worker rejects it. The revoked key stays in the list."""
    await store.revoke(key_id)
