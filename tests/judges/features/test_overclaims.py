"""The claim says more than the evidence."""

import pytest

from judges.features import compute, prepare


@pytest.mark.parametrize(
    ("evidence", "claim", "more"),
    [
        ("The bank provides products and services.", "The bank only provides products.", True),
        ("The office opens on weekdays at nine.", "The office always opens on weekdays at nine.", True),
        ("The bank provides nothing but products, and only online.", "The bank only provides products.", False),
        ("Every office opens on weekdays at nine.", "Every office always opens on weekdays at nine.", False),
        ("The bank provides products and services.", "The bank provides products.", False),
        ("The drug may cause liver damage.", "The drug causes liver damage.", True),
        ("Unused leave may be carried over to March.", "Unused leave is carried over to March.", True),
    ],
)
def test_claim_narrower_or_surer_than_the_evidence_is_detected(evidence: str, claim: str, more: bool) -> None:
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
        ("All registered users get a badge.", "All users get a badge.", True),
        ("Premium users can export reports at any time.", "All users can export reports at any time.", True),
        ("Refunds are available to business customers.", "Refunds are available to all customers.", True),
        ("Part-time employees get a bonus.", "All employees get a bonus.", True),
        ("Pro users get priority support.", "All users get priority support.", True),
        (
            "Premium users get 24-hour email support. Email support is given to all users.",
            "All users get email support.",
            False,
        ),
        ("Customers on the Enterprise plan get phone support.", "All customers get phone support.", True),
        ("Residents over 18 may have a compost bin.", "Each resident over 18 may have a compost bin.", False),
        ("Drivers with a trailer need a permit.", "Every driver needs a permit.", True),
        ("Customers on the Enterprise plan get phone support.", "All customers on the Enterprise plan get it.", False),
        ("Guests in the hotel may use the pool.", "All guests may use the pool.", False),
        ("Members of the board were present.", "All members were present.", False),
        (
            "Customers with questions call us. All customers get phone support.",
            "All customers get phone support.",
            False,
        ),
        ("Note: Passengers must check in online.", "All passengers must check in online.", False),
        ("Members of staff receive 25 days of leave.", "All staff receive 25 days of leave.", False),
        ("Acme employees receive 25 days of leave.", "All employees receive 25 days of leave.", False),
        ("Breakfast, drinks and snacks are complimentary.", "All drinks are complimentary.", False),
        ("Acme hosts backups in Frankfurt.", "All backups are kept in Frankfurt.", False),
        ("The contracting parties shall keep the terms secret.", "All parties shall keep the terms secret.", False),
    ],
)
def test_statement_about_a_part_does_not_support_the_whole(evidence: str, claim: str, *, wider: bool) -> None:
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
        ("The company is set to open the plant in June.", "The company opened the plant in June.", True),
        ("Prices will rise by 5 percent in May.", "Prices rose by 5 percent in May.", True),
        ("The museum will officially open in May.", "The museum officially opened in May.", True),
        ("You will have 30 days to return the item.", "You have 30 days to return the item.", False),
        ("Employees will have 25 days of leave.", "Employees have 25 days of leave.", False),
        ("Refunds will be processed within 5 days.", "Refunds get processed within 5 days.", False),
        ("You will be charged a fee of $25.", "The fee charged is $25.", False),
        ("You will need a passport and a visa.", "Required documents: a passport and a visa.", False),
        ("The tour will be led by an archaeologist.", "It is a tour led by an archaeologist.", False),
        ("Refunds will be issued to the card.", "Refunds are automatically and promptly issued to the card.", False),
        ("The store will open on 3 May. On 3 May the store opened its doors.", "The store opened on 3 May.", False),
        ("Will completed the audit in March.", "The audit was completed in March.", False),
        ("The will names Anna as executor.", "Anna was named executor.", False),
        ("Sales rose 5%, although analysts expected them to fall.", "Sales increased 5%.", False),
    ],
)
def test_plan_does_not_support_a_completed_action(evidence: str, claim: str, *, done: bool) -> None:
    assert (compute(prepare(evidence), prepare(claim)).overclaims > 0.65) is done


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("The line, which may be late, opened in May.", "The line opened in May."),
        ("Refunds are paid within 30 days unless the item is damaged.", "Refunds are paid within 30 days."),
    ],
)
def test_hedge_or_condition_is_a_weak_sign(evidence: str, claim: str) -> None:
    """It belongs to something else in the sentence just as often."""
    found = compute(prepare(evidence), prepare(claim))
    assert 0.0 < found.overclaims < 0.5
    assert found.contained == 0.0


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("Most employees are paid $500 per month.", "Most employees are paid $500 each month."),
        ("Some users sync their data daily.", "Some users sync their data every day."),
        ("Some tickets cost up to $50.", "Some tickets cost at most $50."),
        ("Many hotels do not accept pets.", "Many hotels do not accept pets at all."),
        ("You cannot log in without a token.", "You can only log in with a token."),
        ("Access to the laboratory is limited to staff.", "Only staff have access to the laboratory."),
        ("You can cancel at any time.", "You can always cancel."),
        ("Email and phone support are included.", "Not only email but also phone support is included."),
    ],
)
def test_paraphrase_is_no_overclaim(evidence: str, claim: str) -> None:
    assert compute(prepare(evidence), prepare(claim)).overclaims < 0.5
