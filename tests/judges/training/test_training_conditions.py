"""Bounds, conditions and plans told otherwise."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.training.conditions import bounded, conditional, done, narrowed, reversed_condition, unbound
from judges.training.data import Target

Rule = Callable[[str, random.Random], str | None]
FEE = "A fee of 5 euros is charged unless the berth is cancelled a day before."


@pytest.mark.parametrize(
    ("rule", "sentence", "made"),
    [
        (bounded, "The lock holds at least 12 boats.", "The lock holds at most 12 boats."),
        (bounded, "It cost more than $3 million.", "It cost fewer than $3 million."),
        (bounded, "It lasted over 15 minutes.", None),
        (bounded, "The lock holds boats at least.", None),
        (reversed_condition, FEE, "A fee of 5 euros is charged if the berth is cancelled a day before."),
        (
            reversed_condition,
            "If the gate is locked, boats wait at the outer pier.",
            "Unless the gate is locked, boats wait at the outer pier.",
        ),
        (
            reversed_condition,
            "All berths are free except those at the pier.",
            "All berths are free including those at the pier.",
        ),
        (
            reversed_condition,
            "It sells fish, including the catch of the day.",
            "It sells fish, except for the catch of the day.",
        ),
        (reversed_condition, "They asked, if only once, whether it was open.", None),
        (unbound, FEE, "A fee of 5 euros is charged."),
        (unbound, "If the gate is locked, boats wait at the outer pier.", "Boats wait at the outer pier."),
        (unbound, "If a boat is late, it waits outside until morning.", None),
        (unbound, "The master does not know if the gate is locked.", None),
        (unbound, "The gate would open if the river were low.", None),
        (done, "The town plans to build a second basin.", "The town has built a second basin."),
        (done, "The basin is expected to be finished in May.", "The basin was finished in May."),
        (done, "The basin will be finished in May.", "The basin has been finished in May."),
        (done, "The boats will be towed in May.", "The boats have been towed in May."),
        (done, "The basin will be finished if money is found.", None),
        (done, "There are no plans to build a basin.", None),
        (narrowed, "The crane is used for sailing boats.", "The crane is only used for sailing boats."),
        (narrowed, "The crane can be used at night.", "The crane can only be used at night."),
        (narrowed, "The crane is often used at night.", None),
    ],
)
def test_a_rule_makes_what_it_says(rule: Rule, sentence: str, made: str | None) -> None:
    assert {rule(sentence, random.Random(seed)) for seed in range(5)} == {made}


@given(st.integers())
def test_what_is_made_has_its_rules_label(seed: int) -> None:
    made = conditional([FEE, "The gate is old."], random.Random(seed))
    assert made is not None
    text, target, rule = made
    assert {"unbound": Target.NEUTRAL, "reversed_condition": Target.CONTRADICTED}[rule] is target
    assert text != FEE


def test_a_passage_without_conditions_gives_none() -> None:
    assert conditional(["The gate is old."], random.Random(1)) is None


@given(st.text(max_size=300), st.integers())
def test_any_text_is_taken(text: str, seed: int) -> None:
    assert conditional([text], random.Random(seed)) is None or text
