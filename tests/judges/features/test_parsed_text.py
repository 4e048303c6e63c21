"""Parsing a text for comparison."""

import pytest

from judges.features import prepare


@pytest.mark.parametrize(
    ("text", "quantities"),
    [
        ("(1) Open the app and tap Refund.", []),
        ("1) Open the app and tap Refund.", []),
        ("(2) Then confirm the amount.", []),
        ("(3) Access your account.", []),
        ("(2) You get 25 days.", ["25 days"]),
        ("(1) Öffnen Sie die App.", []),
        ("(3) Ouvrez votre compte.", []),
        ("(4) Tablets daily for children.", ["4"]),
        ("4) Tabletten täglich", ["4"]),
        ("(4) Tablets the whole week", ["4"]),
        ("(1) Tablet the night before", ["1"]),
        ("(4) Gélules le matin", ["4"]),
        ("(4) A day", ["4"]),
        ("(4) open the app", ["4"]),
        ("(100) The app opens.", ["100"]),
    ],
)
def test_list_number_that_counts_nothing_is_no_quantity(text: str, quantities: list[str]) -> None:
    assert [quantity.text for quantity in prepare(text).quantities] == quantities


@pytest.mark.parametrize("text", ["She gets 14 days.", "(2) She gets 14 days.", "b) She gets 14 days."])
def test_claim_that_begins_with_a_pronoun_depends_on_the_previous_sentence(text: str) -> None:
    assert prepare(text).sentences[0].leans
