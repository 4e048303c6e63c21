"""What a policy cannot do although it is valid: shown when it is saved."""

from collections.abc import Iterator, Sequence

from policies.base import Rules
from policies.grounding.rule_warnings import GatewayFacts, RuleWarning, rule_warnings
from policies.grounding.rules import GroundingRules

__all__ = ["GatewayFacts", "RuleWarning", "policy_warnings"]


def policy_warnings(rules: Rules, models: Sequence[str], facts: GatewayFacts) -> tuple[RuleWarning, ...]:
    """The warnings about a policy with ``rules`` whose scope has the globs ``models``, on a gateway of which ``facts``
    are known."""
    found = [*_unserved(models, facts)]
    if isinstance(rules, GroundingRules):
        found += rule_warnings(rules, facts)
    return tuple(found)


def _unserved(models: Sequence[str], facts: GatewayFacts) -> Iterator[RuleWarning]:
    for model in models:
        if not facts.serves(model):
            yield RuleWarning(loc=("scope", "models"), msg=f"No upstream serves {model!r}, so no request matches it.")
