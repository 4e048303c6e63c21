"""``/dashboard/policies/new`` and ``…/{id}/edit``: a policy from a template or as it is, tried on the log and saved."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from app.api.admin.common import Word
from app.api.admin.simulate import Logged, candidate, simulate_on_log
from app.dashboard.known_values import seen
from app.dashboard.page_security import DashboardRoute
from app.dashboard.pages.policies import Number
from app.dashboard.policies.form_fields import (
    Entries,
    all_fields,
    basics,
    document_of,
    entries_of,
    errors_by_field,
    rule_groups,
)
from app.dashboard.policies.version_diff import Clash, clashes, draft_of
from app.dashboard.templating import page
from app.dependencies import PoliciesDep, ResourcesDep
from app.errors import ConflictError, InvalidAdminRequestError, NotFoundError, PreconditionError
from app.policy_admin.document import PolicyDraft, StoredPolicy, parse_document
from app.policy_admin.store import PolicyStore
from app.policy_simulation import Tally
from app.resources import Resources
from policies.registry import CATEGORIES, json_schema
from policies.templates import templates

router = APIRouter(route_class=DashboardRoute)

SIMULATED = (100, 1_000, 10_000, 100_000)
"""How many requests a policy may be tried on."""
_SHOWN = 50
_KEYS = 200
_DOUBTS = {
    "no_reply": "it was blocked before there was a reply",
    "reply_cut_off": "its reply was cut off at a sentence that passes now",
    "documents_differ": "other documents would be left out, so that the judge would read others",
    "not_judged": "nobody judged the reply",
    "judged_by_other_thresholds": "two documents were read together, by other thresholds",
    "more_claims": "more claims would be judged",
    "sources_per_claim": "claims would be read against more or fewer documents",
    "llm_score": "an LLM would be asked anew",
    "evidence_from_tools": "the results of tools would count",
    "consistency": "its claims would be held against each other",
    "conflicts": "its documents would be held against each other",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What came of trying: ``summary`` counts, ``changed`` says how many requests go from which action to which, and
    ``otherwise`` how many keep theirs for other reasons."""

    asked_for: int
    tally: Tally
    summary: Mapping[str, Any]
    changed: Sequence[tuple[str, str, int]]
    otherwise: int

    @classmethod
    def of(cls, tally: Tally, asked_for: int) -> "Simulated":
        summary = tally.summary()
        changed = [
            (before, after, count)
            for before, counts in summary["actions"].items()
            for after, count in counts.items()
            if before != after
        ]
        return cls(
            asked_for=asked_for,
            tally=tally,
            summary=summary,
            changed=sorted(changed, key=lambda change: -change[2]),
            otherwise=tally.changed - sum(count for _, _, count in changed),
        )


@dataclass(slots=True, kw_only=True)
class Editor:
    """What the form shows. ``saved``: the entries of the policy as it is; ``version``: the one that is being edited;
    ``stale``: another one was saved meanwhile; ``limit``: how many requests it is to be tried on."""

    category: str
    entries: Entries
    saved: Entries | None = None
    policy: StoredPolicy | None = None
    version: int = 0
    limit: int = SIMULATED[1]
    note: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)
    stale: bool = False
    clashes: Sequence[Clash] = ()
    simulated: Simulated | None = None

    def draft(self) -> PolicyDraft:
        """Raises InvalidAdminRequestError."""
        return parse_document(document_of(self.entries, self.category))


@router.get("/policies/new")
async def new_policy(
    request: Request,
    resources: ResourcesDep,
    store: PoliciesDep,
    template: str | None = None,
    category: str | None = None,
    like: Word | None = None,
    version: Number | None = None,
) -> Response:
    """From a ``template``, from nothing but a ``category``, or ``like`` another policy is or was."""
    if like is not None:
        editor = await _like(store, like, version)
    elif template is not None:
        editor = _from_template(template)
    elif category is not None:
        editor = _new({"category": category}, _known(category))
    else:
        return page(request, "policy_new.html", templates=templates(), categories=_categories())
    _overridden(editor, request)
    return await _form(request, resources, editor)


@router.post("/policies/new")
async def create_policy(request: Request, resources: ResourcesDep, store: PoliciesDep) -> Response:
    editor = await _submitted(request)
    return await _acted(request, resources, editor)


@router.get("/policies/{policy_id}/edit")
async def edit_policy(request: Request, resources: ResourcesDep, store: PoliciesDep, policy_id: Word) -> Response:
    editor = _editing(await store.get(policy_id))
    _overridden(editor, request)
    return await _form(request, resources, editor)


@router.post("/policies/{policy_id}/edit")
async def change_policy(request: Request, resources: ResourcesDep, store: PoliciesDep, policy_id: Word) -> Response:
    editor = await _submitted(request)
    try:
        editor.policy = await store.get(policy_id)
    except NotFoundError as error:
        said = "This policy was deleted meanwhile. Save it as a new one if it is still wanted."
        editor.errors = {"": said}
        return await _form(request, resources, editor, status=error.status)
    if editor.policy.category == editor.category:
        editor.saved = _entries(editor.policy)
    return await _acted(request, resources, editor)


