"""The policy categories. To add one, write a rules model and an evaluator, and list it in ``CATEGORIES``."""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from policies.base import Category, Rules, RulesError
from policies.grounding.evaluator import GROUNDING
from policies.retrieval.evaluator import RETRIEVAL

CATEGORIES: Mapping[str, Category] = MappingProxyType({"retrieval": RETRIEVAL, "grounding": GROUNDING})


def parse_rules(category: str, rules: Mapping[str, Any]) -> Rules:
    """Validate the rules of a policy and fill in their defaults.

    ``rules`` is decoded JSON. Nothing is coerced, except that an integer is accepted as a number.

    Raises RulesError, which lists every rule that is unknown, has the wrong type or is out of range.
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
        raise RulesError([_explain(detail, model) for detail in details]) from None


def json_schema() -> dict[str, dict[str, Any]]:
    """The JSON Schema of each category's rules, by category."""
    return {name: category.rules.model_json_schema() for name, category in CATEGORIES.items()}


def _explain(detail: ErrorDetails, model: type[Rules]) -> dict[str, Any]:
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(str(detail["loc"][0]), model.model_fields, n=1, cutoff=0.8)
        message = f"Unknown rule; did you mean {near[0]!r}?" if near else "Unknown rule"
    elif detail["type"] == "tuple_type":
        message = "Input should be a list"
    return {"loc": ["rules", *detail["loc"]], "msg": message}
