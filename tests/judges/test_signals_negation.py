"""What a negation denies, and where it denies nothing."""

import pytest

from judges.signals import compute, prepare


def polarity(evidence: str, claim: str) -> float:
    return compute(prepare(evidence), prepare(claim)).polarity_differs


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("The minister neither confirmed nor denied the report.", "The minister did not deny the report."),
        ("The slave states with little or no cotton remained.", "The slave states with little cotton remained."),
        ("The treaty may or may not enter into force.", "The treaty may enter into force."),
        ("The new case reaches nothing but dead ends.", "The new case reaches dead ends."),
        ("New York is the largest city of the state.", "No, New York is the largest city of the state."),
        ("Smoking is prohibited on the site.", "Smoking is allowed in one corner of the site."),
        ("The list may exclude the whole county of Kent.", "The list may exclude parts of the county of Kent."),
        (
            "It is unknown whether or not the season will be announced.",
            "It is unknown whether the season will be announced.",
        ),
    ],
)
def test_these_say_the_same(evidence: str, claim: str) -> None:
    assert polarity(evidence, claim) == 0.0


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("The sovereign state is neither dependent nor weak.", "The sovereign state is dependent."),
        ("The minister did not deny the report.", "The minister denied the report."),
        ("No cotton was grown in the northern states.", "Cotton was grown in the northern states."),
        ("Smoking is prohibited on the whole site.", "Smoking is allowed in one corner of the site."),
        ("Dogs are banned from the entire beach.", "Dogs are allowed on the northern beach."),
    ],
)
def test_these_say_the_opposite(evidence: str, claim: str) -> None:
    assert polarity(evidence, claim) == 1.0
