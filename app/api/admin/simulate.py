"""``/admin/v1/policies/simulate`` and ``/admin/v1/policies/{id}/simulate``: preview the effect of a policy."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.admin.common import AdminRoute, CursorText, decode_cursor, encode_cursor
from app.api.admin.events import FilterParams
from app.dependencies import PoliciesDep, ResourcesDep
from app.errors import InvalidAdminRequestError, InvalidRequestError
from app.events.filters import Key
from app.field_types import Word
from app.identity import Role, requires
from app.policy_admin import policy_rows
from app.policy_admin.policy_document import PolicyDocument, PolicyDraft, StoredPolicy, draft, patched
from app.policy_simulation import LiveRequest, SimulationSummary, simulate_live, simulate_logged
from app.resources import Resources
from policies.base import Text
from policies.types import Aliases, Policy

router = APIRouter(prefix="/policies", route_class=AdminRoute, tags=["policies"])

_UNSAVED = "unsaved"
_KEYS = 100_000


class LoggedRequests(FilterParams):
    """Selects the newest ``limit`` matching requests in the event log. The filters are those of ``GET
    /admin/v1/requests``."""

    limit: Annotated[int, Field(ge=1, le=100_000, description="Maximum number of requests to evaluate")] = 10_000
    cursor: CursorText | None = None


class GivenRequest(BaseModel):
    """A request to ``/v1/chat/completions`` and the text of the reply."""

    model_config = ConfigDict(extra="forbid", strict=True)

    request: dict[str, Any]
    reply: Text = ""


class Simulation(BaseModel):
    """Evaluates the requests in ``given`` or, if it is omitted, those that ``requests`` selects from the event log."""

    model_config = ConfigDict(extra="forbid")

    requests: LoggedRequests = LoggedRequests()
    given: Annotated[list[GivenRequest], Field(min_length=1, max_length=100)] | None = None
    show: Annotated[int, Field(ge=0, le=1_000, description="Maximum number of changed requests to return")] = 100


class SavedSimulation(Simulation):
    """A simulation of a saved policy. ``patch`` is a JSON merge patch to apply to the policy first."""

    patch: dict[str, Any] = {}


class UnsavedSimulation(Simulation):
    """A simulation of an unsaved policy. ``replaces`` is the id of the policy that it would replace."""

    policy: PolicyDocument
    replaces: Word | None = None


@router.post("/simulate")
@requires(Role.EDITOR)
async def simulate_unsaved(store: PoliciesDep, resources: ResourcesDep, wanted: UnsavedSimulation) -> Response:
    """Simulate an unsaved policy together with the active policies."""
    version = 0 if wanted.replaces is None else (await store.get(wanted.replaces)).version
    policy = candidate(draft(wanted.policy), wanted.replaces, version)
    return await _simulated(resources, policy, wanted)


@router.post("/{policy_id}/simulate")
@requires(Role.EDITOR)
async def simulate_saved(
    store: PoliciesDep, resources: ResourcesDep, policy_id: Annotated[Word, Path()], wanted: SavedSimulation
) -> Response:
    """Simulate a saved policy as if it were enforced on every request in its scope, regardless of its mode."""
    stored = await store.get(policy_id)
    policy = candidate(patched(stored.draft(), wanted.patch), stored.id, stored.version)
    return await _simulated(resources, policy, wanted)


def candidate(document: PolicyDraft, id: str | None, version: int) -> Policy:
    """Return the policy to simulate. ``id`` is the id of the policy that it replaces, or None for a new policy."""
    now = datetime.now(UTC)
    return policy_rows.as_policy(
        StoredPolicy(id=id or _UNSAVED, version=version, created_at=now, updated_at=now, **asdict(document))
    )


async def simulate_on_log(
    resources: Resources, policy: Policy, requests: LoggedRequests, *, show: int
) -> tuple[SimulationSummary, Key | None]:
    """Evaluate ``requests`` with ``policy`` and the active policies. Return the summary and the position to continue
    from.

    Raises DatabaseUnavailableError.
    """
    names = await _key_names(resources)
    after: Key | None = None
    if requests.cursor is not None:
        after = decode_cursor(requests.cursor, datetime, str)
    return await simulate_logged(
        resources.database,
        resources.policies.engine,
        policy,
        await requests.filter(resources.policies),
        limit=requests.limit,
        show=show,
        key_names=lambda prefix: None if prefix is None else names.get(prefix, prefix),
        model_names=resources.upstream.names_of,
        after=after,
    )


async def _simulated(resources: Resources, policy: Policy, wanted: Simulation) -> Response:
    if wanted.given is None:
        return _answer(policy, *await simulate_on_log(resources, policy, wanted.requests, show=wanted.show))
    given = [LiveRequest(body=each.request, reply=each.reply) for each in wanted.given]
    try:
        tally = await simulate_live(resources.gateway, resources.policies.engine, policy, given, show=wanted.show)
    except InvalidRequestError as error:
        loc = ["given", "request", *([error.param] if error.param else [])]
        raise InvalidAdminRequestError(error.message, errors=[{"loc": loc, "msg": error.message}]) from None
    return _answer(policy, tally, None)


async def _key_names(resources: Resources) -> Mapping[str, Aliases]:
    return {key.prefix: (key.name, key.prefix) for key in await resources.keys.list(limit=_KEYS)}


def _answer(policy: Policy, tally: SimulationSummary, rest: Key | None) -> Response:
    policy_id = None if policy.id == _UNSAVED else policy.id
    body = {
        "policy": {"id": policy_id, "name": policy.name, "version": policy.version},
        **tally.summary(),
        "items": tally.items,
        "next_cursor": None if rest is None else encode_cursor(*rest),
    }
    return Response(orjson.dumps(body, option=orjson.OPT_UTC_Z), media_type="application/json")
