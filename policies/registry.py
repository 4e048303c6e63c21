"""The policy categories. To add one, write a rules model and an evaluator, and list it in ``CATEGORIES``."""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from policies.base import Category, Rules, RulesError
from policies.freshness import FRESHNESS
from policies.grounding.evaluator import GROUNDING
from policies.retrieval.evaluator import RETRIEVAL
from policies.types import PolicySubject

CATEGORIES: Mapping[str, Category] = MappingProxyType({each.name: each for each in (RETRIEVAL, GROUNDING, FRESHNESS)})
"""All categories by name, in the order in which policies of equal priority are evaluated."""


def decides_on(category: str, subject: PolicySubject) -> bool:
    """Return whether policies in the category named ``category`` decide about ``subject``. A category in the log may no
    longer exist."""
    return category in CATEGORIES and subject in CATEGORIES[category].subjects


def parse_rules(category: str, rules: Mapping[str, Any]) -> Rules:
    """Validate a policy's rules and fill in defaults. ``rules`` is decoded JSON. Values are not coerced, but an integer
    is accepted as a number. Raises a RulesError that lists every rule that is unknown, has the wrong type or is out of
    range.
    """
    if category not in CATEGORIES:
        known = ", ".join(CATEGORIES)
        raise RulesError([{"loc": ["category"], "msg": f"Unknown category {category!r}; known categories: {known}"}])
    if not isinstance(rules, Mapping):
        raise RulesError([{"loc": ["rules"], "msg": "Rules must be an object"}])
    model = CATEGORIES[category].rules
    try:
        return model.model_validate(dict(rules))
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True, include_input=False)
        # If a rule is invalid, defaults that depend on it are missing; only the invalid rule is reported.
        wrong = [detail for detail in details if detail["type"] != "default_factory_not_called"]
        raise RulesError([_explain(detail, model) for detail in wrong]) from None


def without_derived(category: str, rules: Mapping[str, Any]) -> dict[str, Any]:
    """Remove each rule whose default depends on other rules and whose value is the default for an empty set of rules.
    Such a value wasn't set explicitly, so it must follow the rules that it depends on."""
    model = CATEGORIES[category].rules if category in CATEGORIES else Rules
    derived = {name for name, field in model.model_fields.items() if field.default_factory is not None}
    usual = model().model_dump(mode="json", include=derived) if derived else {}
    return {name: value for name, value in rules.items() if name not in usual or value != usual[name]}


def json_schema() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each category's rules, by category."""
    return {name: category.rules.model_json_schema() for name, category in CATEGORIES.items()}


def _explain(detail: ErrorDetails, model: type[Rules]) -> dict[str, Any]:
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(str(detail["loc"][0]), model.model_fields, n=1, cutoff=0.8)
        message = f"Unknown rule; did you mean {near[0]!r}?" if near else "Unknown rule"
    elif detail["type"] == "tuple_type":
        message = "Input should be a list"
    return {"loc": ["rules", *detail["loc"]], "msg": message}
