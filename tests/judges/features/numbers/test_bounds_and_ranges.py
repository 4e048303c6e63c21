"""Numbers followed by their bound, scale or unit, and hostile numbers."""

import time

import pytest

from judges.features.numbers import BoundKind, QuantityKind, quantities, within


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("groups of 5 or more people", BoundKind.AT_LEAST),
        ("children of 12 or under", BoundKind.AT_MOST),
        ("18+ only", BoundKind.AT_LEAST),
        ("max. 5 people", BoundKind.AT_MOST),
        ("it takes 5 days at most", BoundKind.AT_MOST),
        ("5 or 6 people", BoundKind.EXACT),
    ],
)
def test_bound_after_a_number_is_read(text: str, bound: BoundKind) -> None:
    assert quantities(text)[0].bound is bound


@pytest.mark.parametrize(
    ("text", "kind", "unit", "value"),
    [
        ("1.2m users", QuantityKind.NUMBER, "", 1_200_000),
        ("1.2m long", QuantityKind.MEASURE, "length", 1.2),
        ("50 cents", QuantityKind.MONEY, "cents", 0.5),
        ("three-quarters of an hour", QuantityKind.MEASURE, "duration", 2700),
        ("it is 30s long", QuantityKind.MEASURE, "duration", 30),
    ],
)
def test_letter_suffixes_are_units(text: str, kind: QuantityKind, unit: str, value: float) -> None:
    (found,) = quantities(text)
    assert (found.kind, found.unit, float(found.values[0])) == (kind, unit, value)


def test_similar_letters_are_no_units() -> None:
    assert [(found.kind, found.text) for found in quantities("a 5G phone of the 90s in 3D")] == [
        (QuantityKind.IDENTIFIER, "5g"),
        (QuantityKind.IDENTIFIER, "90s"),
        (QuantityKind.IDENTIFIER, "3d"),
    ]
    (month,) = quantities("It closes on Sept. 6.")
    assert month.date == (None, 9, 6)
    (age,) = quantities("Persons over 18 may enter.")
    assert age.date is None


@pytest.mark.parametrize(
    ("range_", "inside", "outside"),
    [
        ("from 5 mg to 20 mg", "15 mg", "25 mg"),
        ("from Friday to Monday", "Sunday", "Tuesday"),
        ("between 8 am and 8 pm", "10 am", "9 pm"),
        ("from April to October", "in July", "in March"),
        ("from 2001 to 2009", "in 2005", "in 2010"),
        ("from 3 to 7 June 2024", "5 June 2024", "9 June 2024"),
        ("$500 to $1,000", "$750", "$1,750"),
    ],
)
def test_range_contains_values_in_it(range_: str, inside: str, outside: str) -> None:
    low, high = quantities(f"It is {range_}.")
    assert low.opens
    assert within(quantities(inside)[0], low, high)
    assert not within(quantities(outside)[0], low, high)


@pytest.mark.parametrize(
    "text",
    [
        "one thousand one hundred " * 4_000,
        ("one thousand two hundred three million " * 300 + ". ") * 8,
        "5点" + "1" * 5_000 + "分",
        "2024年" + "1" * 5_000 + "月",
    ],
)
def test_hostile_numbers_take_linear_time(text: str) -> None:
    began = time.process_time()
    quantities(text)
    assert time.process_time() - began < 5.0
