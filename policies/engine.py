"""The policies in force, and those in scope of one request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.audit import Audit, SentenceRuling
from policies.decisions import Ruling, Verdict, decide, decision_to_dict, rule
from policies.registry import CATEGORIES
from policies.types import Names, Phase, Policy, Record

__all__ = [
    "DEFAULT_GROUNDING",
    "Audit",
    "PolicyEngine",
    "PolicySet",
    "Ruling",
    "SentenceRuling",
    "decision_to_dict",
]

_LARGEST_CACHE = 1024


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Policies that are enforced together, the highest priority first."""

    policies: tuple[Policy, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.policies)

    def of(self, category: str) -> tuple[Policy, ...]:
        return tuple(policy for policy in self.policies if policy.category == category)

    def evaluate(self, category: str, phase: Phase, record: Record) -> Ruling:
        """Evaluate every policy of ``category`` at ``phase``; what a run does at each step of it."""
        return rule(self._verdicts(category, phase, record))

    def retrieval(self, record: Record, phase: Phase = Phase.BEFORE_WORKFLOW) -> Ruling:
        """Check the documents. A gateway request, whose documents are all known, does so in ``before_workflow`` alone;
        a run does in ``mid_execution`` (the last document is the new one) and in ``after_workflow``."""
        verdicts = self._verdicts("retrieval", phase, record)
        ruling = rule(verdicts)
        if ruling.dropped and len(verdicts) > 1:
            # What one policy takes out, another may find missing.
            ruling = rule(self._verdicts("retrieval", phase, replace(record, dropped=frozenset(ruling.dropped))))
        return ruling

    def audit(self, record: Record) -> Audit:
        """Begin to check a reply; ``record`` is what is known before it."""
        return Audit(self.of("grounding"), CATEGORIES["grounding"], record)

    def _verdicts(self, category: str, phase: Phase, record: Record) -> list[Verdict]:
        evaluator = CATEGORIES[category]
        made = [decide(policy, evaluator, phase, record) for policy in self.of(category)]
        return [verdict for verdict in made if verdict is not None]


DEFAULT_GROUNDING = PolicySet()
"""What a reply with documents is judged by where no grounding policy is in scope: default rules, without decisions."""


class PolicyEngine:
    """An immutable snapshot of the policies. A change makes a new engine, which the gateway then uses.

    Args:
        policies: all of them; those that are disabled, or in another mode than ``enforce``, are passed over.

    Raises ValueError for a policy of an unknown category.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        for policy in policies:
            if policy.category not in CATEGORIES:
                raise ValueError(f"Policy {policy.name!r} is of the unknown category {policy.category!r}")
        enforced = [policy for policy in policies if policy.enabled and policy.mode == "enforce"]
        self._policies = tuple(sorted(enforced, key=lambda policy: (-policy.priority, policy.name, policy.id)))
        self._in_scope: dict[tuple[str | None, str | None, Names], PolicySet] = {}

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies enforced, the highest priority first."""
        return self._policies

    def in_scope(self, *, agent: str | None = None, model: str | None = None, key: Names = None) -> PolicySet:
        """The policies for a request of ``agent`` to ``model`` with the gateway key that goes by the names ``key``."""
        of = (agent, model, key)
        found = self._in_scope.get(of)
        if found is None:
            found = PolicySet(tuple(p for p in self._policies if p.scope.covers(agent=agent, model=model, key=key)))
            if len(self._in_scope) >= _LARGEST_CACHE:
                # Agents and models come from clients, so the cache must not grow with them: the oldest goes.
                self._in_scope.pop(next(iter(self._in_scope)))
            self._in_scope[of] = found
        return found
