"""``/admin/v1/secrets``: stores and lists secrets. Their values can't be read back."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, SecretStr, StringConstraints, field_validator

from app.api.admin.common import AdminRoute
from app.auth.secrets import SecretInfo
from app.dependencies import VaultDep
from app.identity import Role, requires
from app.settings import NAME

router = APIRouter(prefix="/secrets", route_class=AdminRoute, tags=["secrets"])

_LONGEST = 8_192
SecretName = Annotated[str, Path(), StringConstraints(pattern=f"^{NAME}$")]


class SecretDocument(BaseModel):
    """``value`` must be printable ASCII, because it is sent in a header."""

    model_config = ConfigDict(extra="forbid", strict=True)

    value: SecretStr

    @field_validator("value")
    @classmethod
    def _plain(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if not (0 < len(text) <= _LONGEST and text.isascii() and text.isprintable() and text == text.strip()):
            raise ValueError(f"expected 1 to {_LONGEST} printable ASCII characters, without leading or trailing spaces")
        return value


class SecretPage(BaseModel):
    items: list[SecretInfo]
    next_cursor: None = None


@router.get("")
@requires(Role.ADMIN)
async def list_secrets(vault: VaultDep) -> SecretPage:
    """List the secrets, sorted by name, without their values."""
    return SecretPage(items=list(await vault.list()))


@router.put("/{name}")
@requires(Role.ADMIN)
async def put_secret(vault: VaultDep, name: SecretName, document: SecretDocument) -> SecretInfo:
    """Store a secret, replacing any secret with the same name. Every worker uses it within a second."""
    return await vault.put(name, document.value.get_secret_value())


@router.delete("/{name}", status_code=204)
@requires(Role.ADMIN)
async def delete_secret(vault: VaultDep, name: SecretName) -> None:
    await vault.delete(name)
