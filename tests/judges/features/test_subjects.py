"""Claims whose subject is in the text before them, against evidence about several such subjects."""

import pytest

from judges.features import compute, prepare
from judges.features.claim_comparison import Features

PLANS = (
    "The Basic plan costs 9 euros a month and includes 2 users. "
    "The Team plan costs 49 euros a month and includes 10 users. "
    "The Firm plan costs 129 euros a month and includes 25 users and phone support."
)


def seen(evidence: str, context: str, claim: str) -> Features:
    return compute(prepare(evidence), prepare(claim, context))


@pytest.mark.parametrize("plan", [("Basic", 2, 9), ("Team", 10, 49), ("Firm", 25, 129)], ids=lambda plan: plan[0])
@pytest.mark.parametrize(
    ("context", "users", "price"),
    [
        ("The {} plan is popular.", "It includes {} users.", ""),
        ("The {} plan:", "It includes {} users.", "It costs {} euros a month."),
        ("{} plan:", "{} users", "{} euros a month"),
        ("How many users does the {} plan include?", "{} users.", ""),
        ("What does the {} plan cost?", "", "{} euros a month."),
    ],
)
def test_only_statements_about_the_same_thing_count(
    plan: tuple[str, int, int], context: str, users: str, price: str
) -> None:
    name, *right = plan
    for claim, truth, values in zip((users, price), right, ((2, 3, 10, 25), (9, 19, 49, 129)), strict=True):
        for value in values if claim else ():
            found = seen(PLANS, context.format(name), claim.format(value))
            assert (found.quantity_differs > 0.0) is (value != truth), claim.format(value)
            assert max(found.verbatim, found.contained) <= (value == truth)


def test_pronoun_sentence_is_about_the_subject_before_it() -> None:
    evidence = "The Team plan is popular. It includes 10 users. The Firm plan is new. It includes 25 users."
    assert seen(evidence, "The Team plan is good.", "It includes 25 users.").quantity_differs == 1.0
    assert seen(evidence, "The Firm plan is good.", "It includes 25 users.").quantity_differs == 0.0


def test_evidence_without_a_nearby_subject_is_compared_unchanged() -> None:
    evidence = "The Team plan is new. Each account has a limit of 10 users."
    assert seen(evidence, "The Team plan is good.", "Each account has a limit of 12 users.").quantity_differs == 1.0


@pytest.mark.parametrize(
    ("asked", "evidence", "claim"),
    [
        (
            "How long do refunds take for a card issued abroad?",
            "Refunds take 5 days. For cards issued abroad, refunds take 10 days.",
            "Refunds take 5 days.",
        ),
        (
            "When was the company that owns YouTube founded?",
            "Google was founded in 1998. YouTube was founded in 2005. Google owns YouTube.",
            "It was founded in 1998.",
        ),
        (
            "My children are well, what is my dose?",
            "The dose for adults is 500 mg. The dose for children is 250 mg.",
            "The dose is 500 mg.",
        ),
        (
            "How does the price compare to the Pro plan?",
            "The plan costs 9 euros a month. The Pro plan costs 19 euros a month.",
            "The plan costs 9 euros a month.",
        ),
    ],
)
def test_question_with_extra_names_blocks_nothing(asked: str, evidence: str, claim: str) -> None:
    assert compute(prepare(evidence), prepare(claim, "", asked)).quantity_differs <= 0.5


@pytest.mark.parametrize(
    ("evidence", "claim", "wider"),
    [
        ("Unused leave may be carried over to March.", "Unused leave can be carried over to March.", False),
        ("Unused leave may be carried over to March.", "Unused leave is carried over to March.", True),
        ("Partners get two weeks of leave.", "Partners get only two weeks of leave.", False),
        ("Partners get leave at birth.", "Partners only get leave at birth.", True),
        ("The health plan covers dental care.", "The health cover includes dental care.", False),
        ("The plant makes 5 tons of steel a day.", "Steel is made there, 5 tons a day.", False),
        ("The firm plans to open a shop in Rome.", "The firm opens a shop in Rome.", True),
        ("The firm plans on a shop in Rome.", "The firm has a shop in Rome.", True),
        ("The firm hopes to open a shop in Rome.", "The firm opens a shop in Rome.", True),
    ],
)
def test_plans_and_permissions(evidence: str, claim: str, *, wider: bool) -> None:
    assert (compute(prepare(evidence), prepare(claim)).overclaims > 0.0) is wider
