"""Computes and applies the changes that make a gateway's policies match a file. Policies are matched by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from app.policy_admin.policy_document import PolicyDraft, parse_document
from policies.policy_warnings import RuleWarning

_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingPolicy:
    """An existing policy and its version."""

    id: str
    version: int
    draft: PolicyDraft


class PolicyTarget(Protocol):
    """A place where policies can be listed and changed."""

    async def list(self) -> Sequence[ExistingPolicy]: ...
    async def create(self, draft: PolicyDraft) -> None: ...
    async def replace(self, present: ExistingPolicy, draft: PolicyDraft) -> None: ...
    async def delete(self, present: ExistingPolicy) -> None: ...
    async def warnings(self, draft: PolicyDraft) -> Sequence[RuleWarning]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """One change. Creates the policy if ``present`` is None, deletes it if ``wanted`` is None, and otherwise replaces
    it."""

    present: ExistingPolicy | None
    wanted: PolicyDraft | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanges:
    """The changes, sorted by name, and the names of the policies that are unchanged or not in the file."""

    changes: Sequence[PolicyChange]
    unchanged: Sequence[str]
    others: Sequence[str]


def plan_changes(wanted: Sequence[PolicyDraft], present: Sequence[ExistingPolicy], *, prune: bool) -> PolicyChanges:
    """Compare the ``wanted`` policies with the ``present`` ones. With ``prune``, policies that are only in ``present``
    are deleted. Otherwise they are kept."""
    there, names = {policy.draft.name: policy for policy in present}, {draft.name for draft in wanted}
    changes = [PolicyChange(present=there.get(draft.name), wanted=draft) for draft in wanted]
    differing = [change for change in changes if change.present is None or change.present.draft != change.wanted]
    others = [policy for policy in present if policy.draft.name not in names]
    if prune:
        differing.extend(PolicyChange(present=policy, wanted=None) for policy in others)
    changed = {_name(change) for change in differing}
    return PolicyChanges(
        changes=sorted(differing, key=_name),
        unchanged=sorted(names - changed),
        others=[] if prune else sorted(policy.draft.name for policy in others),
    )


async def apply_changes(changes: PolicyChanges, target: PolicyTarget) -> None:
    """Apply the changes, deletions last. Raises the errors of ``target``. If an error occurs, earlier changes are not
    undone."""
    for change in sorted(changes.changes, key=lambda change: change.wanted is None):
        match change:
            case PolicyChange(present=None, wanted=PolicyDraft() as draft):
                await target.create(draft)
            case PolicyChange(present=ExistingPolicy() as present, wanted=PolicyDraft() as draft):
                await target.replace(present, draft)
            case PolicyChange(present=ExistingPolicy() as present):
                await target.delete(present)


async def warnings_about(changes: PolicyChanges, target: PolicyTarget) -> Sequence[str]:
    """Return the warnings about the policies to create or replace, one line each."""
    return [
        f"{change.wanted.name}: {'.'.join(warning.loc)}: {warning.msg}"
        for change in changes.changes
        if change.wanted is not None
        for warning in await target.warnings(change.wanted)
    ]


def describe(change: PolicyChange) -> Iterator[str]:
    """Describe a change as lines of text: the policy, then each field that changes."""
    new, old = _fields(change.wanted), _fields(None if change.present is None else change.present.draft)
    match change:
        case PolicyChange(present=None, wanted=PolicyDraft() as draft):
            yield f"+ {draft.name}"
            yield f"    category: {_shown(draft.category)}"
            # Fields with their default value are omitted.
            old = _fields(parse_document({"name": draft.name, "category": draft.category}))
            yield from (f"    {path}: {_shown(value)}" for path, value in new.items() if old.get(path) != value)
        case PolicyChange(present=ExistingPolicy() as present, wanted=None):
            yield f"- {present.draft.name}"
        case _:
            yield f"~ {_name(change)}"
            for path in sorted(new.keys() | old.keys()):
                before, after = old.get(path, _MISSING), new.get(path, _MISSING)
                if before != after:
                    yield f"    {path}: {_shown(before)} -> {_shown(after)}"


def _name(change: PolicyChange) -> str:
    draft = change.wanted or (change.present.draft if change.present is not None else None)
    return "" if draft is None else draft.name


def _fields(draft: PolicyDraft | None) -> dict[str, Any]:
    return {} if draft is None else draft.flat()


def _shown(value: Any) -> str:
    return "-" if value is _MISSING else orjson.dumps(value).decode()
