"""Holds the policies in force, and selects those that apply to a request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

from policies import registry
from policies.base import DocumentNeeds
from policies.evaluation import CombinedDecision, combine, decision_to_dict, evaluate_policies
from policies.reply_evaluation import ReplyEvaluation, ReplySettings, SentenceDecision
from policies.types import Action, Aliases, Decision, Phase, Policy, PolicyInputs, PolicySubject, Violation

__all__ = [
    "BlockedRequest",
    "CombinedDecision",
    "PolicyEngine",
    "PolicySet",
    "ReplyEvaluation",
    "ReplySettings",
    "SentenceDecision",
    "decision_to_dict",
]

_LARGEST_CACHE = 1024
_HASH_VALUES = 2**64
_NO_DECISION = CombinedDecision()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedRequest:
    """A request whose reply is blocked before the upstream is called. ``cause`` is the first blocking violation;
    ``on_block`` (``replace`` or ``error``) and ``abstention_response`` determine the response to the client."""

    decisions: tuple[Decision, ...]
    cause: Violation | None
    on_block: str
    abstention_response: str | None


@dataclass(frozen=True)
class PolicySet:
    """Policies that are enforced together, highest priority first.

    ``shadow`` policies are also evaluated, but their decisions are only logged.
    """

    policies: tuple[Policy, ...] = ()
    shadow: tuple[Policy, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.policies)

    @cached_property
    def by_subject(self) -> Mapping[PolicySubject, tuple[Policy, ...]]:
        """The enforced policies that decide about each subject."""
        categories = registry.CATEGORIES
        return {
            subject: tuple(policy for policy in self.policies if subject in categories[policy.category].subjects)
            for subject in PolicySubject
        }

    @cached_property
    def governs_reply(self) -> bool:
        """Whether at least one enforced policy decides about the reply."""
        return bool(self.by_subject[PolicySubject.REPLY])

    @cached_property
    def governs_documents(self) -> bool:
        """Whether at least one enforced policy decides about the documents."""
        return bool(self.by_subject[PolicySubject.DOCUMENTS])

    def evaluate(self, subject: PolicySubject, phase: Phase, inputs: PolicyInputs) -> CombinedDecision:
        """Evaluate every policy that decides about ``subject`` at ``phase``. Runs do this at each step."""
        return combine(evaluate_policies(self.by_subject[subject], phase, inputs))

    def evaluate_documents(self, inputs: PolicyInputs, phase: Phase = Phase.BEFORE_WORKFLOW) -> CombinedDecision:
        """Evaluate the policies that decide about documents. A gateway request does this once, in ``before_workflow``,
        because all of its documents are known. A run does it in ``mid_execution`` (where the last document is the new
        one) and in ``after_workflow``."""
        policies = self.by_subject[PolicySubject.DOCUMENTS]
        results = evaluate_policies(policies, phase, inputs)
        if not results:
            return _NO_DECISION
        combined = combine(results)
        if len(results) < 2:
            return combined
        # If one policy drops a document, there may be too few documents for another policy, or one source may dominate.
        # So the policies are evaluated again without the dropped documents, until nothing more is dropped.
        unfit = frozenset[int]().union(*(result.unfit for result in results))
        known: frozenset[int] = frozenset()
        while known != frozenset(combined.dropped):
            known = frozenset(combined.dropped)
            again = replace(inputs, dropped=known, unfit=unfit)
            combined = combine(evaluate_policies(policies, phase, again))
        return combined

    @cached_property
    def document_needs(self) -> DocumentNeeds:
        """The information about documents that at least one policy needs."""
        every = [
            registry.CATEGORIES[policy.category].document_needs(policy.rules)
            for policy in self.by_subject[PolicySubject.DOCUMENTS]
        ]
        return DocumentNeeds(
            compares=any(needs.compares for needs in every),
            reads_texts=any(needs.reads_texts for needs in every),
            takes_any_relevance=any(needs.takes_any_relevance for needs in every),
        )

    @cached_property
    def reply_settings(self) -> ReplySettings:
        """The combined settings of the policies that decide about the reply."""
        return ReplySettings.of(self.by_subject[PolicySubject.REPLY])

    def blocked_before_call(self, inputs: PolicyInputs) -> BlockedRequest | None:
        """Decide, before the upstream is called, whether the reply is blocked regardless of its content. The caller may
        have reported scores, unsupported claims or a confidence that block it, or citations may be required although
        there are no documents. Return None if the reply is not blocked. ``inputs`` are the same as for
        ``evaluate_reply``. Call this only if the ``before_workflow`` decisions allow the request."""
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
        """Begin evaluating a reply. ``inputs`` contains the information known before the reply."""
        return ReplyEvaluation(self.by_subject[PolicySubject.REPLY], inputs, settings=self.reply_settings)


_RANKS = {name: rank for rank, name in enumerate(registry.CATEGORIES)}


def priority_order(policy: Policy) -> tuple[int, int, str, str]:
    """Sort key: highest priority first, and policies of equal priority in the order of the registry."""
    return -policy.priority, _RANKS[policy.category], policy.name, policy.id


class PolicyEngine:
    """An immutable snapshot of the policies. After each change, the gateway creates a new engine.

    Args:
        policies: all policies; disabled ones are ignored.

    Raises ValueError for a policy in an unknown category.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        for policy in policies:
            if policy.category not in registry.CATEGORIES:
                raise ValueError(f"Policy {policy.name!r} has the unknown category {policy.category!r}")
        enabled = [policy for policy in policies if policy.enabled]
        self._enabled = tuple(sorted(enabled, key=priority_order))
        self._in_scope: dict[tuple[str | None, Aliases, Aliases], _Scoped] = {}

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies enforced on all or some requests, highest priority first."""
        return tuple(policy for policy in self._enabled if policy.mode == "enforce")

    @property
    def enabled(self) -> tuple[Policy, ...]:
        """Enforced and shadow policies, highest priority first."""
        return self._enabled

    def in_scope(
        self, *, agent: str | None = None, model: Aliases = None, key: Aliases = None, unit: str | None = None
    ) -> PolicySet:
        """Select the policies for a request. ``agent`` is the calling agent, and ``model`` and ``key`` are the names of
        the model and of the gateway key. ``unit`` is the unit of canary assignment: the id of the request's run or,
        without a run, of the request. The same unit always gets the same assignment. Without a unit, canary policies
        are in shadow mode.
        """
        request = (agent, model, key)
        found = self._in_scope.get(request)
        if found is None:
            found = _Scoped.of([p for p in self._enabled if p.scope.covers(agent=agent, model=model, key=key)])
            if len(self._in_scope) >= _LARGEST_CACHE:
                # Clients choose agents and models, so the cache is bounded: when it is full, the oldest entry is
                # evicted.
                self._in_scope.pop(next(iter(self._in_scope)))
            self._in_scope[request] = found
        return found.any_unit if found.any_unit is not None else _split(found.policies, unit)


@dataclass(frozen=True, slots=True)
class _Scoped:
    """The policies that apply to some requests. ``any_unit`` is the policy set to use when there are no canary
    policies."""

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
    # The policy id is hashed too, so that two canaries don't always apply to the same requests. The version isn't
    # hashed, so that raising the percentage keeps all earlier units in the canary.
    return unit is not None and _uniform(f"{policy.id}/{unit}") * 100 < policy.canary_percent


def _uniform(text: str) -> float:
    """Hash ``text`` to a number that is uniformly distributed in [0, 1)."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) / _HASH_VALUES
