"""Evaluates single policies and combines the results of several: the strictest action wins."""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from msgspec import Struct, field

from policies import registry
from policies.base import CategoryResult
from policies.types import SEVERITY, Action, Decision, Phase, Policy, PolicyInputs, Violation

_JOINT = "; "


class PolicyResult(Struct, frozen=True, kw_only=True):
    """One policy's decision, with the violations behind it."""

    policy: Policy
    decision: Decision
    violations: tuple[Violation, ...]

    @property
    def unfit(self) -> frozenset[int]:
        """The documents that the policy drops regardless of the other documents."""
        return frozenset[int]().union(*(found.drop for found in self.violations if not found.relative))


class CombinedDecision(Struct, frozen=True, kw_only=True):
    """The combined decision of the policies in scope.

    ``decisions`` are in order of priority. ``dropped`` maps the index of each document to drop to the reason.
    ``cause`` is the first violation that is as strict as ``action``; None if there are no violations.
    """

    action: Action = Action.ALLOW
    decisions: tuple[Decision, ...] = ()
    dropped: Mapping[int, str] = field(default_factory=dict)
    cause: Violation | None = None


def evaluate_policy(policy: Policy, phase: Phase, inputs: PolicyInputs) -> PolicyResult | None:
    """Evaluate one policy. Return None if its category checks nothing at ``phase``."""
    started = perf_counter()
    found = registry.CATEGORIES[policy.category].evaluate(phase, policy.rules, inputs)
    if found is None:
        return None
    reason, reason_code, metadata = _explanation(found)
    metadata = {**metadata, **found.notes}
    if found.warnings:
        metadata["warnings"] = [*metadata.get("warnings", ()), *found.warnings]
    decision = Decision(
        policy_id=policy.id,
        policy_version=policy.version,
        policy_name=policy.name,
        category=policy.category,
        phase=phase,
        action=strictest([violation.action for violation in found.violations]),
        reason=reason,
        reason_code=reason_code,
        metadata=metadata,
        latency_ms=(perf_counter() - started) * 1000,
        quotes=_quotes(found.violations),
    )
    return PolicyResult(policy=policy, decision=decision, violations=found.violations)


def evaluate_policies(policies: Sequence[Policy], phase: Phase, inputs: PolicyInputs) -> list[PolicyResult]:
    """Evaluate ``policies`` in order, leaving out those whose category checks nothing at ``phase``."""
    results = (evaluate_policy(policy, phase, inputs) for policy in policies)
    return [result for result in results if result is not None]


def combine(results: Sequence[PolicyResult]) -> CombinedDecision:
    """Combine ``results``, given in order of priority."""
    violations = [violation for result in results for violation in result.violations]
    dropped: dict[int, str] = {}
    for violation in violations:
        for index in sorted(violation.drop):
            dropped.setdefault(index, violation.reason)
    return CombinedDecision(
        action=strictest([result.decision.action for result in results]),
        decisions=tuple(result.decision for result in results),
        dropped=dropped,
        cause=first_strictest(violations),
    )


def first_strictest(violations: Sequence[Violation]) -> Violation | None:
    """Return the first of the strictest ``violations``, or None if there are none."""
    return max(violations, key=lambda violation: SEVERITY[violation.action], default=None)


def strictest(actions: Sequence[Action]) -> Action:
    """Return the strictest of ``actions``, or ``allow`` if there are none."""
    return max(actions, key=SEVERITY.__getitem__, default=Action.ALLOW)


def decision_to_dict(decision: Decision) -> dict[str, Any]:
    """Return a decision as JSON, for replies, errors and the event log. Times are in milliseconds."""
    return {
        "policy_id": decision.policy_id,
        "policy_version": decision.policy_version,
        "policy_name": decision.policy_name,
        "category": decision.category,
        "phase": decision.phase.value,
        "action": decision.action.value,
        "reason": decision.reason,
        "reason_code": decision.reason_code,
        "metadata": dict(decision.metadata),
        "latency_ms": round(decision.latency_ms, 3),
    }


def _explanation(found: CategoryResult) -> tuple[str, str | None, dict[str, Any]]:
    """Return the reason, reason code and metadata. With several violations, the code and metadata come from the first
    violation that is as strict as the decision. ``warnings`` then lists all reasons, and ``violations`` lists the
    violations in full."""
    match found.violations:
        case ():
            return found.reason, found.reason_code, dict(found.metadata)
        case (violation,):
            return violation.reason, violation.reason_code, dict(violation.metadata)
        case several:
            deciding = max(several, key=lambda violation: SEVERITY[violation.action])
            reasons = [violation.reason for violation in several]
            metadata = {
                **deciding.metadata,
                "warnings": reasons,
                "violations": [_violation_to_dict(violation) for violation in several],
            }
            return _JOINT.join(reasons), deciding.reason_code, metadata


def _quotes(violations: Sequence[Violation]) -> Mapping[str, str]:
    """Return ``Decision.quotes`` for a decision with ``violations``."""
    quotes = {each.reason: each.without_text for each in violations if each.without_text is not None}
    if quotes and len(violations) > 1:
        reasons = [each.reason for each in violations]
        quotes[_JOINT.join(reasons)] = _JOINT.join(quotes.get(reason, reason) for reason in reasons)
    return quotes


def _violation_to_dict(violation: Violation) -> dict[str, Any]:
    metadata = {key: value for key, value in violation.metadata.items() if key != "warnings"}
    return {
        "action": violation.action.value,
        "reason": violation.reason,
        "reason_code": violation.reason_code,
        "metadata": metadata,
    }
