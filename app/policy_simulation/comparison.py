"""Compares the decisions before and after a change, and summarizes them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from policies.types import Action, Decision

_ALLOW = Action.ALLOW.value


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionBrief:
    """A shortened decision."""

    policy_id: str
    policy_name: str
    phase: str
    action: str
    reason: str
    reason_code: str | None

    @classmethod
    def of(cls, decision: Decision) -> "DecisionBrief":
        return cls(
            policy_id=decision.policy_id,
            policy_name=decision.policy_name,
            phase=decision.phase.value,
            action=decision.action.value,
            reason=decision.reason,
            reason_code=decision.reason_code,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOutcome:
    """The decisions on a request: the overall ``action``, and each decision other than ``allow``."""

    action: str
    decisions: Sequence[DecisionBrief]

    @classmethod
    def of(cls, action: str, decisions: Iterable[DecisionBrief]) -> "SimulatedOutcome":
        return cls(action=action, decisions=[decision for decision in decisions if decision.action != _ALLOW])


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """The decisions on a request before and after a change. ``doubts`` lists reasons why a live request could have a
    different outcome."""

    request_id: str | None
    ts: datetime | None
    agent: str | None
    model: str | None
    before: SimulatedOutcome
    after: SimulatedOutcome
    doubts: Sequence[str] = ()

    @property
    def changed(self) -> bool:
        return self.before != self.after


@dataclass(slots=True, kw_only=True)
class SimulationSummary:
    """Summarizes simulated requests, and keeps the first ``show`` requests whose decisions changed."""

    show: int
    requests: int = 0
    changed: int = 0
    unreadable: int = 0
    items: list[SimulatedRequest] = field(default_factory=list)
    _actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    _before: Counter[str] = field(default_factory=Counter)
    _after: Counter[str] = field(default_factory=Counter)
    _doubts: Counter[str] = field(default_factory=Counter)
    _doubtful: int = 0

    def add(self, request: SimulatedRequest) -> None:
        self.requests += 1
        self._actions[request.before.action, request.after.action] += 1
        self._before.update(decision.reason_code or "none" for decision in request.before.decisions)
        self._after.update(decision.reason_code or "none" for decision in request.after.decisions)
        self._doubts.update(request.doubts)
        self._doubtful += bool(request.doubts)
        if request.changed:
            self.changed += 1
            if len(self.items) < self.show:
                self.items.append(request)

    def summary(self) -> dict[str, Any]:
        """Return the summary. ``actions`` counts requests by their actions before and after. ``reason_codes`` counts
        decisions other than ``allow``."""
        actions: dict[str, dict[str, int]] = {}
        for (before, after), count in sorted(self._actions.items()):
            actions.setdefault(before, {})[after] = count
        return {
            "requests": self.requests,
            "changed": self.changed,
            "uncertain": self._doubtful,
            "doubts": dict(self._doubts.most_common()),
            "unreadable": self.unreadable,
            "actions": actions,
            "reason_codes": {"before": dict(self._before.most_common()), "after": dict(self._after.most_common())},
        }
