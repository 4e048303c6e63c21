"""Plans contain the differences between a file and a gateway, and nothing else."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.cli.apply_policies import (
    ExistingPolicy,
    PolicyChanges,
    apply_changes,
    describe,
    plan_changes,
    warnings_about,
)
from app.policy_admin.policy_document import PolicyDraft, parse_document
from policies.policy_warnings import RuleWarning


def drafted(name: str, **fields: Any) -> PolicyDraft:
    return parse_document({"name": name, "category": "retrieval", **fields})


def present(*drafts: PolicyDraft) -> list[ExistingPolicy]:
    return [ExistingPolicy(id=f"pol_{draft.name}", version=3, draft=draft) for draft in drafts]


class Recording:
    """A target that records its changes."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def list(self) -> Sequence[ExistingPolicy]:
        return []

    async def create(self, draft: PolicyDraft) -> None:
        self.done.append(f"create {draft.name}")

    async def replace(self, present: ExistingPolicy, draft: PolicyDraft) -> None:
        self.done.append(f"replace {present.id} v{present.version} {draft.priority}")

    async def delete(self, present: ExistingPolicy) -> None:
        self.done.append(f"delete {present.id} v{present.version}")

    async def warnings(self, draft: PolicyDraft) -> Sequence[RuleWarning]:
        return [RuleWarning(loc=("rules", "min_chunks"), msg="Hm.")]


def carried_out(plan: PolicyChanges) -> list[str]:
    target = Recording()
    asyncio.run(apply_changes(plan, target))
    return target.done


def test_only_differences_are_applied_and_deletions_come_last() -> None:
    wanted = [drafted("same"), drafted("new"), drafted("other", priority=5)]
    there = present(drafted("same"), drafted("other"), drafted("gone"))
    plan = plan_changes(wanted, there, prune=False)
    assert (plan.unchanged, plan.others) == (["same"], ["gone"])
    assert carried_out(plan) == ["create new", "replace pol_other v3 5"]
    pruned = plan_changes(wanted, there, prune=True)
    assert pruned.others == []
    assert carried_out(pruned) == ["create new", "replace pol_other v3 5", "delete pol_gone v3"]


def test_only_written_policies_cause_warnings() -> None:
    plan = plan_changes([drafted("same"), drafted("new")], present(drafted("same"), drafted("gone")), prune=True)
    assert asyncio.run(warnings_about(plan, Recording())) == ["new: rules.min_chunks: Hm."]


@pytest.mark.parametrize("prune", [False, True])
def test_without_differences_there_are_no_changes(prune: bool) -> None:
    drafts = [drafted("a", rules={"min_chunks": 2}), drafted("b")]
    assert plan_changes(drafts, present(*drafts), prune=prune).changes == []


def test_empty_file_prunes_everything() -> None:
    assert carried_out(plan_changes([], present(drafted("a")), prune=True)) == ["delete pol_a v3"]


def test_change_is_described_field_by_field() -> None:
    wanted = [
        drafted("changed", rules={"min_chunks": 3}, scope={"agents": ["a"]}),
        drafted("new", rules={"max_source_age_days": 365}, priority=2),
    ]
    plan = plan_changes(wanted, present(drafted("changed"), drafted("gone")), prune=True)
    assert [list(describe(step)) for step in plan.changes] == [
        ["~ changed", "    rules.min_chunks: 1 -> 3", '    scope.agents: [] -> ["a"]'],
        ["- gone"],
        ["+ new", '    category: "retrieval"', "    rules.max_source_age_days: 365", "    priority: 2"],
    ]


def test_change_of_category_is_described() -> None:
    grounding = parse_document({"name": "a", "category": "grounding"})
    (step,) = plan_changes([grounding], present(drafted("a")), prune=False).changes
    lines = list(describe(step))
    assert '    category: "retrieval" -> "grounding"' in lines
    assert "    rules.min_chunks: 1 -> -" in lines
    assert "    rules.min_citations: - -> 1" in lines
