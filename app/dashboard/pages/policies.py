"""``/dashboard/policies``: the policy list, a policy's page and versions, and changes that don't need the full form."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from app.analytics.decision_comparison import DecisionComparison, compare_decisions
from app.analytics.flagged_requests import FlaggedRequests, count_flagged_requests
from app.analytics.policy_quality import policy_quality
from app.analytics.statistics import Statistics
from app.api.admin.status import get_status
from app.dashboard.curl_example import curl_example
from app.dashboard.error_messages import readable
from app.dashboard.page_security import DashboardRoute
from app.dashboard.policies.change_log import authors
from app.dashboard.policies.form_fields import basics, entries_of, rule_groups
from app.dashboard.policies.trials import enforce_in_place, enforced_alike, replaceable
from app.dashboard.policies.version_diff import action_rules, changes, draft_of, non_default_rules
from app.dashboard.templating import page
from app.dependencies import PoliciesDep, ResourcesDep
from app.errors import ConflictError, InvalidAdminRequestError, PreconditionError
from app.events.filters import EventFilter
from app.events.queries import EventQueries
from app.field_types import Word
from app.identity import Role, requires
from app.policy_admin.policy_document import PolicyVersion, StoredPolicy
from app.policy_admin.policy_store import PolicyStore
from app.resources import Resources
from policies.registry import CATEGORIES
from policies.types import Action, Phase

router = APIRouter(route_class=DashboardRoute)

Number = Annotated[int, Query(ge=1, lt=2**31)]

_RECENT = timedelta(days=1)
_QUALITY = timedelta(days=30)
_PAGE = 100
_VERSIONS = 20
_FLAGGED = 6
_GLOB = frozenset("*?[")
_STRICT = (Action.BLOCK, Action.DROP, Action.WARN)
_DONE = {
    "created": "Policy created. It takes effect on every worker within a second.",
    "saved": "Saved. The change takes effect on every worker within a second.",
    "deleted": "Policy deleted. Its versions are kept.",
    "rolled-back": "Rolled back. The earlier version was saved as the latest.",
    "trial": "Saved as a shadow copy. Replies don't change while you compare its decisions.",
    "replaced": "The rules of the shadow copy are now in force. The copy was deleted.",
    "switched": "Done. The change takes effect on every worker within a second.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRequests:
    """The requests in the last day that a policy decided on, and those that it flagged."""

    requests: int = 0
    flagged: FlaggedRequests = field(default_factory=FlaggedRequests)


@router.get("/policies")
@requires(Role.VIEWER)
async def list_policies(
    request: Request,
    resources: ResourcesDep,
    store: PoliciesDep,
    category: str | None = None,
    after: Word | None = None,
    done: str | None = None,
) -> Response:
    category = category if category in CATEGORIES else None
    found = await store.list(category=category, after=after, limit=_PAGE + 1)
    return page(
        request,
        "policies/list.html",
        policies=found[:_PAGE],
        older=found[_PAGE - 1].name if len(found) > _PAGE else None,
        after=after,
        category=category,
        categories=list(CATEGORIES),
        recent=await _recent(resources),
        unreadable=store.unreadable,
        done=_DONE.get(done or ""),
    )


@router.get("/policies/{policy_id}")
@requires(Role.VIEWER)
async def show_policy(request: Request, resources: ResourcesDep, policy_id: Word, done: str | None = None) -> Response:
    return await _shown(request, resources, policy_id, done=_DONE.get(done or ""))


@router.post("/policies/{policy_id}/enabled")
@requires(Role.EDITOR)
async def switch(
    request: Request,
    resources: ResourcesDep,
    policy_id: Word,
    version: Annotated[int, Form()],
    enabled: Annotated[str, Form()] = "",
    back: Annotated[str, Form()] = "",
) -> Response:
    """Enable or disable a policy."""

    async def change(store: PolicyStore) -> None:
        await store.patch(policy_id, {"enabled": enabled == "on"}, expected=version)

    return await _changed(request, resources, policy_id, change, to_list=back == "list")


@router.post("/policies/{policy_id}/rollout")
@requires(Role.EDITOR)
async def roll_out(
    request: Request,
    resources: ResourcesDep,
    policy_id: Word,
    version: Annotated[int, Form()],
    mode: Annotated[str, Form()] = "",
    canary_percent: Annotated[str, Form()] = "",
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    """Set a policy's mode and its share of requests. Before an enforced policy is switched to shadow mode, ask for
    confirmation."""
    policy = await resources.policies.get(policy_id)
    enforced = policy.enabled and policy.mode == "enforce" and policy.version == version
    if mode == "shadow" and enforced and not confirmed:
        asked = {"share": canary_percent, "alone": not await enforced_alike(resources.policies, policy)}
        return await _shown(request, resources, policy_id, status=409, asked=asked)
    share = basics()["canary_percent"].read([canary_percent])

    async def change(store: PolicyStore) -> None:
        await store.patch(policy_id, {"mode": mode, "canary_percent": share}, expected=version)

    return await _changed(request, resources, policy_id, change)


@router.get("/policies/{policy_id}/delete")
@requires(Role.EDITOR)
async def confirm_delete(request: Request, store: PoliciesDep, resources: ResourcesDep, policy_id: Word) -> Response:
    policy = await store.get(policy_id)
    recent = await _recent_of(resources, policy_id)
    return page(request, "policies/delete.html", policy=policy, recent=recent)


@router.post("/policies/{policy_id}/delete")
@requires(Role.EDITOR)
async def delete_policy(
    request: Request, resources: ResourcesDep, store: PoliciesDep, policy_id: Word, version: Annotated[int, Form()]
) -> Response:
    try:
        await store.delete(policy_id, expected=version)
    except PreconditionError as error:
        return await _shown(request, resources, policy_id, status=error.status, wrong=_stale(error))
    return RedirectResponse("/dashboard/policies?done=deleted", status_code=303)


@router.get("/policies/{policy_id}/versions")
@requires(Role.VIEWER)
async def list_versions(
    request: Request,
    resources: ResourcesDep,
    policy_id: Word,
    before: Number | None = None,
    old: Number | None = None,
    new: Number | None = None,
) -> Response:
    """Show the versions and their changes. ``old`` and ``new`` are two versions to compare."""
    return await _versions(request, resources, policy_id, before=before, compared=(old, new))


@router.post("/policies/{policy_id}/rollback")
@requires(Role.EDITOR)
async def roll_back(
    request: Request,
    resources: ResourcesDep,
    store: PoliciesDep,
    policy_id: Word,
    to: Annotated[int, Form()],
    version: Annotated[int, Form()],
) -> Response:
    """Save an earlier version as the latest one."""
    try:
        await store.rollback(policy_id, to, expected=version)
    except PreconditionError as error:
        return await _versions(request, resources, policy_id, status=error.status, wrong=_stale(error))
    except (ConflictError, InvalidAdminRequestError) as error:
        wrong = f"Can't roll back to version {to}: {error.message}."
        return await _versions(request, resources, policy_id, status=error.status, wrong=wrong)
    return RedirectResponse(f"/dashboard/policies/{policy_id}?done=rolled-back", status_code=303)


@router.post("/policies/{policy_id}/replace")
@requires(Role.EDITOR)
async def replace_policy(
    request: Request,
    resources: ResourcesDep,
    store: PoliciesDep,
    policy_id: Word,
    version: Annotated[int, Form()],
    other: Annotated[Word, Form()],
    other_version: Annotated[int, Form()],
) -> Response:
    """Enforce the rules of a shadow policy in the policy ``other``, and delete the shadow policy."""
    try:
        await enforce_in_place(store, policy_id, other, expected=version, expected_policy=other_version)
    except PreconditionError as error:
        return await _shown(request, resources, policy_id, status=error.status, wrong=_stale(error))
    except ConflictError as error:
        return await _shown(request, resources, policy_id, status=error.status, wrong=f"{error.message}.")
    return RedirectResponse(f"/dashboard/policies/{quote(other, safe='')}?done=replaced", status_code=303)


async def _changed(
    request: Request,
    resources: Resources,
    policy_id: str,
    change: Callable[[PolicyStore], Awaitable[None]],
    *,
    to_list: bool = False,
) -> Response:
    """Make a change. If it fails, show the reason on the policy's page."""
    try:
        await change(resources.policies)
    except PreconditionError as error:
        return await _shown(request, resources, policy_id, status=error.status, wrong=_stale(error))
    except InvalidAdminRequestError as error:
        wrong = "; ".join(readable(each["msg"], ".".join(map(str, each["loc"]))) for each in error.errors)
        return await _shown(request, resources, policy_id, status=error.status, wrong=wrong or error.message)
    where = "/dashboard/policies" if to_list else f"/dashboard/policies/{policy_id}"
    return RedirectResponse(f"{where}?done=switched", status_code=303)


