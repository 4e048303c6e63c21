"""What has to be done for a gateway's policies to be those of a file. Policies are told apart by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson

from app.policy_admin.policy_document import PolicyDraft, parse_document

_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A policy that is there, and its version."""

    id: str
    version: int
    draft: PolicyDraft


class Target(Protocol):
    """Where policies are changed."""

    async def list(self) -> Sequence[Present]: ...
    async def create(self, draft: PolicyDraft) -> None: ...
    async def replace(self, present: Present, draft: PolicyDraft) -> None: ...
    async def delete(self, present: Present) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change: made where nothing is ``present``, deleted where nothing is ``wanted``, else replaced."""

    present: Present | None
    wanted: PolicyDraft | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps, by name, and the names of the policies that are as they should be and of those left alone."""

    steps: Sequence[Step]
    unchanged: Sequence[str]
    others: Sequence[str]


def make_plan(wanted: Sequence[PolicyDraft], present: Sequence[Present], *, prune: bool) -> Plan:
    """``prune``: policies that are not wanted are deleted; else they are left alone."""
    there, names = {policy.draft.name: policy for policy in present}, {draft.name for draft in wanted}
    steps = [Step(present=there.get(draft.name), wanted=draft) for draft in wanted]
    differing = [step for step in steps if step.present is None or step.present.draft != step.wanted]
    others = [policy for policy in present if policy.draft.name not in names]
    if prune:
        differing.extend(Step(present=policy, wanted=None) for policy in others)
    changed = {_name(step) for step in differing}
    return Plan(
        steps=sorted(differing, key=_name),
        unchanged=sorted(names - changed),
        others=[] if prune else sorted(policy.draft.name for policy in others),
    )


async def carry_out(plan: Plan, target: Target) -> None:
    """Do it, step by step; what deletes comes last. Raises what ``target`` raises; what was done by then stays done."""
    for step in sorted(plan.steps, key=lambda step: step.wanted is None):
        match step:
            case Step(present=None, wanted=PolicyDraft() as draft):
                await target.create(draft)
            case Step(present=Present() as present, wanted=PolicyDraft() as draft):
                await target.replace(present, draft)
            case Step(present=Present() as present):
                await target.delete(present)


def told(step: Step) -> Iterator[str]:
    """A step for people: what becomes of which policy, and every field that changes."""
    new, old = _fields(step.wanted), _fields(None if step.present is None else step.present.draft)
    match step:
        case Step(present=None, wanted=PolicyDraft() as draft):
            yield f"+ {draft.name}"
            yield f"    category: {_shown(draft.category)}"
            # What is left at its default would say nothing.
            old = _fields(parse_document({"name": draft.name, "category": draft.category}))
            yield from (f"    {path}: {_shown(value)}" for path, value in new.items() if old.get(path) != value)
        case Step(present=Present() as present, wanted=None):
            yield f"- {present.draft.name}"
        case _:
            yield f"~ {_name(step)}"
            for path in sorted(new.keys() | old.keys()):
                before, after = old.get(path, _MISSING), new.get(path, _MISSING)
                if before != after:
                    yield f"    {path}: {_shown(before)} -> {_shown(after)}"


def _name(step: Step) -> str:
    draft = step.wanted or (step.present.draft if step.present is not None else None)
    return "" if draft is None else draft.name


def _fields(draft: PolicyDraft | None) -> dict[str, Any]:
    return {} if draft is None else dict(_flat(asdict(draft), ""))


def _flat(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _shown(value: Any) -> str:
    return "-" if value is _MISSING else orjson.dumps(value).decode()
