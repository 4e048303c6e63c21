"""What a negation denies, and when it denies nothing."""

import pytest

from judges.features import compute, prepare


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
        ("The API no longer supports XML.", "The API does not support XML."),
        ("Cheques are no longer accepted by the bank.", "The bank does not accept cheques any more."),
        ("Every town has trees.", "Town 0 has trees."),
        ("Version 0 has a log.", "The log is in version 0."),
        ("Members are not charged fees.", "Members are charged zero fees."),
        ("Breakfast is not included in the price.", "The price excludes breakfast."),
        ("The landlord does not allow pets.", "Pets are prohibited by the landlord."),
        ("The insurer did not approve the claim.", "The claim was rejected by the insurer."),
        ("Whole milk is not allowed. Infants may drink formula milk.", "Formula milk is allowed."),
        ("Smoking is prohibited in the hotel apart from the terrace.", "Smoking is allowed on the terrace."),
        ("Smoking is prohibited in the hotel other than the terrace.", "Smoking is allowed on the terrace."),
        ("Stays no longer than 5 days are free.", "Stays of up to 5 days are free."),
        ("Smoking is prohibited on the site.", "Smoking is allowed in one corner of the site."),
        ("The list may exclude the whole county of Kent.", "The list may exclude parts of the county of Kent."),
        (
            "It is unknown whether or not the season will be announced.",
            "It is unknown whether the season will be announced.",
        ),
    ],
)
def test_equal_statements_are_no_opposites(evidence: str, claim: str) -> None:
    assert polarity(evidence, claim) == 0.0


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("The sovereign state is neither dependent nor weak.", "The sovereign state is dependent."),
        ("The minister did not deny the report.", "The minister denied the report."),
        ("No cotton was grown in the northern states.", "Cotton was grown in the northern states."),
        ("The API no longer supports XML.", "The API supports XML."),
        ("Not all items can be returned.", "All items can be returned."),
        ("Smoking is prohibited on the whole site.", "Smoking is allowed in one corner of the site."),
        ("Dogs are banned from the entire beach.", "Dogs are allowed on the northern beach."),
    ],
)
def test_opposite_statements_are_detected(evidence: str, claim: str) -> None:
    assert polarity(evidence, claim) == 1.0