def _stale(error: PreconditionError) -> str:
    return f"Not saved: {error.message}. This page now shows the current version."


async def _shown(
    request: Request,
    resources: Resources,
    policy_id: str,
    *,
    status: int = 200,
    done: str | None = None,
    wrong: str | None = None,
    asked: Mapping[str, Any] | None = None,
) -> Response:
    """Show a policy. ``asked`` describes the switch to shadow mode that needs confirmation: its ``share``, and whether
    the policy is the only enforced one (``alone``)."""
    store = resources.policies
    policy = await store.get(policy_id)
    since = datetime.now(UTC) - _QUALITY
    quality = await policy_quality(resources.database, policy_id=policy_id, since=since)
    recent = await _recent_of(resources, policy_id)
    others = await replaceable(store, policy)
    return page(
        request,
        "policies/detail.html",
        status=status,
        policy=policy,
        other=others[0] if others else None,
        compared=await _compared(resources, policy, others[0]) if others else None,
        entries=entries_of(asdict(policy.draft()), policy.category),
        non_default_rules=non_default_rules(policy.draft()),
        action_rules=action_rules(policy.draft()),
        groups=rule_groups(policy.category),
        basics=basics(),
        where=await get_status(store, resources, policy_id),
        only_agent=_only_agent(policy),
        example=curl_example(request, agent=_only_agent(policy)),
        recent=recent,
        flagged=await _flagged(EventQueries(resources.database), policy_id, recent),
        quality=[each.to_dict() for each in quality],
        unreadable=store.unreadable.get(policy_id),
        done=done,
        wrong=wrong,
        asked=asked,
    )


