"""The policies in force, and those in scope of one request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

from policies.evaluation import Ruling, Verdict, decide, decision_to_dict, rule
from policies.grounding.reply_evaluation import Audit, SentenceRuling
from policies.registry import CATEGORIES
from policies.retrieval.rules import RetrievalRules
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
_SHARES = 2**64
_NOTHING_TO_SAY = Ruling()


@dataclass(frozen=True)
class PolicySet:
    """Policies that are enforced together, the highest priority first.

    ``shadow`` are those beside them: they are asked as well, and what they say is logged and changes nothing.
    """

    policies: tuple[Policy, ...] = ()
    shadow: tuple[Policy, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.policies)

    def of(self, category: str) -> tuple[Policy, ...]:
        return self._by_category.get(category, ())

    @cached_property
    def _by_category(self) -> Mapping[str, tuple[Policy, ...]]:
        categories = {policy.category for policy in self.policies}
        return {each: tuple(policy for policy in self.policies if policy.category == each) for each in categories}

    def evaluate(self, category: str, phase: Phase, record: Record) -> Ruling:
        """Evaluate every policy of ``category`` at ``phase``; what a run does at each step of it."""
        return rule(self._verdicts(category, phase, record))

    def retrieval(self, record: Record, phase: Phase = Phase.BEFORE_WORKFLOW) -> Ruling:
        """Check the documents. A gateway request, whose documents are all known, does so in ``before_workflow`` alone;
        a run does in ``mid_execution`` (the last document is the new one) and in ``after_workflow``."""
        verdicts = self._verdicts("retrieval", phase, record)
        if not verdicts:
            return _NOTHING_TO_SAY
        ruling = rule(verdicts)
        if len(verdicts) < 2:
            return ruling
        # What one policy takes out, another may find missing, and what is left to be of one source. The first is known
        # by now; what goes for the second is known after the next time, and so a third tells of the same.
        unfit = frozenset[int]().union(*(verdict.unfit for verdict in verdicts))
        known: frozenset[int] = frozenset()
        while known != frozenset(ruling.dropped):
            known = frozenset(ruling.dropped)
            ruling = rule(self._verdicts("retrieval", phase, replace(record, dropped=known, unfit=unfit)))
        return ruling

    @property
    def checks_conflicts(self) -> bool:
        """One policy at least wants the documents held against each other."""
        return any(isinstance(p.rules, RetrievalRules) and p.rules.check_conflicts for p in self.of("retrieval"))

    @cached_property
    def wants(self) -> Audit:
        """What the grounding policies ask for together, whatever the reply: the settings of an audit that is never
        begun."""
        return self.audit(Record(final=False))

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
        policies: all of them; those that are disabled are passed over.

    Raises ValueError for a policy of an unknown category.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        for policy in policies:
            if policy.category not in CATEGORIES:
                raise ValueError(f"Policy {policy.name!r} is of the unknown category {policy.category!r}")
        enabled = [policy for policy in policies if policy.enabled]
        self._enabled = tuple(sorted(enabled, key=lambda policy: (-policy.priority, policy.name, policy.id)))
        self._in_scope: dict[tuple[str | None, str | None, Names], _Scoped] = {}

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies enforced, on a share of the requests at least; the highest priority first."""
        return tuple(policy for policy in self._enabled if policy.mode == "enforce")

    @property
    def enabled(self) -> tuple[Policy, ...]:
        """The policies enforced and those in shadow, the highest priority first."""
        return self._enabled

    def in_scope(
        self, *, agent: str | None = None, model: str | None = None, key: Names = None, unit: str | None = None
    ) -> PolicySet:
        """The policies for a request of ``agent`` to ``model`` with the gateway key that goes by the names ``key``.

        ``unit`` is what a canary is drawn by: the id of the run that the request is part of, else its own. One unit
        gets one answer. Without it a policy that is enforced on a share alone is in shadow.
        """
        of = (agent, model, key)
        found = self._in_scope.get(of)
        if found is None:
            found = _Scoped.of([p for p in self._enabled if p.scope.covers(agent=agent, model=model, key=key)])
            if len(self._in_scope) >= _LARGEST_CACHE:
                # Agents and models come from clients, so the cache must not grow with them: the oldest goes.
                self._in_scope.pop(next(iter(self._in_scope)))
            self._in_scope[of] = found
        return found.all if found.whole else _split(found.policies, unit)


@dataclass(frozen=True, slots=True)
class _Scoped:
    """What is in scope of some requests; ``whole``: every request sees the same of it, which is ``all``."""

    policies: Sequence[Policy]
    whole: bool
    all: PolicySet

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> "_Scoped":
        whole = all(policy.mode != "enforce" or policy.canary_percent in (0, 100) for policy in policies)
        return cls(policies, whole, _split(policies, None))


def _split(policies: Sequence[Policy], unit: str | None) -> PolicySet:
    enforced: list[Policy] = []
    shadow: list[Policy] = []
    for policy in policies:
        (enforced if _is_enforced(policy, unit) else shadow).append(policy)
    return PolicySet(tuple(enforced), tuple(shadow))


def _is_enforced(policy: Policy, unit: str | None) -> bool:
    if policy.mode != "enforce" or policy.canary_percent <= 0:
        return False
    if policy.canary_percent >= 100:
        return True
    # By the policy too, so that two canaries do not always meet in the same requests; not by its version, so that a
    # larger share holds those that the smaller one held.
    return unit is not None and _share(f"{policy.id}/{unit}") * 100 < policy.canary_percent


def _share(text: str) -> float:
    """A number in 0–1 that depends on ``text`` alone, evenly spread."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) / _SHARES
