"""Evaluates grounding policies on one reply as it grows, sentence by sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from judges.types import ClaimVerdict
from policies.base import Category
from policies.evaluation import CombinedDecision, PolicyResult, combine, evaluate_policies, first_strictest
from policies.grounding.combined_settings import DEFAULTS, GroundingSettings, grounding_rules
from policies.grounding.rules import GroundingRules
from policies.types import Action, Decision, Phase, Policy, PolicyInputs, UnjudgedText, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceDecision:
    """What happens to one sentence.

    With ``action`` ``block`` the reply ends before it. ``strip``: it is left out. ``corrected``: the claims to replace
    by their ``correction``. ``uncorrected``: a policy wants a correction for a claim that has none. ``left_out``: the
    unjudged text to leave out of the sentence, in order. ``cause``: the first of the strictest violations.
    """

    action: Action = Action.ALLOW
    strip: bool = False
    corrected: tuple[ClaimVerdict, ...] = ()
    uncorrected: bool = False
    left_out: tuple[UnjudgedText, ...] = ()
    cause: Violation | None = None

    @property
    def reason(self) -> str | None:
        return self.cause.reason if self.cause else None


_ALLOWED = SentenceDecision()


class ReplyEvaluation:
    """The evaluation of one reply by the grounding policies. Each of the reply's ``n`` choices has its own evaluation.

    Call ``start``, then ``sentence`` for each sentence, then ``finish``; or ``abort`` if the reply ends early. Each
    policy makes one decision per phase, however many sentences there are. Without a policy in scope it has the default
    rules' settings, never blocks and makes no decisions.

    Args:
        policies: grounding policies in order of priority.
        category: the category that evaluates them.
        inputs: what is known before the reply: documents kept, the caller's reports, whether there is a judge.
    """

    def __init__(self, policies: Sequence[Policy], category: Category, inputs: PolicyInputs) -> None:
        self.settings = GroundingSettings.of(policies)
        self._policies = tuple(policies)
        self._category = category
        self._inputs = replace(inputs, final=False) if inputs.final else inputs
        self._decisions: list[Decision] = []
        self._claims: list[ClaimVerdict] = []
        self._unjudged: list[UnjudgedText] = []
        self._withheld: set[int] = set()
        self._blocking: set[str] = set()
        self._spent_ms = dict.fromkeys((policy.id for policy in policies), 0.0)
        self._closed = False

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions so far, in order."""
        return tuple(self._decisions)

    @property
    def withheld(self) -> frozenset[int]:
        """The indices of sentences that were left out or replaced by a correction."""
        return frozenset(self._withheld)

    @property
    def on_block(self) -> str:
        """``replace`` or ``error``, as set by the blocking policy with the highest priority, or ``replace`` if no
        policy blocks."""
        return next((rules.on_block for rules in self._blocking_rules()), DEFAULTS.on_block)

    @property
    def abstention_response(self) -> str | None:
        """The abstention response of the highest-priority blocking policy that has one. If no policy blocks, the same
        among the policies that leave text out, for a reply of which nothing is left."""
        deciding = self._blocking_rules() or self._stripping_rules()
        return next((rules.abstention_response for rules in deciding if rules.abstention_response is not None), None)

    def start(self) -> CombinedDecision:
        """Bind the rules and check what is already known. If this blocks, the evaluation is closed."""
        if not self._policies:
            return CombinedDecision()
        before = self._evaluate(Phase.BEFORE_WORKFLOW, self._inputs)
        self._decisions += (result.decision for result in before)
        mid = self._evaluate(Phase.MID_EXECUTION, self._inputs)
        known = combine(mid)
        if known.action is Action.BLOCK:
            return combine([*before, *self._close(mid)])
        return replace(known, decisions=tuple(result.decision for result in before))

    def start_before_call(self) -> CombinedDecision:
        """Like ``start``, before the upstream is called, but also check what no reply can change, such as a reported
        confidence, or missing documents if citations are required."""
        opening = self.start()
        if self._closed or not self._policies:
            return opening
        known = self._evaluate(Phase.AFTER_WORKFLOW, self._inputs)
        if combine(known).action is not Action.BLOCK:
            return opening
        mid = self._close(self._evaluate(Phase.MID_EXECUTION, self._inputs))
        self._decisions += (result.decision for result in known)
        return replace(combine([*mid, *known]), decisions=self.decisions)

    def sentence(self, claims: Sequence[ClaimVerdict], unjudged: Sequence[UnjudgedText] = ()) -> SentenceDecision:
        """Check the claims and the unjudged text of the latest sentence before it is sent."""
        if not claims and not unjudged:
            return _ALLOWED
        self._claims += claims
        self._unjudged += unjudged
        replaceable = self._inputs.strippable
        inputs = PolicyInputs(claims=claims, unjudged=unjudged, final=False, strippable=replaceable)
        results = self._evaluate(Phase.MID_EXECUTION, inputs)
        violations = [violation for result in results for violation in result.violations]
        corrected = tuple(claim for claim in claims if self.settings.is_corrected(claim, replaceable=replaceable))
        uncorrected = any(self.settings.needs_correction(claim) for claim in claims if claim not in corrected)
        if not violations and not uncorrected:
            return _ALLOWED
        cause = first_strictest(violations)
        strip = any(self.settings.is_stripped(claim, replaceable=replaceable) for claim in claims)
        if strip or corrected:
            self._withheld.update(claim.claim.sentence_index for claim in claims)
        return SentenceDecision(
            action=cause.action if cause else Action.ALLOW,
            strip=strip,
            corrected=corrected,
            uncorrected=uncorrected,
            left_out=tuple(unjudged) if self.settings.leaves_out_unjudged(replaceable=replaceable) else (),
            cause=cause,
        )

    def retract(self, claims: Sequence[ClaimVerdict], unjudged: Sequence[UnjudgedText] = ()) -> None:
        """Undo the check of the latest sentence, with ``claims`` and ``unjudged``: it is not part of the reply after
        all."""
        self._claims = [claim for claim in self._claims if not any(claim is other for other in claims)]
        self._unjudged = [text for text in self._unjudged if not any(text is other for other in unjudged)]
        self._withheld.difference_update(claim.claim.sentence_index for claim in claims)
        self._blocking.clear()  # No earlier sentence blocked, or the reply would have ended there.

    def finish(self, inputs: PolicyInputs) -> CombinedDecision:
        """Make the decisions that need the complete reply.

        ``inputs`` are those of the start with citations, trust score and coverage, with claims and unjudged text (by
        default those checked so far).
        Once the evaluation is closed this does nothing.
        """
        if self._closed or not self._policies:
            return CombinedDecision()
        inputs = replace(
            inputs,
            claims=inputs.claims or tuple(self._claims),
            unjudged=inputs.unjudged or tuple(self._unjudged),
            final=True,
            strippable=self._inputs.strippable,
            withheld=inputs.withheld | self._withheld,
        )
        mid = self._close(self._evaluate(Phase.MID_EXECUTION, inputs))
        after = self._evaluate(Phase.AFTER_WORKFLOW, inputs)
        self._decisions += (result.decision for result in after)
        return combine([*mid, *after])

    def abort(self) -> CombinedDecision:
        """Decide on what was checked so far, because the reply ends early. Once the evaluation is closed, this does
        nothing."""
        if self._closed or not self._policies:
            return CombinedDecision()
        inputs = replace(self._inputs, claims=tuple(self._claims), unjudged=tuple(self._unjudged))
        return combine(self._close(self._evaluate(Phase.MID_EXECUTION, inputs)))

    def _evaluate(self, phase: Phase, inputs: PolicyInputs) -> list[PolicyResult]:
        results = evaluate_policies(self._policies, self._category, phase, inputs)
        for result in results:
            if result.decision.action is Action.BLOCK:
                self._blocking.add(result.policy.id)
            if phase is Phase.MID_EXECUTION:
                self._spent_ms[result.policy.id] += result.decision.latency_ms
        return results

    def _close(self, mid: Sequence[PolicyResult]) -> list[PolicyResult]:
        """Record each policy's single ``mid_execution`` decision, with the total time of all its checks."""
        self._closed = True
        closed = [
            replace(result, decision=replace(result.decision, latency_ms=self._spent_ms[result.policy.id]))
            for result in mid
        ]
        self._decisions += (result.decision for result in closed)
        return closed

    def _blocking_rules(self) -> tuple[GroundingRules, ...]:
        return grounding_rules([policy for policy in self._policies if policy.id in self._blocking])

    def _stripping_rules(self) -> tuple[GroundingRules, ...]:
        stripping = (rules for rules in grounding_rules(self._policies) if _strips(rules))
        return tuple(stripping) if self._inputs.strippable else ()


def _strips(rules: GroundingRules) -> bool:
    return "strip" in (rules.unjudged_action, rules.unverifiable_action)
