"""Dependencies for route handlers, as annotated types. The lifespan opens the resources and yields them as its
state."""

from typing import Annotated, cast

from fastapi import Depends, Request

from app.alerts.store import AlertStore
from app.auth import KeyStore
from app.auth.audit_log import act_as
from app.auth.secrets import Vault
from app.budgets import BudgetStore
from app.errors import UnauthorizedError
from app.events.queries import EventQueries
from app.identity import Identity, Principal
from app.policy_admin.policy_store import PolicyStore
from app.resources import Resources
from policies.policy_warnings import GatewayFacts


# These dependencies are coroutines because FastAPI would run plain functions in a thread.
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


async def _budgets(resources: ResourcesDep) -> BudgetStore:
    return resources.budgets


async def _identity(resources: ResourcesDep) -> Identity:
    return resources.identity


async def _alerts(resources: ResourcesDep) -> AlertStore:
    return AlertStore(resources.database, resources.vault)


AlertsDep = Annotated[AlertStore, Depends(_alerts)]
FactsDep = Annotated[GatewayFacts, Depends(_facts)]
"""The facts about the gateway that policy warnings depend on."""
PoliciesDep = Annotated[PolicyStore, Depends(_policies)]
QueriesDep = Annotated[EventQueries, Depends(_queries)]
KeysDep = Annotated[KeyStore, Depends(_keys)]
VaultDep = Annotated[Vault, Depends(_vault)]
BudgetsDep = Annotated[BudgetStore, Depends(_budgets)]
IdentityDep = Annotated[Identity, Depends(_identity)]


async def authenticate(request: Request) -> Principal:
    """Return the caller of the admin API, to whom the request's changes are attributed. Raises UnauthorizedError if
    there is no valid admin token."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise UnauthorizedError("The admin token is missing: send it as 'Authorization: Bearer <token>'")
    resources = await resources_of(request)
    principal = await resources.identity.bearer(token.strip())
    if principal is None:
        await resources.wrong_tokens.refuse(request.client.host if request.client else None)
        raise UnauthorizedError("The admin token is wrong, revoked or expired.")
    act_as(principal.actor)
    return principal
