"""The page on rules names every rule, and lists the same rules that need the whole reply as the policies."""

import re
from pathlib import Path

import pytest

from policies.grounding.evaluator import REPLY_CHECKS, SENTENCE_CHECKS
from policies.registry import CATEGORIES

PAGE = (Path(__file__).parents[3] / "docs/policies/rules.md").read_text("utf-8")


def section(title: str) -> str:
    return PAGE.split(f"### {title}\n", 1)[1].split("\n### ", 1)[0]


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_rule_has_a_row(category: str) -> None:
    first_cells = re.findall(r"^\| ([^|]*)\|", PAGE, flags=re.M)
    named = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert set(CATEGORIES[category].rules.model_fields) <= named


def test_rules_that_need_the_whole_reply_are_all_named() -> None:
    known = {check.rule for check in (*SENTENCE_CHECKS, *REPLY_CHECKS) if check.rule is not None}
    assert known <= set(re.findall(r"`(\w+)`", section("Rules that need the whole reply")))
