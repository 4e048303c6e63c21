"""Grounding policies over one reply as it grows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from judges.types import ClaimVerdict, Label, ScoreRequest, Thresholds
from policies.base import Category
from policies.evaluation import Ruling, Verdict, decide, first_strictest, rule
from policies.grounding.rules import GroundingRules
from policies.types import Action, Decision, Phase, Policy, Record, Violation

DEFAULTS = GroundingRules()
STREAM_MODES = ("live", "hold", "final")
"""From mildest to strictest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceRuling:
    """What becomes of one sentence.

    ``action`` ``block``: the reply ends here. ``strip``: the sentence is left out. ``corrected``: its claims in whose
    place their ``correction`` is to stand. ``uncorrected``: a policy wants that of one that has none. ``cause``: the
    first of the strictest violations.
    """

    action: Action = Action.ALLOW
    strip: bool = False
    corrected: tuple[ClaimVerdict, ...] = ()
    uncorrected: bool = False
    cause: Violation | None = None

    @property
    def reason(self) -> str | None:
        return self.cause.reason if self.cause else None


UNREMARKABLE = SentenceRuling()


class Audit:
    """Made anew for each reply (each of ``n`` choices has its own).

    ``start``, then ``sentence`` for each one, then ``finish``; or ``abort`` where the reply ends before its end. Each
    policy leaves one row a phase, whatever the number of sentences. Where no policy is in scope it has the default
    rules' settings, never blocks and leaves no row.

    Args:
        policies: grounding policies in order of priority.
        category: what evaluates them.
        record: what is known before the reply: the documents kept, what the caller reported, whether there is a judge.
    """

    def __init__(self, policies: Sequence[Policy], category: Category, record: Record) -> None:
        self._policies = tuple(policies)
        self._category = category
        self._record = replace(record, final=False) if record.final else record
        self._rules = [policy.rules for policy in policies if isinstance(policy.rules, GroundingRules)] or [DEFAULTS]
        self._decisions: list[Decision] = []
        self._claims: list[ClaimVerdict] = []
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
        """The indices of the sentences that were to be left out, or to be replaced by a correction."""
        return frozenset(self._withheld)

    @property
    def thresholds(self) -> Thresholds:
        """Those of the policy with the highest priority."""
        return self._rules[0].thresholds

    @property
    def max_sources_per_claim(self) -> int:
        return max(rules.max_sources_per_claim for rules in self._rules)

    @property
    def max_claims(self) -> int | None:
        """None: every claim is judged, since one policy at least wants that."""
        caps = [rules.max_claims for rules in self._rules if rules.max_claims is not None]
        return max(caps) if len(caps) == len(self._rules) else None

    @property
    def stream_mode(self) -> str:
        """The strictest mode: ``final``, then ``hold``, then ``live``."""
        return max((rules.stream_mode for rules in self._rules), key=STREAM_MODES.index)

    @property
    def score_requests(self) -> tuple[ScoreRequest, ...]:
        """What the policies ask an LLM of the whole reply, each request once."""
        return tuple(dict.fromkeys(rules.score_request for rules in self._rules if rules.score_request is not None))

    @property
    def corrects(self) -> bool:
        """One policy at least wants corrections of what is contradicted."""
        return any(rules.contradiction_action == "correct" for rules in self._rules)

    @property
    def evidence_from_tools(self) -> bool:
        """One policy at least counts what tool messages say among the documents."""
        return any(rules.evidence_from_tools for rules in self._rules)

    @property
    def consistency_check(self) -> bool:
        """One policy at least wants the claims held against each other."""
        return any(rules.factual_consistency_check for rules in self._rules)

    @property
    def valid_citations(self) -> bool:
        """One policy at least wants the citations checked."""
        return any(rules.require_valid_citations for rules in self._rules)

    @property
    def max_regenerations(self) -> int:
        return max(rules.max_regenerations for rules in self._rules)

    @property
    def on_block(self) -> str:
        """``replace`` or ``error``, as the blocking policy of the highest priority says; ``replace`` if none blocks."""
        return next((rules.on_block for rules in self._blocking_rules()), DEFAULTS.on_block)

    @property
    def abstention_response(self) -> str | None:
        """That of the blocking policy of the highest priority which has one."""
        responses = (rules.abstention_response for rules in self._blocking_rules())
        return next((response for response in responses if response is not None), None)

    def start(self) -> Ruling:
        """Bind the rules and check what is known already. A block here has closed the audit."""
        if not self._policies:
            return Ruling()
        before = self._evaluate(Phase.BEFORE_WORKFLOW, self._record)
        self._decisions += (verdict.decision for verdict in before)
        mid = self._evaluate(Phase.MID_EXECUTION, self._record)
        known = rule(mid)
        if known.action is Action.BLOCK:
            return rule([*before, *self._close(mid)])
        return replace(known, decisions=tuple(verdict.decision for verdict in before))

    def sentence(self, claims: Sequence[ClaimVerdict]) -> SentenceRuling:
        """Check the claims of the sentence that came last, before it goes out."""
        if not claims:
            return UNREMARKABLE
        self._claims += claims
        record = Record(claims=claims, final=False, strippable=self._record.strippable)
        verdicts = self._evaluate(Phase.MID_EXECUTION, record)
        violations = [violation for verdict in verdicts for violation in verdict.violations]
        corrected = tuple(claim for claim in claims if self._corrects(claim))
        uncorrected = any(self._to_correct(claim) for claim in claims if claim not in corrected)
        if not violations and not uncorrected:
            return UNREMARKABLE
        cause = first_strictest(violations)
        strip = any(violation.action is Action.DROP for violation in violations)
        if strip or corrected:
            self._withheld.update(claim.claim.sentence_index for claim in claims)
        return SentenceRuling(
            action=cause.action if cause else Action.ALLOW,
            strip=strip,
            corrected=corrected,
            uncorrected=uncorrected,
            cause=cause,
        )

    def retract(self, claims: Sequence[ClaimVerdict]) -> None:
        """The sentence ruled on last, which makes ``claims``, is not part of the reply after all."""
        self._claims = [claim for claim in self._claims if not any(claim is other for other in claims)]
        self._withheld.difference_update(claim.claim.sentence_index for claim in claims)
        self._blocking.clear()  # nothing blocked before it, or the reply would have ended there

    def finish(self, record: Record) -> Ruling:
        """The reply is complete: decide what needed all of it. ``record`` is that of the start with citations, trust
        score and claims (where it has none, those seen). After the audit was closed this does nothing."""
        if self._closed or not self._policies:
            return Ruling()
        record = replace(
            record,
            claims=record.claims or tuple(self._claims),
            final=True,
            strippable=self._record.strippable,
            withheld=record.withheld | self._withheld,
        )
        mid = self._close(self._evaluate(Phase.MID_EXECUTION, record))
        after = self._evaluate(Phase.AFTER_WORKFLOW, record)
        self._decisions += (verdict.decision for verdict in after)
        return rule([*mid, *after])

    def abort(self) -> Ruling:
        """The reply ends before its end: close what was checked. After the audit was closed this does nothing."""
        if self._closed or not self._policies:
            return Ruling()
        record = replace(self._record, claims=tuple(self._claims))
        return rule(self._close(self._evaluate(Phase.MID_EXECUTION, record)))

    def _evaluate(self, phase: Phase, record: Record) -> list[Verdict]:
        made = [decide(policy, self._category, phase, record) for policy in self._policies]
        verdicts = [verdict for verdict in made if verdict is not None]
        for verdict in verdicts:
            if verdict.decision.action is Action.BLOCK:
                self._blocking.add(verdict.policy.id)
            if phase is Phase.MID_EXECUTION:
                self._spent_ms[verdict.policy.id] += verdict.decision.latency_ms
        return verdicts

    def _close(self, mid: Sequence[Verdict]) -> list[Verdict]:
        """Make the one row of ``mid_execution`` that each policy leaves, with the time of every check in it."""
        self._closed = True
        closed = [
            replace(verdict, decision=replace(verdict.decision, latency_ms=self._spent_ms[verdict.policy.id]))
            for verdict in mid
        ]
        self._decisions += (verdict.decision for verdict in closed)
        return closed

    def _blocking_rules(self) -> list[GroundingRules]:
        return [
            policy.rules
            for policy in self._policies
            if policy.id in self._blocking and isinstance(policy.rules, GroundingRules)
        ]

    def _corrects(self, claim: ClaimVerdict) -> bool:
        return any(rules.corrects(claim, replaceable=self._record.strippable) for rules in self._rules)

    def _to_correct(self, claim: ClaimVerdict) -> bool:
        return any(
            rules.contradiction_action == "correct" and rules.label(claim) is Label.CONTRADICTED
            for rules in self._rules
        )
