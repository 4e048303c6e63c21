"""Creates shadow copies of policies for trying out new rules, and applies a copy's rules to the original policy."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from app.errors import ConflictError, PreconditionError
from app.policy_admin.policy_document import PolicyDraft, StoredPolicy, complete_rules
from app.policy_admin.policy_store import PolicyStore

_MOST_COPIES = 20
_MOST_NAME = 180
_MOST_POLICIES = 1_000


async def create_shadow_copy(store: PolicyStore, draft: PolicyDraft) -> StoredPolicy:
    """Create a shadow policy from ``draft``, under the first free name. Raises ConflictError if there are too many."""
    for number in range(1, _MOST_COPIES + 1):
        name = f"{draft.name[:_MOST_NAME]} (trial{f' {number}' if number > 1 else ''})"
        try:
            return await store.create(replace(draft, name=name, mode="shadow", enabled=True))
        except ConflictError:
            continue
    raise ConflictError(f"{draft.name!r} already has {_MOST_COPIES} shadow copies. Delete some of them.")


async def replaceable(store: PolicyStore, trial: StoredPolicy) -> Sequence[StoredPolicy]:
    """Return the policies that ``trial`` can replace: the enforced policies of the same category and scope. If
    ``trial`` isn't in shadow mode, there are none. If ``trial`` is named as a copy of one of these policies, that
    policy comes first."""
    if trial.mode != "shadow":
        return []
    same = await enforced_alike(store, trial)
    return sorted(same, key=lambda each: not trial.name.startswith(f"{each.name} (trial"))


async def enforced_alike(store: PolicyStore, policy: StoredPolicy) -> Sequence[StoredPolicy]:
    """Return the other enforced policies of the same category and scope."""
    found = await store.list(category=policy.category, enabled=True, limit=_MOST_POLICIES)
    return [
        each for each in found if each.mode == "enforce" and each.id != policy.id and _scope(each) == _scope(policy)
    ]


async def enforce_in_place(
    store: PolicyStore, trial_id: str, policy_id: str, *, expected: int, expected_policy: int
) -> StoredPolicy:
    """Save the rules of a shadow policy as a new version of the policy that it replaces, then delete the shadow policy.
    At any time, either the old or the new rules are in force.

    Raises PreconditionError if one of the policies has changed, ConflictError if the shadow policy can't replace the
    other one, and NotFoundError.
    """
    trial = await store.get(trial_id)
    if trial.version != expected:
        raise PreconditionError(f"policy {trial_id!r} is at version {trial.version}, not {expected}")
    policies = {each.id: each for each in await replaceable(store, trial)}
    if policy_id not in policies:
        raise ConflictError(
            f"{trial.name!r} must be in shadow mode and have the category and scope of an enforced policy"
        )
    draft = PolicyDraft(**asdict(policies[policy_id].draft()) | {"rules": complete_rules(trial)})
    saved = await store.replace(policy_id, draft, expected=expected_policy)
    await store.delete(trial_id, expected=expected)
    return saved


def _scope(policy: StoredPolicy) -> dict[str, list[str]]:
    return {name: sorted(globs) for name, globs in policy.scope.items() if globs}
