"""Updates a gateway's policies to match a file: computes the differences and applies them."""

from app.cli.apply_policies.changes import (
    ExistingPolicy,
    PolicyChange,
    PolicyChanges,
    PolicyTarget,
    apply_changes,
    describe,
    plan_changes,
    warnings_about,
)
from app.cli.apply_policies.policy_file import PolicyFileError, policy_file, read_policies
from app.cli.apply_policies.targets import GatewayTarget, StoreTarget, TargetError

__all__ = [
    "ExistingPolicy",
    "GatewayTarget",
    "PolicyChange",
    "PolicyChanges",
    "PolicyFileError",
    "PolicyTarget",
    "StoreTarget",
    "TargetError",
    "apply_changes",
    "describe",
    "plan_changes",
    "policy_file",
    "read_policies",
    "warnings_about",
]
