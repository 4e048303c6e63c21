"""More than the evidence says."""

import pytest

from judges.signals import compute, prepare


@pytest.mark.parametrize(
    ("evidence", "claim", "more"),
    [
        ("The bank provides products and services.", "The bank only provides products.", True),
        ("The office opens on weekdays at nine.", "The office always opens on weekdays at nine.", True),
        ("The bank provides nothing but products, and only online.", "The bank only provides products.", False),
        ("Every office opens on weekdays at nine.", "Every office always opens on weekdays at nine.", False),
        ("The bank provides products and services.", "The bank provides products.", False),
    ],
)
def test_what_is_narrower_or_surer_than_the_evidence(evidence: str, claim: str, more: bool) -> None:
    found = compute(prepare(evidence), prepare(claim))
    assert (found.overclaims > 0.5) is more
    assert (found.contained > 0.5) is not more


@pytest.mark.parametrize(
    ("evidence", "claim", "wider"),
    [
        ("Premium users get 1000 requests per minute.", "All users get 1000 requests per minute.", True),
        ("Premium users get 1000 requests per minute.", "Every user gets 1000 requests per minute.", True),
        ("Gold card holders may use the lounge.", "All card holders may use the lounge.", True),
        ("Premium users get 1000 requests per minute.", "All premium users get 1000 requests per minute.", False),
        ("Users get 1000 requests per minute.", "All users get 1000 requests per minute.", False),
        ("First-floor rooms have a view. All rooms have a kettle.", "Every room has a kettle.", False),
        ("Part-time cleaners work mornings. Every cleaner gets gloves.", "All cleaners get gloves.", False),
        ("All registered users get a badge.", "All users get a badge.", False),
    ],
)
def test_what_is_said_of_a_named_part_is_not_said_of_all(evidence: str, claim: str, *, wider: bool) -> None:
    found = compute(prepare(evidence), prepare(claim))
    assert (found.overclaims > 0.5) is wider
    assert not wider or found.contained == 0.0


@pytest.mark.parametrize(
    ("evidence", "claim", "done"),
    [
        ("The operator plans to open the line in June.", "The operator opened the line in June.", True),
        ("The operator plans to open the line in June.", "The operator has opened the line.", True),
        ("The group intends to sell its mills.", "The group sold its mills.", True),
        ("The report is expected to be published in May.", "The report was published in May.", True),
        ("The council will sell the bridge in May.", "The council sold the bridge in May.", True),
        ("The operator plans to open the line in June.", "The operator plans to open the line in June.", False),
        ("The operator plans to open the line in June.", "The operator will open the line in June.", False),
        ("The operator opened the line and plans to open more.", "The operator opened the line.", False),
        ("The operator plans to open the line in June.", "The operator has not opened the line.", False),
        ("The patients will proceed to surgery.", "The patients proceed to surgery.", False),
        ("The office will be opened at nine.", "The office is opened at nine.", False),
    ],
)
def test_what_is_planned_is_not_told_as_done(evidence: str, claim: str, *, done: bool) -> None:
    assert (compute(prepare(evidence), prepare(claim)).overclaims > 0.5) is done


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("Leave may be carried over to March.", "Leave is carried over to March."),
        ("Refunds are paid within 30 days unless the item is damaged.", "Refunds are paid within 30 days."),
    ],
)
def test_a_hedge_or_a_condition_is_a_weak_sign(evidence: str, claim: str) -> None:
    """It is as often that of something else in the sentence: the claim is not said in its words, and yet covered."""
    found = compute(prepare(evidence), prepare(claim))
    assert 0.0 < found.overclaims < 0.5
    assert found.contained == 0.0
    assert found.covered == 1.0
