"""Warnings about rules that are valid but have no effect, shown when a policy is saved."""

from collections.abc import Iterator, Sequence

from policies.base import GatewayFacts, Rules, RuleWarning
from policies.registry import CATEGORIES

__all__ = ["GatewayFacts", "RuleWarning", "policy_warnings"]


def policy_warnings(category: str, rules: Rules, models: Sequence[str], facts: GatewayFacts) -> tuple[RuleWarning, ...]:
    """Return the warnings about a policy in ``category`` with ``rules`` and the model globs ``models`` in its scope.
    ``facts`` describes the gateway."""
    return (*_unserved(models, facts), *CATEGORIES[category].warnings(rules, facts))


def _unserved(models: Sequence[str], facts: GatewayFacts) -> Iterator[RuleWarning]:
    for model in models:
        if not facts.serves(model):
            yield RuleWarning(
                loc=("scope", "models"), msg=f"No upstream serves {model!r}, so this entry matches no requests."
            )
