"""The combined settings of several grounding policies for one reply."""

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
"""From mildest to strictest."""


def grounding_rules(policies: Sequence[Policy]) -> tuple[GroundingRules, ...]:
    """Return the rules of the grounding policies among ``policies``, in order."""
    return tuple(policy.rules for policy in policies if isinstance(policy.rules, GroundingRules))


@dataclass(frozen=True, slots=True)
class GroundingSettings:
    """The combined settings. ``rules`` has the rules of each policy, highest priority first, and is never empty."""

    rules: tuple[GroundingRules, ...] = (DEFAULTS,)

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> "GroundingSettings":
        """Combine the settings of ``policies``, given in order of priority. Without a grounding policy, the defaults
        apply."""
        return cls(grounding_rules(policies) or (DEFAULTS,))

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of the policy with the highest priority."""
        return self.rules[0].thresholds

    @property
    def max_sources_per_claim(self) -> int:
        """The largest value among the policies."""
        return max(rules.max_sources_per_claim for rules in self.rules)

    @property
    def max_claims(self) -> int | None:
        """The largest value among the policies, or None, which means that every claim is judged, if one sets no
        limit."""
        caps = [rules.max_claims for rules in self.rules if rules.max_claims is not None]
        return max(caps) if len(caps) == len(self.rules) else None

    @property
    def stream_mode(self) -> str:
        """The strictest mode among the policies; ``final`` is stricter than ``hold``, which is stricter than
        ``live``."""
        return max((rules.stream_mode for rules in self.rules), key=STREAM_MODES.index)

    @property
    def effective_stream_mode(self) -> str:
        """``stream_mode``, but ``final`` instead of ``hold`` if a blocking rule is decided only at the end: until then,
        no text that it may block can be sent."""
        return "final" if self.held_to_end_by else self.stream_mode

    @property
    def held_to_end_by(self) -> tuple[str, ...]:
        """The distinct names of the rules that raise ``hold`` to ``final``; empty if the mode is not raised."""
        if self.stream_mode != "hold":
            return ()
        return tuple(dict.fromkeys(name for rules in self.rules for name in whole_reply_rules(rules)))

    @property
    def reasoning_action(self) -> str:
        """The strictest action among the policies: ``drop``, then ``judge``, then ``pass``."""
        return max((rules.reasoning_action for rules in self.rules), key=REASONING_ACTIONS.index)

    @property
    def tool_call_action(self) -> str:
        """The strictest action among the policies: ``drop``, then ``hold``, then ``pass``."""
        return max((rules.tool_call_action for rules in self.rules), key=TOOL_CALL_ACTIONS.index)

    @property
    def withholds_unjudged(self) -> bool:
        """Whether at least one policy withholds unjudged text, by stripping it or blocking the reply."""
        return any(rules.unjudged_action in WITHHOLDING for rules in self.rules)

    @property
    def reads_standings(self) -> bool:
        """Whether the standings of the text can change what is delivered."""
        return self.withholds_unjudged or any(rules.min_coverage > 0 for rules in self.rules)

    @property
    def score_requests(self) -> tuple[ScoreRequest, ...]:
        """The distinct requests for LLM scores of the whole reply that the policies need."""
        return tuple(dict.fromkeys(rules.score_request for rules in self.rules if rules.score_request is not None))

    @property
    def corrects(self) -> bool:
        """Whether at least one policy replaces contradicted claims by corrections."""
        return any(rules.contradiction_action == "correct" for rules in self.rules)

    @property
    def evidence_from_tools(self) -> bool:
        """Whether at least one policy counts tool messages among the documents."""
        return any(rules.evidence_from_tools for rules in self.rules)

    @property
    def consistency_check(self) -> bool:
        """Whether at least one policy compares the claims with each other."""
        return any(rules.factual_consistency_check for rules in self.rules)

    @property
    def valid_citations(self) -> bool:
        """Whether at least one policy checks the citations."""
        return any(rules.require_valid_citations for rules in self.rules)

    @property
    def max_regenerations(self) -> int:
        """The largest value among the policies."""
        return max(rules.max_regenerations for rules in self.rules)

    def is_corrected(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """Whether a policy replaces ``claim`` by its correction. ``replaceable`` means that its text has not been sent
        yet."""
        return any(is_corrected(rules, claim, replaceable=replaceable) for rules in self.rules)

    def needs_correction(self, claim: ClaimVerdict) -> bool:
        """Whether a policy would correct ``claim`` if it had a correction."""
        return any(needs_correction(rules, claim) for rules in self.rules)

    def is_stripped(self, claim: ClaimVerdict, *, replaceable: bool) -> bool:
        """Whether a policy leaves out the sentence with ``claim``."""
        return any(is_stripped(rules, claim, replaceable=replaceable) for rules in self.rules)

    def leaves_out_unjudged(self, *, replaceable: bool) -> bool:
        """Whether a policy leaves out unjudged text."""
        return any(is_left_out(rules, replaceable=replaceable) for rules in self.rules)
