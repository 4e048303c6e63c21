"""A number whose unit is missing from one of the two texts."""

import pytest

from judges.features import compute, prepare


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("He was 43 old when he wrote the book.", "He was 43 or 44 years old when he wrote the book."),
        ("They arrived 35 million or more years ago.", "They arrived 35 million years ago."),
        ("It is hard to learn French in 2.", "It is hard to learn French in 2 or 3 years."),
        ("The club sold rights for £5.14 billion.", "The club sold rights for 5.14 billion."),
        ("The pilot of United 175's last flight never answered.", "The pilot of United 175 never answered."),
    ],
)
def test_equal_amounts_do_not_differ(evidence: str, claim: str) -> None:
    assert compute(prepare(evidence), prepare(claim)).quantity_differs == 0.0


def test_another_scale_differs() -> None:
    found = compute(prepare("The spread widened by 150 bps."), prepare("The spread widened by 150 billion."))
    assert found.quantity_differs == 1.0


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        ("Premium users get 1000 requests per minute.", "Premium users get 1000 req/min."),
        ("The queue holds 20 msgs per topic.", "The queue holds 20 messages per topic."),
        ("The pool opens 50 conns.", "The pool opens 50 connections."),
        ("Admins can rotate tokens of 3 apps.", "Administrators can rotate tokens of 3 applications."),
    ],
)
def test_abbreviation_equals_its_word(evidence: str, claim: str) -> None:
    found = compute(prepare(evidence), prepare(claim))
    assert found.contained == 1.0


def test_another_amount_differs_in_abbreviation_too() -> None:
    found = compute(prepare("Premium users get 1000 requests per minute."), prepare("Premium users get 100 req/min."))
    assert found.quantity_differs == 1.0
