"""Dependencies of handlers, as annotations. The lifespan opens the resources and yields them as its state."""

from typing import Annotated, cast

from fastapi import Depends, Request

from app.auth import GatewayKey, KeyStore
from app.auth.audit_log import act_as
from app.auth.secrets import Vault
from app.errors import UnauthorizedError
from app.events.queries import EventQueries
from app.policy_admin.policy_store import PolicyStore
from app.resources import Resources
from policies.policy_warnings import GatewayFacts


# Coroutines, because the framework would call a plain function in a thread.
async def resources_of(request: Request) -> Resources:
    return cast(Resources, request.state.resources)


ResourcesDep = Annotated[Resources, Depends(resources_of)]


async def _policies(resources: ResourcesDep) -> PolicyStore:
    return resources.policies


async def _facts(resources: ResourcesDep) -> GatewayFacts:
    return resources.facts


async def _queries(resources: ResourcesDep) -> EventQueries:
    return EventQueries(resources.database)


async def _keys(resources: ResourcesDep) -> KeyStore:
    return resources.keys


async def _vault(resources: ResourcesDep) -> Vault:
    return resources.vault


async def _key(request: Request) -> GatewayKey | None:
    return cast(GatewayKey | None, request.state.key)


FactsDep = Annotated[GatewayFacts, Depends(_facts)]
"""What warnings about policies need to know."""
PoliciesDep = Annotated[PolicyStore, Depends(_policies)]
QueriesDep = Annotated[EventQueries, Depends(_queries)]
KeysDep = Annotated[KeyStore, Depends(_keys)]
VaultDep = Annotated[Vault, Depends(_vault)]
KeyDep = Annotated[GatewayKey | None, Depends(_key)]
"""The gateway key of a call under ``/v1`` or ``/mcp``, which the middleware has checked."""


async def require_admin(request: Request) -> None:
    """Raises UnauthorizedError without the admin token, to which later changes are attributed."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise UnauthorizedError("The admin token is missing: send it as 'Authorization: Bearer <token>'")
    resources = await resources_of(request)
    if not resources.admin.accepts(token.strip()):
        await resources.wrong_tokens.refuse(request.client.host if request.client else None)
        raise UnauthorizedError("The admin token is wrong.")
    act_as(f"token:{resources.admin.id}")
