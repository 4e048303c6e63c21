"""The policies in force, and those in scope of one request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

from policies.evaluation import CombinedDecision, combine, decision_to_dict, evaluate_policies
from policies.grounding.combined_settings import GroundingSettings
from policies.grounding.reply_evaluation import ReplyEvaluation, SentenceDecision
from policies.registry import CATEGORIES
from policies.retrieval.rules import RetrievalRules
from policies.types import Action, Aliases, Decision, Phase, Policy, PolicyInputs, Violation

__all__ = [
    "DEFAULT_GROUNDING",
    "BlockedRequest",
    "CombinedDecision",
    "GroundingSettings",
    "PolicyEngine",
    "PolicySet",
    "ReplyEvaluation",
    "SentenceDecision",
    "decision_to_dict",
]

_LARGEST_CACHE = 1024
_HASH_VALUES = 2**64
_NO_DECISION = CombinedDecision()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedRequest:
    """A request whose reply is blocked before it is written. ``cause`` is the first blocking violation; ``on_block``
    (``replace`` or ``error``) and ``abstention_response`` say what the client receives."""

    decisions: tuple[Decision, ...]
    cause: Violation | None
    on_block: str
    abstention_response: str | None


@dataclass(frozen=True)
class PolicySet:
    """Policies that are enforced together, the highest priority first.

    ``shadow`` policies are evaluated as well; their decisions are logged and change nothing.
    """

    policies: tuple[Policy, ...] = ()
    shadow: tuple[Policy, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.policies)

    def in_category(self, category: str) -> tuple[Policy, ...]:
        """The enforced policies of ``category``."""
        return self._by_category.get(category, ())

    @cached_property
    def _by_category(self) -> Mapping[str, tuple[Policy, ...]]:
        categories = {policy.category for policy in self.policies}
        return {each: tuple(policy for policy in self.policies if policy.category == each) for each in categories}

    def evaluate(self, category: str, phase: Phase, inputs: PolicyInputs) -> CombinedDecision:
        """Evaluate every policy of ``category`` at ``phase``; a run does this at each of its steps."""
        return combine(evaluate_policies(self.in_category(category), CATEGORIES[category], phase, inputs))

    def evaluate_documents(self, inputs: PolicyInputs, phase: Phase = Phase.BEFORE_WORKFLOW) -> CombinedDecision:
        """Evaluate the retrieval policies. A gateway request, whose documents are all known, does this once, in
        ``before_workflow``; a run does it in ``mid_execution`` (the last document is the new one) and in
        ``after_workflow``."""
        policies, category = self.in_category("retrieval"), CATEGORIES["retrieval"]
        results = evaluate_policies(policies, category, phase, inputs)
        if not results:
            return _NO_DECISION
        combined = combine(results)
        if len(results) < 2:
            return combined
        # A document that one policy drops may leave another with too few documents, or with one source dominating. So
        # the policies are evaluated again, with what is dropped so far, until nothing more is dropped.
        unfit = frozenset[int]().union(*(result.unfit for result in results))
        known: frozenset[int] = frozenset()
        while known != frozenset(combined.dropped):
            known = frozenset(combined.dropped)
            again = replace(inputs, dropped=known, unfit=unfit)
            combined = combine(evaluate_policies(policies, category, phase, again))
        return combined

    @property
    def checks_conflicts(self) -> bool:
        """At least one policy compares the documents with each other."""
        rules = (policy.rules for policy in self.in_category("retrieval"))
        return any(isinstance(each, RetrievalRules) and each.check_conflicts for each in rules)

    @cached_property
    def grounding_settings(self) -> GroundingSettings:
        """What the grounding policies ask for together, whatever the reply."""
        return GroundingSettings.of(self.in_category("grounding"))

    def blocked_before_call(self, inputs: PolicyInputs) -> BlockedRequest | None:
        """Whether what is known before the call blocks the reply already, whatever it will say: scores, unsupported
        claims and a confidence that the caller reports, or no documents where citations are required. None if it does
        not. ``inputs`` are those of ``evaluate_reply``; ``before_workflow`` still allows."""
        evaluation = self.evaluate_reply(inputs)
        opening = evaluation.start_before_call()
        if opening.action is not Action.BLOCK:
            return None
        return BlockedRequest(
            decisions=evaluation.decisions,
            cause=opening.cause,
            on_block=evaluation.on_block,
            abstention_response=evaluation.abstention_response,
        )

    def evaluate_reply(self, inputs: PolicyInputs) -> ReplyEvaluation:
        """Begin to evaluate a reply; ``inputs`` are what is known before it."""
        return ReplyEvaluation(self.in_category("grounding"), CATEGORIES["grounding"], inputs)


DEFAULT_GROUNDING = PolicySet()
"""Applies to a reply with documents where no grounding policy is in scope: default rules, without decisions."""


def priority_order(policy: Policy) -> tuple[int, str, str]:
    """Sort key: the highest priority first."""
    return -policy.priority, policy.name, policy.id


class PolicyEngine:
    """An immutable snapshot of the policies. After a change the gateway uses a new engine.

    Args:
        policies: all policies; disabled ones are ignored.

    Raises ValueError for a policy of an unknown category.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        for policy in policies:
            if policy.category not in CATEGORIES:
                raise ValueError(f"Policy {policy.name!r} has the unknown category {policy.category!r}")
        enabled = [policy for policy in policies if policy.enabled]
        self._enabled = tuple(sorted(enabled, key=priority_order))
        self._in_scope: dict[tuple[str | None, str | None, Aliases], _Scoped] = {}

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies enforced on all requests or a share of them, the highest priority first."""
        return tuple(policy for policy in self._enabled if policy.mode == "enforce")

    @property
    def enabled(self) -> tuple[Policy, ...]:
        """Enforced and shadow policies, the highest priority first."""
        return self._enabled

    def in_scope(
        self, *, agent: str | None = None, model: str | None = None, key: Aliases = None, unit: str | None = None
    ) -> PolicySet:
        """The policies for a request of ``agent`` to ``model`` with a gateway key that has the names ``key``.

        ``unit`` is the unit of canary assignment: the id of the request's run, else of the request. The same unit
        always gets the same assignment. Without a unit, canary policies are in shadow.
        """
        request = (agent, model, key)
        found = self._in_scope.get(request)
        if found is None:
            found = _Scoped.of([p for p in self._enabled if p.scope.covers(agent=agent, model=model, key=key)])
            if len(self._in_scope) >= _LARGEST_CACHE:
                # Clients choose agents and models, so the cache must be bounded: the oldest entry is evicted.
                self._in_scope.pop(next(iter(self._in_scope)))
            self._in_scope[request] = found
        return found.any_unit if found.any_unit is not None else _split(found.policies, unit)


@dataclass(frozen=True, slots=True)
class _Scoped:
    """The policies in scope of some requests. ``any_unit``: their split where there is no canary to assign."""

    policies: Sequence[Policy]
    any_unit: PolicySet | None

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> "_Scoped":
        canary = any(policy.mode == "enforce" and policy.canary_percent not in (0, 100) for policy in policies)
        return cls(policies, None if canary else _split(policies, None))


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
    # The policy id is hashed too, so that two canaries do not always hit the same requests. Its version is not, so that
    # a larger share includes the units of the smaller one.
    return unit is not None and _uniform(f"{policy.id}/{unit}") * 100 < policy.canary_percent


def _uniform(text: str) -> float:
    """A hash of ``text``, uniform in [0, 1)."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) / _HASH_VALUES
