"""What several grounding policies ask for together, for one reply."""

from collections.abc import Sequence
from dataclasses import dataclass

from judges.thresholds import Thresholds
from judges.types import ClaimVerdict, ScoreRequest
from policies.grounding.checks import whole_reply_rules
from policies.grounding.claim_actions import is_corrected, is_left_out, is_stripped, needs_correction
from policies.grounding.rules import WITHHOLDING, GroundingRules
from policies.types import Policy

DEFAULTS = GroundingRules()
STREAM_MODES = ("live", "hold", "final")
REASONING_ACTIONS = ("pass", "judge", "drop")
TOOL_CALL_ACTIONS = ("pass", "hold", "drop")
"""Each from mildest to strictest."""


def grounding_rules(policies: Sequence[Policy]) -> tuple[GroundingRules, ...]:
    """The rules of those ``policies`` that are grounding policies, in their order."""
    return tuple(policy.rules for policy in policies if isinstance(policy.rules, GroundingRules))


@dataclass(frozen=True, slots=True)
class GroundingSettings:
    """``rules`` are those of each policy, the highest priority first; never empty."""

    rules: tuple[GroundingRules, ...] = (DEFAULTS,)

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> "GroundingSettings":
        """The settings of ``policies``, given in order of priority; without a grounding policy, the defaults."""
        return cls(grounding_rules(policies) or (DEFAULTS,))

    @property
    def thresholds(self) -> Thresholds:
        """Those of the policy with the highest priority."""
        return self.rules[0].thresholds

    @property
    def max_sources_per_claim(self) -> int:
        """The largest of any policy."""
        return max(rules.max_sources_per_claim for rules in self.rules)

    @property
    def max_claims(self) -> int | None:
        """The largest of any policy. None if a policy sets no limit: every claim is judged."""
        caps = [rules.max_claims for rules in self.rules if rules.max_claims is not None]
        return max(caps) if len(caps) == len(self.rules) else None

    @property
    def stream_mode(self) -> str:
        """The strictest mode that a policy sets: ``final``, then ``hold``, then ``live``."""
        return max((rules.stream_mode for rules in self.rules), key=STREAM_MODES.index)

    @property
    def effective_stream_mode(self) -> str:
        """``stream_mode``, but ``final`` instead of ``hold`` if a rule blocks that is decided only at the end: by then
        nothing that it blocks may have left."""
        return "final" if self.held_to_end_by else self.stream_mode

    @property
    def held_to_end_by(self) -> tuple[str, ...]:
        """The names of the rules that raise ``hold`` to ``final``, each once; empty if the mode is not raised."""
        if self.stream_mode != "hold":
            return ()
        return tuple(dict.fromkeys(name for rules in self.rules for name in whole_reply_rules(rules)))

    @property
    def reasoning_action(self) -> str:
        """The strictest: ``drop``, then ``judge``, then ``pass``."""
        return max((rules.reasoning_action for rules in self.rules), key=REASONING_ACTIONS.index)

    @property
    def tool_call_action(self) -> str:
        """The strictest: ``drop``, then ``hold``, then ``pass``."""
        return max((rules.tool_call_action for rules in self.rules), key=TOOL_CALL_ACTIONS.index)

    @property
    def withholds_unjudged(self) -> bool:
        """At least one policy delivers no unjudged text: it strips it or blocks the reply."""
        return any(rules.unjudged_action in WITHHOLDING for rules in self.rules)

    @property
    def reads_standings(self) -> bool:
        """The standings of the text can change what is delivered."""
        return self.withholds_unjudged or any(rules.min_coverage > 0 for rules in self.rules)

    @property
    def score_requests(self) -> tuple[ScoreRequest, ...]:
        """The LLM scores of the whole reply that the policies need, each request once."""
        return tuple(dict.fromkeys(rules.score_request for rules in self.rules if rules.score_request is not None))

    @property
    def corrects(self) -> bool:
        """At least one policy replaces contradicted claims by corrections."""
        return any(rules.contradiction_action == "correct" for rules in self.rules)

    @property
    def evidence_from_tools(self) -> bool:
        """At least one policy counts tool messages among the documents."""
        return any(rules.evidence_from_tools for rules in self.rules)

    @property
    def consistency_check(self) -> bool:
        """At least one policy compares the claims with each other."""
        return any(rules.factual_consistency_check for rules in self.rules)

    @property
    def valid_citations(self) -> bool:
        """At least one policy checks the citations."""
        return any(rules.require_valid_citations for rules in self.rules)

    @property
    def max_regenerations(self) -> int:
        """The largest of any policy."""
        return max(rules.max_regenerations for rules in self.rules)

    def is_corrected(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """A policy puts the correction of ``claim`` in its place. ``replaceable``: its text has not been sent yet."""
        return any(is_corrected(rules, claim, replaceable=replaceable) for rules in self.rules)

    def needs_correction(self, claim: ClaimVerdict) -> bool:
        """A policy would correct ``claim``, whether or not it has a correction."""
        return any(needs_correction(rules, claim) for rules in self.rules)

    def is_stripped(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """A policy leaves out the sentence of ``claim``."""
        return any(is_stripped(rules, claim, replaceable=replaceable) for rules in self.rules)

    def leaves_out_unjudged(self, *, replaceable: bool) -> bool:
        """A policy leaves out unjudged text."""
        return any(is_left_out(rules, replaceable=replaceable) for rules in self.rules)
