"""``/dashboard/policies/new`` and ``…/{id}/edit``: the form for creating, editing and simulating policies."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from app.analytics.statistics import Statistics
from app.api.admin.simulate import LoggedRequests, candidate, simulate_on_log
from app.dashboard.known_values import distinct_values
from app.dashboard.page_security import DashboardRoute
from app.dashboard.pages.policies import Number
from app.dashboard.policies.editor import (
    SIMULATION_LIMITS,
    PolicyEditor,
    SimulationResult,
    stored_entries,
    submitted_editor,
)
from app.dashboard.policies.form_fields import basics, errors_by_field, rule_groups
from app.dashboard.policies.trials import create_shadow_copy
from app.dashboard.policies.version_diff import draft_of
from app.dashboard.templating import page
from app.dependencies import PoliciesDep, ResourcesDep
from app.errors import ConflictError, InvalidAdminRequestError, NotFoundError, PreconditionError
from app.events.filters import EventFilter
from app.field_types import Word
from app.identity import Role, requires
from app.policy_admin.policy_document import PolicyDraft, StoredPolicy
from app.policy_admin.policy_store import PolicyStore
from app.resources import Resources
from policies.registry import CATEGORIES, json_schema
from policies.templates import templates
from policies.types import PolicySubject

router = APIRouter(route_class=DashboardRoute)

_SHOWN = 50
_KEYS = 200
_DOUBTS = {
    "no_reply": "the request was blocked before there was a reply",
    "reply_cut_off": "the reply was cut off at a sentence that would now pass",
    "documents_differ": "different documents would be dropped, so the judge would read different evidence",
    "not_judged": "the reply wasn't judged",
    "judged_by_other_thresholds": "whether the judge reads two documents together depends on the threshold",
    "more_claims": "more claims would be judged",
    "sources_per_claim": "claims would be compared with more or fewer documents",
    "llm_score": "an LLM judge would be called",
    "evidence_from_tools": "tool results would count as evidence",
    "consistency": "claims would be compared with each other",
    "answer": "the reply would be compared with the question",
    "corrections": "a correction would be needed, but none was judged",
    "standings": "it isn't known which text would be left unjudged",
    "conflicts": "documents would be compared with each other",
    "injected_instructions": "documents would be searched for instructions, but their texts weren't logged",
}


@router.get("/policies/new")
@requires(Role.EDITOR)
async def new_policy(
    request: Request,
    resources: ResourcesDep,
    store: PoliciesDep,
    template: str | None = None,
    category: str | None = None,
    like: Word | None = None,
    version: Number | None = None,
) -> Response:
    """Show the form for a new policy, based on a ``template``, the defaults of a ``category``, or another policy
    (``like``)."""
    if like is not None:
        editor = await _copy_of(store, like, version)
    elif template is not None:
        editor = _from_template(template)
    elif category is not None:
        editor = PolicyEditor.new({"category": category}, _known(category))
    else:
        return page(request, "policies/new.html", templates=templates(), categories=_categories(), subjects=_subjects())
    _fill_in_from_link(editor, request)
    return await _form(request, resources, editor)


@router.post("/policies/new")
@requires(Role.EDITOR)
async def create_policy(request: Request, resources: ResourcesDep) -> Response:
    editor = await _submitted(request)
    return await _save_or_simulate(request, resources, editor)


@router.get("/policies/{policy_id}/edit")
@requires(Role.EDITOR)
async def edit_policy(request: Request, resources: ResourcesDep, store: PoliciesDep, policy_id: Word) -> Response:
    editor = PolicyEditor.editing(await store.get(policy_id))
    _fill_in_from_link(editor, request)
    return await _form(request, resources, editor)


@router.post("/policies/{policy_id}/edit")
@requires(Role.EDITOR)
async def change_policy(request: Request, resources: ResourcesDep, store: PoliciesDep, policy_id: Word) -> Response:
    editor = await _submitted(request)
    try:
        editor.policy = await store.get(policy_id)
    except NotFoundError as error:
        editor.errors = {"": "Someone has deleted this policy. To keep it, save it as a new policy."}
        return await _form(request, resources, editor, status=error.status)
    if editor.policy.category == editor.category:
        editor.saved = stored_entries(editor.policy)
    return await _save_or_simulate(request, resources, editor)


async def _save_or_simulate(request: Request, resources: Resources, editor: PolicyEditor) -> Response:
    """Save the form or a shadow copy, simulate it, or only check it. If the form has errors, show them."""
    do = (await request.form()).get("do")
    if do == "check":
        return await _form(request, resources, editor)
    try:
        draft = editor.draft()
        if do == "simulate":
            await _simulate(resources, editor, draft)
            return await _form(request, resources, editor)
        if do == "trial":
            copy = await create_shadow_copy(resources.policies, draft)
            return RedirectResponse(f"/dashboard/policies/{copy.id}?done=trial", status_code=303)
        saved = await _save(resources.policies, editor, draft)
    except InvalidAdminRequestError as error:
        editor.errors = errors_by_field(error.errors, editor.category)
        return await _form(request, resources, editor, status=error.status)
    except ConflictError as error:
        editor.errors = {"name": error.message}
        return await _form(request, resources, editor, status=error.status)
    except PreconditionError as error:
        if editor.policy is not None:
            await editor.reconcile(resources.policies, draft, editor.policy)
        return await _form(request, resources, editor, status=error.status)
    done = "created" if editor.policy is None else "saved"
    return RedirectResponse(f"/dashboard/policies/{saved.id}?done={done}", status_code=303)


async def _save(store: PolicyStore, editor: PolicyEditor, draft: PolicyDraft) -> StoredPolicy:
    if editor.policy is None:
        return await store.create(draft)
    return await store.replace(editor.policy.id, draft, expected=editor.version)


async def _simulate(resources: Resources, editor: PolicyEditor, draft: PolicyDraft) -> None:
    policy = editor.policy
    tried = candidate(draft, policy.id if policy else None, policy.version if policy else 0)
    try:
        wanted = LoggedRequests(limit=editor.limit, agent=editor.agent or None)
    except ValidationError as error:
        raise InvalidAdminRequestError("Unknown agent", errors=list(error.errors())) from None
    tally, _ = await simulate_on_log(resources, tried, wanted, show=_SHOWN)
    logged = await Statistics(resources.database).totals(EventFilter(agent=wanted.agent), percentiles=False)
    editor.simulation = SimulationResult.of(tally, matching=logged.requests)


async def _submitted(request: Request) -> PolicyEditor:
    form = await request.form()
    entries = {key: [text for text in form.getlist(key) if isinstance(text, str)] for key in form}
    return submitted_editor(entries, _known("".join(entries.get("category", ()))))


def _fill_in_from_link(editor: PolicyEditor, request: Request) -> None:
    """Fill in values from the URL (``?rules.min_grounding_score=0.6``). Nothing is saved."""
    query = request.query_params
    editor.fill_in({key: query.getlist(key) for key in query})
    if query.get("from") == "calibration":
        editor.note = f"The threshold comes from the calibration page. It takes effect when you save. {editor.note}"


def _from_template(name: str) -> PolicyEditor:
    for template in templates():
        if template["name"] == name:
            return PolicyEditor.new(template, template["category"], template["description"])
    raise HTTPException(404, f"No template named {name!r}.")


async def _copy_of(store: PolicyStore, policy_id: str, version: int | None) -> PolicyEditor:
    if version is None:
        draft = (await store.get(policy_id)).draft()
    else:
        found = await store.versions(policy_id, before=version + 1, limit=1)
        if not found or found[0].version != version:
            raise HTTPException(404, f"Policy {policy_id!r} has no version {version}.")
        draft = draft_of(found[0])
    return PolicyEditor.new(asdict(draft), _known(draft.category), "This is a copy. Give it a new name.")


def _known(category: str) -> str:
    if category not in CATEGORIES:
        raise HTTPException(422, f"Unknown category {category!r}. Use one of: {', '.join(CATEGORIES)}.")
    return category


def _categories() -> Sequence[tuple[str, str]]:
    """Return the categories and their descriptions."""
    return [(name, schema["description"]) for name, schema in json_schema().items()]


def _subjects() -> Mapping[str, str]:
    """Return the subject of each category's decisions."""
    shown = {PolicySubject.DOCUMENTS: "documents", PolicySubject.REPLY: "replies"}
    return {name: " and ".join(shown[each] for each in sorted(CATEGORIES[name].subjects)) for name in CATEGORIES}


async def _form(request: Request, resources: Resources, editor: PolicyEditor, *, status: int = 200) -> Response:
    if request.headers.get("sec-fetch-dest") == "empty":
        status = 200  # The request is from a script. Browsers would log an error status to the console.
    keys = await resources.keys.list(limit=_KEYS)
    known = {
        "scope.agents": await distinct_values(resources.database, "agent"),
        "scope.models": await distinct_values(resources.database, "model"),
        "scope.keys": [name for key in keys if key.revoked_at is None for name in (key.name, key.prefix)],
    }
    return page(
        request,
        "policies/form.html",
        status=status,
        editor=editor,
        warnings=editor.warnings(resources.facts),
        basics=basics(),
        groups=rule_groups(editor.category),
        about=dict(_categories())[editor.category],
        known=known,
        limits=SIMULATION_LIMITS,
        doubts=_DOUBTS,
    )
