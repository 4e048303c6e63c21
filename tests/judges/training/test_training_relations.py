"""Who did what to whom, told as it was and the other way round."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.training.data import Target
from judges.training.relations import exchanged, roles, turned

WRITTEN = "The report was written by the harbour master in 1998."
ACQUIRED = "Nordlicht acquired the Sund Ferry Company after a long dispute."
LONGER = "The northern quay is longer than the southern quay."


@pytest.mark.parametrize(
    ("sentence", "made"),
    [
        (WRITTEN, "The harbour master wrote the report in 1998."),
        (ACQUIRED, "The Sund Ferry Company was acquired by Nordlicht after a long dispute."),
        ("The quay is used by the fishermen.", None),  # a passive present has no past to be turned into
        ("He acquired the company.", None),
        (LONGER, None),
    ],
)
def test_the_other_voice_says_the_same(sentence: str, made: str | None) -> None:
    assert turned(sentence, random.Random(1)) == made


@pytest.mark.parametrize(
    ("sentence", "made"),
    [
        (
            WRITTEN,
            {
                "The harbour master was written by the report in 1998.",
                "The report wrote the harbour master in 1998.",
            },
        ),
        (
            ACQUIRED,
            {
                "The Sund Ferry Company acquired Nordlicht after a long dispute.",
                "Nordlicht was acquired by the Sund Ferry Company after a long dispute.",
            },
        ),
        (LONGER, {"The southern quay is longer than the northern quay."}),
        (
            "In the final, Aalborg defeated Viborg by two goals.",
            {"In the final, Viborg defeated Aalborg by two goals."},
        ),
        ("Ticket sales rose from 40 million to 52 million.", {"Ticket sales rose from 52 million to 40 million."}),
        ("The office moved from Lund to Malmö.", {"The office moved from Malmö to Lund."}),
    ],
)
def test_an_exchange_says_the_opposite(sentence: str, made: set[str]) -> None:
    assert {exchanged(sentence, random.Random(seed)) for seed in range(20)} == made


@pytest.mark.parametrize(
    "sentence",
    [
        "Aalborg and Viborg played in the rain.",
        "Anna Lind and Viktor Havel founded the school.",
        "The basin was approved in March.",
        "Havel visited Prague, Vienna and Linz.",
        "The exhibition is open to visitors of the museum.",
    ],
)
def test_nothing_is_exchanged_where_it_would_stay_true(sentence: str) -> None:
    assert exchanged(sentence, random.Random(3)) is None


def test_half_a_name_stays_where_it_is() -> None:
    assert exchanged("Viborg was coached by Anna Lind's brother.", random.Random(2)) is None


@given(st.integers())
def test_roles_come_as_a_true_and_a_false_claim(seed: int) -> None:
    made = roles(["The gate is old.", WRITTEN], random.Random(seed))
    assert [row.target for row in made] == [Target.ENTAILED, Target.CONTRADICTED]
    assert made[0].claim == "The harbour master wrote the report in 1998."
    assert made[1].claim not in (WRITTEN, made[0].claim)


def test_a_passage_without_roles_gives_none() -> None:
    assert roles(["The gate is old.", "It is painted green."], random.Random(1)) == []


@given(st.text(max_size=300), st.integers())
def test_any_text_is_taken(text: str, seed: int) -> None:
    assert exchanged(text, random.Random(seed)) != ""
    assert turned(text, random.Random(seed)) != ""