async def _acted(request: Request, resources: Resources, editor: Editor) -> Response:
    """Do what the button said, or show what is wrong with it."""
    try:
        draft = editor.draft()
        if (await request.form()).get("do") == "simulate":
            await _simulate(resources, editor, draft)
            return await _form(request, resources, editor)
        saved = await _save(resources.policies, editor, draft)
    except InvalidAdminRequestError as error:
        editor.errors = errors_by_field(error.errors, editor.category)
        return await _form(request, resources, editor, status=error.status)
    except ConflictError as error:
        editor.errors = {"name": error.message}
        return await _form(request, resources, editor, status=error.status)
    except PreconditionError as error:
        if editor.policy is not None:
            await _reconcile(resources.policies, editor, draft, editor.policy)
        return await _form(request, resources, editor, status=error.status)
    done = "created" if editor.policy is None else "saved"
    return RedirectResponse(f"/dashboard/policies/{saved.id}?done={done}", status_code=303)


async def _save(store: PolicyStore, editor: Editor, draft: PolicyDraft) -> StoredPolicy:
    if editor.policy is None:
        return await store.create(draft)
    return await store.replace(editor.policy.id, draft, expected=editor.version)


async def _simulate(resources: Resources, editor: Editor, draft: PolicyDraft) -> None:
    policy = editor.policy
    tried = candidate(draft, policy.id if policy else None, policy.version if policy else 0)
    tally, _ = await simulate_on_log(resources, tried, Logged(limit=editor.limit), show=_SHOWN)
    editor.simulated = Simulated.of(tally, editor.limit)


async def _reconcile(store: PolicyStore, editor: Editor, ours: PolicyDraft, policy: StoredPolicy) -> None:
    """Somebody saved another version meanwhile: take over what only they changed, and show where both differ. What is
    saved next is on top of theirs."""
    policy = await store.get(policy.id)
    theirs, version = policy.draft(), editor.version
    found = await store.versions(policy.id, before=version + 1, limit=1)
    base = draft_of(found[0]) if found and found[0].version == version else theirs
    editor.clashes = clashes(base, theirs, ours)
    if theirs.category == ours.category:
        taken = entries_of(asdict(theirs), ours.category)
        kept = {clash.key for clash in editor.clashes if clash.by != "them"}
        editor.entries = {key: editor.entries.get(key, ()) if key in kept else taken[key] for key in taken}
        editor.saved = taken
    editor.policy, editor.version, editor.stale = policy, policy.version, True


async def _submitted(request: Request) -> Editor:
    form = await request.form()
    entries = {key: [text for text in form.getlist(key) if isinstance(text, str)] for key in form}
    version = "".join(entries.get("version", ()))
    limit = "".join(entries.get("limit", ()))
    return Editor(
        category=_known("".join(entries.get("category", ()))),
        entries=entries,
        version=int(version) if version.isdecimal() and len(version) < 10 else 0,
        limit=int(limit) if limit in map(str, SIMULATED) else SIMULATED[1],
    )


def _overridden(editor: Editor, request: Request) -> None:
    """Take over what the link asks for (``rules.min_grounding_score=0.6``): it is entered, not saved."""
    query = request.query_params
    known = {each.key: each for each in all_fields(editor.category)}
    given = {key: [text for text in query.getlist(key) if text] for key in query if key in known}
    editor.entries = {**editor.entries, **given}
    if query.get("from") == "calibration":
        editor.note = "The threshold is filled in from the calibration. It is in force once you save."


def _editing(policy: StoredPolicy) -> Editor:
    entries = _entries(policy)
    return Editor(category=policy.category, entries=entries, saved=entries, policy=policy, version=policy.version)


def _new(document: Mapping[str, Any], category: str, note: str = "") -> Editor:
    return Editor(category=category, entries=entries_of(document, category), note=note)


def _from_template(name: str) -> Editor:
    for template in templates():
        if template["name"] == name:
            return _new(template, template["category"], template["description"])
    raise HTTPException(404, f"There is no template {name!r}.")


async def _like(store: PolicyStore, policy_id: str, version: int | None) -> Editor:
    if version is None:
        draft = (await store.get(policy_id)).draft()
    else:
        found = await store.versions(policy_id, before=version + 1, limit=1)
        if not found or found[0].version != version:
            raise HTTPException(404, f"There is no version {version} of policy {policy_id!r}.")
        draft = draft_of(found[0])
    return _new(asdict(draft), _known(draft.category), "A copy. Give it a name of its own.")


def _entries(policy: StoredPolicy) -> Entries:
    return entries_of(asdict(policy.draft()), policy.category)


def _known(category: str) -> str:
    if category not in CATEGORIES:
        raise HTTPException(422, f"There is no category {category!r}.")
    return category


def _categories() -> Sequence[tuple[str, str]]:
    """Each category and what it is about."""
    return [(name, schema["description"]) for name, schema in json_schema().items()]


async def _form(request: Request, resources: Resources, editor: Editor, *, status: int = 200) -> Response:
    if request.headers.get("sec-fetch-dest") == "empty":
        status = 200  # a script puts it in place of the page; anything else a browser would tell on its console
    keys = await resources.keys.list(limit=_KEYS)
    known = {
        "scope.agents": await seen(resources.database, "agent"),
        "scope.models": await seen(resources.database, "model"),
        "scope.keys": [name for key in keys if key.revoked_at is None for name in (key.name, key.prefix)],
    }
    return page(
        request,
        "policy_form.html",
        status=status,
        editor=editor,
        basics=basics(),
        groups=rule_groups(editor.category),
        about=dict(_categories())[editor.category],
        known=known,
        limits=SIMULATED,
        doubts=_DOUBTS,
    )
