"""Bringing the policies of a gateway to what a file says: what is different, and how it gets there."""

from app.cli.apply_policies.diff import Plan, Present, Step, Target, carry_out, make_plan, told
from app.cli.apply_policies.file import PolicyFileError, policy_file, read_policies
from app.cli.apply_policies.targets import GatewayTarget, StoreTarget, TargetError

__all__ = [
    "GatewayTarget",
    "Plan",
    "PolicyFileError",
    "Present",
    "Step",
    "StoreTarget",
    "Target",
    "TargetError",
    "carry_out",
    "make_plan",
    "policy_file",
    "read_policies",
    "told",
]
