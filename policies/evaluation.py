"""How findings become decisions, and decisions a ruling. Categories find, policies decide, the strictest rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from policies.base import Category, Findings
from policies.types import Action, Decision, Phase, Policy, Record, Violation, strictest


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the policies in scope hold of a record.

    ``decisions`` come in order of priority. ``dropped``: the documents to take out, by index, and why. ``cause``: the
    first of the violations as strict as ``action``; None if there is none at all.
    """

    action: Action = Action.ALLOW
    decisions: tuple[Decision, ...] = ()
    dropped: Mapping[int, str] = field(default_factory=dict)
    cause: Violation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One policy's decision with the violations behind it."""

    policy: Policy
    decision: Decision
    violations: tuple[Violation, ...]

    @property
    def unfit(self) -> frozenset[int]:
        """The documents that it takes out whatever stands beside them."""
        return frozenset[int]().union(*(found.drop for found in self.violations if not found.relative))


def decide(policy: Policy, category: Category, phase: Phase, record: Record) -> Verdict | None:
    """Evaluate one policy. None: its category has nothing to say at ``phase``."""
    started = perf_counter()
    findings = category.evaluate(phase, policy.rules, record)
    if findings is None:
        return None
    reason, reason_code, metadata = _told(findings)
    metadata = {**metadata, **findings.notes}
    if findings.warnings:
        metadata["warnings"] = [*metadata.get("warnings", ()), *findings.warnings]
    decision = Decision(
        policy_id=policy.id,
        policy_version=policy.version,
        policy_name=policy.name,
        category=policy.category,
        phase=phase,
        action=strictest([violation.action for violation in findings.violations]),
        reason=reason,
        reason_code=reason_code,
        metadata=metadata,
        latency_ms=(perf_counter() - started) * 1000,
    )
    return Verdict(policy=policy, decision=decision, violations=findings.violations)


def rule(verdicts: Sequence[Verdict]) -> Ruling:
    """Join ``verdicts``, given in order of priority."""
    violations = [violation for verdict in verdicts for violation in verdict.violations]
    dropped: dict[int, str] = {}
    for violation in violations:
        for index in sorted(violation.drop):
            dropped.setdefault(index, violation.reason)
    return Ruling(
        action=strictest([verdict.decision.action for verdict in verdicts]),
        decisions=tuple(verdict.decision for verdict in verdicts),
        dropped=dropped,
        cause=first_strictest(violations),
    )


def first_strictest(violations: Sequence[Violation]) -> Violation | None:
    return max(violations, key=lambda violation: violation.action.severity, default=None)


def decision_to_dict(decision: Decision) -> dict[str, Any]:
    """A decision as JSON, for replies, errors and the event log. Times are in milliseconds."""
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


def _told(findings: Findings) -> tuple[str, str | None, dict[str, Any]]:
    """Reason, reason code and metadata. Of several violations the first gives the code, and each key of the metadata
    stands for the first that has it; ``warnings`` holds every reason and ``violations`` each one in full."""
    match findings.violations:
        case ():
            return findings.reason, findings.reason_code, dict(findings.metadata)
        case (violation,):
            return violation.reason, violation.reason_code, dict(violation.metadata)
        case several:
            metadata: dict[str, Any] = {}
            for violation in several:
                metadata = {**violation.metadata, **metadata}
            reasons = [violation.reason for violation in several]
            metadata["warnings"] = reasons
            metadata["violations"] = [_violation(violation) for violation in several]
            return "; ".join(reasons), several[0].reason_code, metadata


def _violation(violation: Violation) -> dict[str, Any]:
    metadata = {key: value for key, value in violation.metadata.items() if key != "warnings"}
    return {
        "action": violation.action.value,
        "reason": violation.reason,
        "reason_code": violation.reason_code,
        "metadata": metadata,
    }
