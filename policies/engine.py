"""The policies in force, and the selection of those that apply to a request."""

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
    """A request whose reply is blocked before the upstream is called. ``cause`` is the first blocking violation;
    ``on_block`` (``replace`` or ``error``) and ``abstention_response`` determine what the client receives."""

    decisions: tuple[Decision, ...]
    cause: Violation | None
    on_block: str
    abstention_response: str | None


@dataclass(frozen=True)
class PolicySet:
    """Policies that are enforced together, highest priority first.

    ``shadow`` policies are evaluated as well, but their decisions are only logged.
    """

    policies: tuple[Policy, ...] = ()
    shadow: tuple[Policy, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.policies)

    def in_category(self, category: str) -> tuple[Policy, ...]:
        """Return the enforced policies in ``category``."""
        return self._by_category.get(category, ())

    @cached_property
    def _by_category(self) -> Mapping[str, tuple[Policy, ...]]:
        categories = {policy.category for policy in self.policies}
        return {each: tuple(policy for policy in self.policies if policy.category == each) for each in categories}

    def evaluate(self, category: str, phase: Phase, inputs: PolicyInputs) -> CombinedDecision:
        """Evaluate every policy in ``category`` at ``phase``. Runs do this at each step."""
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
        """Whether at least one policy compares the documents with each other."""
        rules = (policy.rules for policy in self.in_category("retrieval"))
        return any(isinstance(each, RetrievalRules) and each.check_conflicts for each in rules)

    @cached_property
    def grounding_settings(self) -> GroundingSettings:
        """Return the combined settings of the grounding policies."""
        return GroundingSettings.of(self.in_category("grounding"))

    def blocked_before_call(self, inputs: PolicyInputs) -> BlockedRequest | None:
        """Decide whether the reply is already blocked before the call, regardless of what it will say: because of
        scores, unsupported claims or a confidence reported by the caller, or because citations are required and there
        are no documents. Return None if it is not. ``inputs`` are the same as for ``evaluate_reply``; the
        ``before_workflow`` decisions still allow the request."""
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
        """Begin evaluating a reply. ``inputs`` contains what is known before the reply."""
        return ReplyEvaluation(self.in_category("grounding"), CATEGORIES["grounding"], inputs)


DEFAULT_GROUNDING = PolicySet()
"""Applies to a reply with documents if no grounding policy is in scope: default rules, and no decisions."""


def priority_order(policy: Policy) -> tuple[int, str, str]:
    """Sort key that puts the highest priority first."""
    return -policy.priority, policy.name, policy.id


class PolicyEngine:
    """An immutable snapshot of the policies. After a change the gateway uses a new engine.

    Args:
        policies: all policies; disabled ones are ignored.

    Raises ValueError for a policy in an unknown category.
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
        """The policies enforced on all or some requests, highest priority first."""
        return tuple(policy for policy in self._enabled if policy.mode == "enforce")

    @property
    def enabled(self) -> tuple[Policy, ...]:
        """Enforced and shadow policies, highest priority first."""
        return self._enabled

    def in_scope(
        self, *, agent: str | None = None, model: str | None = None, key: Aliases = None, unit: str | None = None
    ) -> PolicySet:
        """Select the policies for a request by ``agent`` to ``model`` with a gateway key known by the names ``key``.

        ``unit`` is the unit of canary assignment: the id of the request's run, or else of the request. The same unit
        always gets the same assignment. Without a unit, canary policies are in shadow mode.
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
    """The policies that apply to some requests. ``any_unit`` is the policy set if there is no canary to assign."""

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
    # The policy id is hashed too, so that two canaries don't always apply to the same requests. The version isn't, so
    # that after an increase the share includes all earlier units.
    return unit is not None and _uniform(f"{policy.id}/{unit}") * 100 < policy.canary_percent


def _uniform(text: str) -> float:
    """Hash ``text`` to a number uniformly distributed in [0, 1)."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) / _HASH_VALUES