async def _compared(resources: Resources, trial: StoredPolicy, other: StoredPolicy) -> DecisionComparison:
    """Compare the decisions of a shadow policy's newest version with those of the policy that it may replace."""
    since = trial.updated_at
    return await compare_decisions(resources.database, trial.id, trial.version, other.id, since=since, show=_FLAGGED)


async def _versions(
    request: Request,
    resources: Resources,
    policy_id: str,
    *,
    before: int | None = None,
    compared: tuple[int | None, int | None] = (None, None),
    status: int = 200,
    wrong: str | None = None,
) -> Response:
    store = resources.policies
    found = await store.versions(policy_id, before=before, limit=_VERSIONS + 1)
    newest = found[0] if before is None else (await store.versions(policy_id, limit=1))[0]
    old, new = [await _version(store, policy_id, number) for number in compared]
    steps = [
        (version, [] if earlier is None else changes(draft_of(earlier), draft_of(version)))
        for version, earlier in zip(found, [*found[1:], None], strict=True)
    ]
    return page(
        request,
        "policies/versions.html",
        status=status,
        policy_id=policy_id,
        newest=newest,
        alive=newest.change != "delete",
        steps=steps[:_VERSIONS],
        authors=await authors(resources.database, found[:_VERSIONS]),
        older=found[_VERSIONS - 1].version if len(found) > _VERSIONS else None,
        before=before,
        old=old,
        new=new,
        difference=changes(draft_of(old), draft_of(new)) if old and new else None,
        wrong=wrong,
    )


async def _version(store: PolicyStore, policy_id: str, number: int | None) -> PolicyVersion | None:
    if number is None:
        return None
    found = await store.versions(policy_id, before=number + 1, limit=1)
    return found[0] if found and found[0].version == number else None


async def _recent(resources: Resources) -> Mapping[str, RecentRequests]:
    """Count the requests in the last day by policy id."""
    since = datetime.now(UTC) - _RECENT
    groups = await Statistics(resources.database).groups(EventFilter(since=since), "policy", brief=True)
    flagged = await count_flagged_requests(resources.database, since=since)
    return {
        policy: RecentRequests(requests=numbers.requests, flagged=flagged.get(policy, FlaggedRequests()))
        for policy, numbers in groups
        if policy is not None
    }


async def _recent_of(resources: Resources, policy_id: str) -> RecentRequests:
    """Count the requests in the last day that the policy decided on."""
    since = datetime.now(UTC) - _RECENT
    filter = EventFilter(since=since, policy=policy_id)
    totals = await Statistics(resources.database).totals(filter, percentiles=False)
    flagged = await count_flagged_requests(resources.database, since=since, policy_id=policy_id)
    return RecentRequests(requests=totals.requests, flagged=flagged.get(policy_id, FlaggedRequests()))


async def _flagged(queries: EventQueries, policy_id: str, recent: RecentRequests) -> Sequence[Mapping[str, Any]]:
    """Return the latest requests that a policy flagged, with its strictest decision on each. Actions without requests
    in ``recent`` aren't queried."""
    since = datetime.now(UTC) - _RECENT
    found: dict[str, Mapping[str, Any]] = {}
    for action in _STRICT:
        if not recent.flagged.of(action):
            continue
        filter = EventFilter(since=since, policy=policy_id, action=action)
        for event in (await queries.events(filter, limit=_FLAGGED * len(Phase))).items:
            found.setdefault(event["request_id"], event)
    return sorted(found.values(), key=lambda event: event["ts"], reverse=True)[:_FLAGGED]


def _only_agent(policy: StoredPolicy) -> str:
    """Return the only agent in the policy's scope, or "" if the scope may match several."""
    agents = policy.scope.get("agents", [])
    return agents[0] if len(agents) == 1 and not _GLOB & set(agents[0]) else ""
